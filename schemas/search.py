"""What a search may spend, which axes it may move, and who proposes."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from pydantic import Field, SecretStr

from schemas.evaluation import Source
from schemas.legality import AxisValue
from schemas.model import FrozenModel

Mode = Literal["dry", "memory-real", "full"]
ProfilingMode = Literal["simulate", "benchmark", "both"]
MemoryRegime = Literal["config", "paper"]

SOURCES: Mapping[Mode, Source] = MappingProxyType(
    {"dry": "dry", "memory-real": "memory_real", "full": "simulate"}
)
"""What an evaluation of each mode calls its source."""


class Budget(FrozenModel):
    """Totals over the life of a run, resumed or not.

    `seed_budget` bounds the seed plan, whose candidates another's verdict settles count for none.
    `max_perf_calls` bounds the trials scored, seeds included, answers from the cache too; 0 bounds
    none of the seeds: it says that nobody else may propose. `max_wall_clock_s` bounds the time a
    process is at work on the run. The others bound rounds after the seed plan.

    Whatever is spent, the baseline is decided. Candidates that a spent budget leaves undecided are
    rejected as `budget_spent`, and the round and the run say which budget it was.
    """

    seed_budget: int = Field(default=12, ge=1)
    max_proposals: int = Field(default=30, ge=0)
    max_perf_calls: int = Field(default=30, ge=0)
    max_benchmark_calls: int = Field(default=0, ge=0)
    max_rounds: int = Field(default=8, ge=0)
    max_rlm_iterations: int = Field(default=30, ge=0)
    max_llm_tokens: int | None = Field(default=None, ge=0)
    max_llm_cost_usd: float | None = Field(default=None, ge=0)
    max_wall_clock_s: float | None = Field(default=None, ge=0)
    patience: int = Field(default=5, ge=1)
    """Scored trials in a row that may fail to improve on the incumbent, in rounds of a language
    model after the one that found it."""


class AxisToggles(FrozenModel):
    """False pins the axis to the workload's value."""

    tp: bool = True
    pp: bool = True
    ep: bool = True
    cp: bool = True
    mbs: bool = True
    gbs: bool = False
    vpp: bool = True
    pp_schedule: bool = True
    recompute: bool = True
    overlap_grad_reduce: bool = False
    overlap_param_gather: bool = False
    fp8: bool = True
    moe_communication: bool = True
    cross_entropy_loss_fusion: bool = True
    dp_sharding: bool = True


class LlmPlan(FrozenModel):
    """Which language models propose, and how. Holds no secret: it is part of a run's record."""

    model: str
    planner_model: str | None = None
    """None: `model` plans too."""
    driver: Literal["rlm", "react", "planner"] = "planner"
    base_url: str | None = None
    """An OpenAI-compatible endpoint, without user, password or query."""
    max_tokens: int = Field(default=8000, ge=1)
    timeout: float = Field(default=300.0, gt=0)
    """Seconds a call may take."""


class SearchSpec(FrozenModel):
    """Everything that steers a search and is not the workload or the cluster."""

    objective: Literal["tokens_per_s_per_gpu"] = "tokens_per_s_per_gpu"
    mode: Mode = "full"
    profiling_mode: ProfilingMode = "simulate"
    memory_regime: MemoryRegime = "config"
    gemm_backend: Literal["auto", "origami", "tile"] = "auto"
    budget: Budget = Budget()
    axes: AxisToggles = AxisToggles()
    pinned: dict[str, AxisValue] = Field(default_factory=dict)
    max_gbs: int | None = None
    """Largest global batch when `axes.gbs` is true; None: eight times the workload's."""
    prompt_extras: tuple[str, ...] = ()
    proposer: Literal["seed", "llm", "exhaustive", "tpe", "random"] = "seed"
    llm: LlmPlan | None = None
    """Who proposes after the seeds; None: nobody."""

    @property
    def source(self) -> Source:
        """What the search's scores call their source."""
        return SOURCES[self.mode]


class BenchmarkHost(FrozenModel):
    """GPUs on this machine that may be measured."""

    has_gpu: bool = False
    benchmark_gpus: int = Field(default=0, ge=0)
    benchmark_arch: str | None = None


class LlmSettings(FrozenModel):
    """How to reach a language model. Never put in an event: `api_key` is a secret."""

    model: str | None = None
    planner_model: str | None = None
    api_key: SecretStr | None = None
    base_url: str | None = None
    timeout: float = 300.0
    max_tokens: int = 8000
    driver: Literal["auto", "rlm", "react", "planner"] = "auto"
