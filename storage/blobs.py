"""Blobs: large texts beside the run that refers to them, under the SHA-256 of their content."""

from collections.abc import Sequence
from functools import cache

from schemas.errors import DamagedLog
from schemas.events import Event, RunForked
from storage.backends import NotStored, SegmentStore
from storage.canonical import sha256_hex
from storage.layout import blobs_prefix


def read_blob(backend: SegmentStore, run_id: str, digest: str) -> bytes:
    """The blob of a run with this SHA-256.

    Raises:
        DamagedLog: it is missing, or not what was stored.
    """
    try:
        data = backend.read(f"{blobs_prefix(run_id)}/{digest}")
    except NotStored as error:
        raise DamagedLog(f"run {run_id}: blob {digest} is missing") from error
    if sha256_hex(data) != digest:
        raise DamagedLog(f"run {run_id}: blob {digest} is not what was stored")
    return data


def find_blob(backend: SegmentStore, lineage: Sequence[str], digest: str) -> bytes:
    """The blob with this SHA-256 of the first of `lineage` that has it.

    Raises:
        DamagedLog: none has it, or it is not what was stored.
    """
    for run_id in lineage:
        if digest in backend.names(blobs_prefix(run_id)):
            return read_blob(backend, run_id, digest)
    return read_blob(backend, lineage[0], digest)


def blobs_of(event: Event) -> list[str]:
    """Hashes of the blobs an event refers to: its fields named `…_blob` and `…_blobs`."""
    found: list[str] = []
    for name in _blob_fields(type(event)):
        value = getattr(event, name)
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            found.extend(value.values())
    if isinstance(event, RunForked):
        found.extend(blobs_of(event.spec))
    return found


@cache
def _blob_fields(kind: type[Event]) -> tuple[str, ...]:
    return tuple(name for name in kind.model_fields if name.endswith(("_blob", "_blobs")))
