"""A night: what a nightly re-tuning found of each of its targets."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from schemas.evaluation import Provenance, SignatureHashes, Source
from schemas.model import FrozenModel
from schemas.targets import Target
from schemas.trial import NormalTrial

Outcome = Literal["kept", "better known", "re-tuned", "first", "drifted", "failed"]
"""What became of a target.

kept: nothing its score depends on changed, and its recipe still holds, or there still is none.
better known: as kept, but another run of the same signature has a better recipe. re-tuned:
something changed, and it was searched again. first: it was searched, and had no recipe to compare
with. drifted: nothing changed, and its recipe does not score what is on record. failed: see
`Failure`.
"""


class Standing(FrozenModel):
    """A recipe of a target, and what it scores. Units as in `schemas.evaluation.Evaluation`."""

    run_id: str
    trial: int
    trial_id: str
    config: NormalTrial
    tokens_per_s_per_gpu: float
    iteration_ms: float
    memory_per_gpu_gb: float | None
    cap_gb: float
    time_breakdown_ms: dict[str, float]
    source: Source
    provenance: Provenance
    memory_regime: str
    signature: SignatureHashes
    search: str
    """Hash of what the search was allowed: axes, pins, mode. Its budget is not in it."""

    @property
    def headroom_gb(self) -> float | None:
        """Memory left below the cap, in 2^30 bytes."""
        if self.memory_per_gpu_gb is None:
            return None
        return self.cap_gb - self.memory_per_gpu_gb


class Moved(FrozenModel):
    """One value that a score depends on and that is different now."""

    path: str
    """Where it stands in the signature or the search: "stack.hipblaslt"."""
    before: Any
    after: Any


class Failure(FrozenModel):
    """Why a target could not be re-tuned."""

    error: str
    """The error's type."""
    message: str
    """One line, without secrets."""


class NightStarted(FrozenModel):
    """A night began."""

    type: Literal["NightStarted"] = "NightStarted"
    name: str
    """Of the targets file. Nights of one name follow each other."""
    slot: datetime
    """When it was due, UTC."""
    targets: tuple[Target, ...]
    spec: str
    """Hash of the targets, and of the text of the files they name."""
    missed: int = Field(default=0, ge=0)
    """Slots since the night before that this one stands for as well."""
    before: str | None = None
    """The night before, of the same name."""
    refold_version: str
    projection_version: str


class TargetTaken(FrozenModel):
    """A target is searched again, in a run that begins now: a night that is taken up again goes on
    with that run."""

    type: Literal["TargetTaken"] = "TargetTaken"
    target: str
    run: str
    parent: str | None
    """The run it continues; None: it is a search of its own."""


class TargetDecided(FrozenModel):
    """What a night found of a target."""

    type: Literal["TargetDecided"] = "TargetDecided"
    target: str
    outcome: Outcome
    run: str | None = None
    """The run that was made for it."""
    before: Standing | None = None
    """Its recipe until tonight; None: it had none."""
    again: Standing | None = None
    """The same recipe as it scores tonight; None: it no longer can, or there was none."""
    again_why: str | None = None
    """Why it no longer can."""
    after: Standing | None = None
    """Its recipe from tonight on; None: nothing legal fits, or it failed."""
    signature: SignatureHashes | None = None
    """Of the target as it was looked at; None: it failed before that was known."""
    search: str | None = None
    """Hash of what its search was allowed (see `Standing`), and of what its workload fixes."""
    moved: tuple[Moved, ...] = ()
    """What changed that its score depends on."""
    notes: tuple[str, ...] = ()
    failure: Failure | None = None


class NightFinished(FrozenModel):
    """Every target of a night was decided."""

    type: Literal["NightFinished"] = "NightFinished"
    outcomes: dict[str, int]
    """Targets per outcome."""


class NightAbandoned(FrozenModel):
    """A night that was cut off is not gone on with: a later slot is due, which takes its place."""

    type: Literal["NightAbandoned"] = "NightAbandoned"
    slot: datetime
    """The later one."""


NightEvent = NightStarted | TargetTaken | TargetDecided | NightFinished | NightAbandoned
