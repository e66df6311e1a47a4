"""A training run somebody measured: what its source states, what had to be assumed, what came out.

Stated and assumed settings never mix: each setting of a row is in one of the two. An assumption is
made by a rule that cannot see what was measured, so none is chosen for one row.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from pydantic import Field, model_validator

from schemas.architecture import Architecture
from schemas.cluster import Network
from schemas.model import FrozenModel
from schemas.trial import NormalTrial
from schemas.workload import Precision, Workload

TRIAL_SETTINGS: Final = frozenset(NormalTrial.model_fields)
PRECISION_SETTINGS: Final = frozenset(Precision.model_fields)
WORKLOAD_SETTINGS: Final = frozenset(Workload.model_fields) - {
    *("name", "architecture", "baseline", "precision", "framework", "source", "files"),
    *("document", "trainer", "warnings"),
}
NETWORK_SETTINGS: Final = frozenset(Network.model_fields)
SETTINGS: Final = TRIAL_SETTINGS | PRECISION_SETTINGS | WORKLOAD_SETTINGS | NETWORK_SETTINGS
"""Everything a row may state or have assumed of it: fields of trial, workload and network."""

STATED_IN_FULL: Final = ("seq_length", "tp", "pp", "cp", "mbs", "gbs", "recompute_granularity")
"""What a source has to state, beside the group's parts, for a row to count as stated in full; ep
too where the model has experts."""

Setting = bool | int | float | str | tuple[int, ...] | tuple[str, ...] | None
MemoryKind = Literal["allocated", "reserved", "device", "unstated"]


class Group(NamedTuple):
    """What is held out together when factors are fitted."""

    model: str
    gpu: str
    precision: str
    world_size: int


class Assumption(FrozenModel):
    """A value no source states, where it comes from, and what else it may as well have been."""

    value: Setting
    why: str
    plausible: tuple[Setting, ...] = ()


class MeasuredRow(FrozenModel):
    """One measured configuration. Times in ms per iteration, memory in 2^30 bytes per GPU."""

    id: str
    source: str
    """The table it is from: a key of the evidence's sources, and what statistics are kept by."""
    citation: str
    """Where that table was published, and where in it the row stands."""
    quality: Literal["A", "B"]
    """A: everything that matters is stated; B: one or two secondary fields are missing."""
    also: tuple[str, ...] = ()
    """Other places that print the same run with the same figure."""

    model: str
    architecture: Architecture | None
    """None: of a kind that `Architecture` does not describe."""
    gpu: str
    """A shipped profile's name, or the source's words where none ships."""
    precision: str
    """bf16, fp16, fp8, or a recipe that is not modelled, by its own name."""
    world_size: int = Field(gt=0)
    gpus_per_node: int = Field(gt=0)
    framework: str = ""
    sweep: str | None = None
    """Rows of one sweep differ in configuration alone: their order is what a search lives on."""

    stated: dict[str, Setting]
    assumed: dict[str, Assumption] = Field(default_factory=dict)

    iteration_ms: float | None = Field(default=None, gt=0)
    tokens_per_s_per_gpu: float | None = Field(default=None, gt=0)
    """What the source prints; the other of the two is None unless it prints both."""
    memory_gb: float | None = Field(default=None, gt=0)
    memory_kind: MemoryKind | None = None
    not_comparable: str | None = None
    """Why a projection would be of something else; None: it would be of this run."""

    @model_validator(mode="after")
    def _settings(self) -> "MeasuredRow":
        unknown = (self.stated.keys() | self.assumed.keys()) - SETTINGS
        if unknown:
            raise ValueError(f"{self.id}: no such setting: {', '.join(sorted(unknown))}")
        both = self.stated.keys() & self.assumed.keys()
        if both:
            raise ValueError(f"{self.id}: stated and assumed: {', '.join(sorted(both))}")
        return self

    @property
    def group(self) -> Group:
        """Model, GPU, precision and size of cluster."""
        return Group(self.model, self.gpu, self.precision, self.world_size)

    @property
    def stated_in_full(self) -> bool:
        """Whether the source states every setting that moves the time most."""
        needed = {*STATED_IN_FULL}
        if self.architecture is not None and self.architecture.is_moe:
            needed.add("ep")
        return needed <= self.stated.keys()

    def settings(self, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Every setting by name, with `changes` over what is assumed; stated ones stay."""
        assumed = {name: each.value for name, each in self.assumed.items()}
        return {**assumed, **(changes or {}), **self.stated}
