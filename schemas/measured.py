"""A training run somebody measured: what its source states, what had to be assumed, what came out.

Stated and assumed settings never mix: each setting of a row is in one of the two. An assumption is
made by a rule that cannot see what was measured, so none is chosen for one row.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic.fields import FieldInfo

from schemas.architecture import Architecture
from schemas.cluster import Network
from schemas.errors import shown
from schemas.line import Line, Name
from schemas.model import FrozenModel
from schemas.trial import NormalTrial
from schemas.wording import problem
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
Time = Annotated[float, Field(ge=1e-3, le=1e9)]
"""In ms: from a microsecond to eleven days."""
Rate = Annotated[float, Field(ge=1e-6, le=1e9)]
"""In tokens/s/GPU."""


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

    id: Name
    source: Name
    """The table it is from: a key of the evidence's sources, and what statistics are kept by."""
    citation: Line
    """Where that table was published, and where in it the row stands."""
    quality: Literal["A", "B"]
    """A: everything that matters is stated; B: one or two secondary fields are missing."""
    also: tuple[str, ...] = ()
    """Other places that print the same run with the same figure."""

    model: Name
    architecture: Architecture | None
    """None: of a kind that `Architecture` does not describe."""
    gpu: Name
    """A shipped profile's name, or the source's words where none ships."""
    precision: Name
    """bf16, fp16, fp8, or a recipe that is not modelled, by its own name."""
    world_size: int = Field(gt=0)
    gpus_per_node: int = Field(gt=0)
    framework: Line = ""
    sweep: Name | None = None
    """Rows of one sweep differ in configuration alone: their order is what a search lives on."""

    stated: dict[str, Setting]
    assumed: dict[str, Assumption] = Field(default_factory=dict)

    iteration_ms: Time | None = None
    tokens_per_s_per_gpu: Rate | None = None
    """What the source prints; the other of the two is None unless it prints both."""
    memory_gb: float | None = Field(default=None, gt=0)
    memory_kind: MemoryKind | None = None
    not_comparable: Line | None = None
    """Why a projection would be of something else; None: it would be of this run."""

    @model_validator(mode="after")
    def _settings(self) -> "MeasuredRow":
        if unknown := self.assumed.keys() - SETTINGS:
            raise ValueError(f"no such setting: {', '.join(sorted(unknown))}")
        check_stated(self.stated)
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


def check_stated(stated: Mapping[str, Any]) -> None:
    """Raises ValueError where a setting is none that is known, or cannot have its value."""
    try:
        _setting_types().model_validate(stated)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "extra_forbidden":
            raise ValueError(f"no such setting: {shown(first['loc'][0])}") from error
        raise ValueError(f"stated.{first['loc'][0]}: {problem(first)}") from error


@cache
def _setting_types() -> type[BaseModel]:
    """Every setting with the type and range it has where it comes from; none must be there."""
    fields: dict[str, Any] = {}
    for model in (NormalTrial, Precision, Workload, Network):
        for name, field in model.model_fields.items():
            if name in SETTINGS:
                fields[name] = (field.annotation, FieldInfo.merge_field_infos(field, default=None))
    return create_model(
        "Settings",
        __config__=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False),
        **fields,
    )
