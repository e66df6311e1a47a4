"""Where a batch of trials is scored: a setting of the process, on which no score depends."""

from typing import Literal

from pydantic import Field

from schemas.model import FrozenModel

Engine = Literal["auto", "inline", "processes", "dask", "ray"]
"""auto: in this process, or in processes of its own where the batch pays for them."""


class Scoring(FrozenModel):
    """The choice of an engine. Not part of a search's spec, nor of a signature."""

    engine: Engine | None = None
    """None: as the environment says, else auto."""
    workers: int | None = Field(default=None, ge=1)
    """Processes to start on this machine; None: one per CPU this process may run on."""
    address: str | None = None
    """A Dask scheduler or a Ray cluster that is there already; None: one is started here."""
