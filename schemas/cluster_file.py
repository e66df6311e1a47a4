"""The target-cluster YAML as a user writes it; `schemas.cluster.Cluster` is what it resolves to."""

from typing import Literal

from pydantic import Field

from schemas.cluster import MemoryOverheads, MoeImbalance, Stack
from schemas.legality import AxisValue
from schemas.model import FrozenModel
from schemas.search import AxisToggles, BenchmarkHost, LlmSettings


class TargetCluster(FrozenModel):
    """`target_cluster:`."""

    name: str = "target"
    num_nodes: int = Field(default=1, gt=0)
    gpus_per_node: int = Field(default=8, gt=0, le=1024)
    gpu_arch: str = "mi355x"
    hardware_config: str | None = None
    gpu_clock_mhz: float | None = Field(default=None, ge=100, le=10_000)
    gpu_profile: str | None = None
    """Path of a GPU profile YAML for a GPU that does not ship with Refold."""
    calibration: str | None = None
    """Path of a calibration YAML; "none" turns the shipped one off."""
    placement: Literal["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"] | None = None
    stack: Stack | None = None
    moe_imbalance: MoeImbalance | float | None = None
    memory_overheads: MemoryOverheads | None = None
    gpu_hour_price: float | None = Field(default=None, ge=0, le=1e6)
    gpu_power_w: float | None = Field(default=None, ge=0, le=1e6)


class FileBudget(FrozenModel):
    """`optimization.budget:`; None takes the default of `schemas.search.Budget`."""

    seed_budget: int | None = Field(default=None, ge=1, le=10**12)
    max_proposals: int | None = Field(default=None, ge=0, le=10**12)
    max_perf_calls: int | None = Field(default=None, ge=0, le=10**12)
    max_benchmark_calls: int | None = Field(default=None, ge=0, le=10**12)
    max_rounds: int | None = Field(default=None, ge=0, le=10**12)
    max_rlm_iterations: int | None = Field(default=None, ge=0, le=10**12)
    max_llm_tokens: int | None = Field(default=None, ge=0, le=10**12)
    max_llm_cost_usd: float | None = Field(default=None, ge=0, le=10**12)
    max_wall_clock_s: float | None = Field(default=None, ge=0, le=10**12)
    patience: int | None = Field(default=None, ge=1, le=10**12)


class Optimization(FrozenModel):
    """`optimization:`."""

    objective: Literal["tokens_per_s_per_gpu"] = "tokens_per_s_per_gpu"
    memory_safety_margin: float = Field(default=0.10, ge=0, lt=1)
    hbm_capacity_gb: float = Field(default=192.0, gt=0, le=1e6)
    budget: FileBudget = FileBudget()
    axes: AxisToggles = AxisToggles()
    pinned: dict[str, AxisValue] = Field(default_factory=dict)
    max_gbs: int | None = Field(default=None, gt=0, le=10**12)


class Agent(FrozenModel):
    """`agent:`."""

    llm: LlmSettings = LlmSettings()
    driver: Literal["auto", "rlm", "react", "planner"] | None = None
    prompt_extras: tuple[str, ...] = ()


class TargetClusterFile(FrozenModel):
    """The whole file. `stack`, `placement`, `moe_imbalance`, `memory_overheads` and `pinned` may
    also stand at the top."""

    target_cluster: TargetCluster = TargetCluster()
    available_for_benchmark: BenchmarkHost = BenchmarkHost()
    optimization: Optimization = Optimization()
    agent: Agent = Agent()
    stack: Stack | None = None
    placement: Literal["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"] | None = None
    moe_imbalance: MoeImbalance | float | None = None
    memory_overheads: MemoryOverheads | None = None
    pinned: dict[str, AxisValue] = Field(default_factory=dict)
