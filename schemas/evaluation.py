"""What the oracle says of one trial."""

from typing import Any, Literal

from pydantic import Field

from schemas.calibration import ExpectedError
from schemas.model import FrozenModel

Provenance = Literal["synthetic", "inferred", "analytic", "calibrated", "measured"]
PROVENANCE_ORDER: tuple[Provenance, ...] = (
    "synthetic",
    "inferred",
    "analytic",
    "calibrated",
    "measured",
)
Source = Literal["dry", "memory_only", "memory_real", "simulate", "benchmark", "both"]


class SignatureHashes(FrozenModel):
    """What a score depends on, in three parts; 16 hex digits each."""

    model: str
    cluster: str
    stack: str


class RankMemory(FrozenModel):
    """Memory of the GPUs of one pipeline rank, in 2^30 bytes, by component."""

    rank: int
    components: dict[str, float]
    total_gb: float
    phase: str = "steady"
    """Phase in which this rank peaks; `components` are those of that phase."""
    phases_gb: dict[str, float] = Field(default_factory=dict)
    """Total of every phase: init, checkpoint_load, first_step, steady, optimizer_step."""


class Evaluation(FrozenModel):
    """One trial's projection. Times in ms per iteration, memory in 2^30 bytes per GPU.

    `time_breakdown_ms` sums to `iteration_ms`, `memory_breakdown_gb` (of the heaviest rank) to
    `memory_per_gpu_gb`. An illegal trial has `legal=False`, a reason, and no numbers; its source is
    the question that was asked, its provenance "inferred": a rule answered, and no model.
    """

    trial_id: str
    config: dict[str, Any]
    """The normal form, every knob."""
    legal: bool
    reason: str | None = None
    reason_code: str | None = None
    fits: bool | None = None
    cap_gb: float
    memory_per_gpu_gb: float | None = None
    param_optimizer_gb: float | None = None
    activation_gb: float | None = None
    memory_breakdown_gb: dict[str, float] = Field(default_factory=dict)
    memory_by_rank_gb: tuple[RankMemory, ...] = ()
    memory_heaviest_rank: int | None = None
    """Pipeline rank that decides whether the trial fits; `memory_breakdown_gb` is of it."""
    memory_regime: str = "config"
    moe_imbalance: float | None = None
    """Expert load of the busiest rank over the mean that the memory was projected with."""
    largest_moe_imbalance: float | None = None
    """The largest that still fits, at most ep; only where it was asked for and there is one."""
    iteration_ms: float | None = None
    tokens_per_s_per_gpu: float | None = None
    tflops_per_s_per_gpu: float | None = None
    mfu: float | None = None
    bubble_ratio: float | None = None
    time_breakdown_ms: dict[str, float] = Field(default_factory=dict)
    comm_breakdown: dict[str, float] = Field(default_factory=dict)
    """Exposed communication in ms by collective; the winning algorithm is in the name's value."""
    comm_algorithms: dict[str, str] = Field(default_factory=dict)
    """Per entry of `comm_breakdown`: algorithm and protocol that won."""
    schedule: str | None = None
    derived_dp: int | None = None
    derived_edp: int | None = None
    num_microbatches: int | None = None
    source: Source
    provenance: Provenance
    signature: SignatureHashes
    expected_error: ExpectedError | None = None
    """How far off the time may be, by the nearest measured evidence; None where no time is."""
    warnings: tuple[str, ...] = ()
    zero_delta_reasons: dict[str, str] = Field(default_factory=dict)
    """Knob → code: why setting it moves no number here ("ep_group_is_one", …)."""
