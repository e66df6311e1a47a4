"""Small files about a run that lie beside its events, and are replaced whole."""

from typing import Protocol, Self, TypeVar

from pydantic import ValidationError

from schemas.errors import DamagedLog
from storage.backends import NotStored, SegmentStore


class AboutRun(Protocol):
    """What such a file holds: it names the run it is about."""

    @property
    def run_id(self) -> str:
        """The run."""

    @classmethod
    def model_validate_json(cls, json_data: bytes) -> Self:
        """The file's content."""


About = TypeVar("About", bound=AboutRun)


def read_about_run(
    backend: SegmentStore, key: str, model: type[About], run_id: str, what: str
) -> About | None:
    """The file `key` of a run; None: there is none. `what` names it in errors.

    Raises:
        DamagedLog: what is there is not one; it is replaced atomically, so no crash explains it.
    """
    try:
        data = backend.read(key)
    except NotStored:
        return None
    try:
        found = model.model_validate_json(data)
    except ValidationError as error:
        raise DamagedLog(f"run {run_id}: its {what} is not readable") from error
    if found.run_id != run_id:
        raise DamagedLog(f"run {run_id}: its {what} names run {found.run_id}")
    return found
