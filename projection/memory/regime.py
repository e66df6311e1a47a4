"""Bytes per parameter, from the workload's own precision fields, and what shards them.

Megatron's mixed precision with Adam: 2 weight + 4 main gradient + 4 master + 4 + 4 moments = 18 B.
The distributed optimizer divides the last twelve by the group that shards them: data times context
parallel for dense parameters, the expert data-parallel group for routed experts. FSDP2 divides all
of it.
"""

from dataclasses import dataclass

from schemas.workload import Precision

DTYPE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


@dataclass(frozen=True, slots=True)
class BytesPerParameter:
    """Unsharded bytes of one trained parameter."""

    weight: float
    gradient: float
    master: float
    first_moment: float
    second_moment: float

    @property
    def optimizer(self) -> float:
        """Master weight and moments: what the distributed optimizer shards."""
        return self.master + self.first_moment + self.second_moment

    @property
    def total(self) -> float:
        """All of it."""
        return self.weight + self.gradient + self.optimizer


def bytes_per_parameter(precision: Precision) -> BytesPerParameter:
    """The regime a workload's precision fields describe.

    fp32 weights are their own master and their gradients fp32. Gradients reduced in bf16 are kept
    in bf16 (Megatron-LM `arguments.py`: it stops accumulating them in fp32). SGD keeps one moment
    (momentum); so does Muon, for the weight matrices it updates.
    """
    own_master = precision.params_dtype == "fp32"
    moments = DTYPE_BYTES[precision.exp_avg_dtype], DTYPE_BYTES[precision.exp_avg_sq_dtype]
    return BytesPerParameter(
        weight=DTYPE_BYTES[precision.params_dtype],
        gradient=DTYPE_BYTES[_gradient_dtype(precision)],
        master=0 if own_master else DTYPE_BYTES[precision.main_params_dtype],
        first_moment=moments[0],
        second_moment=moments[1] if precision.optimizer == "adam" else 0,
    )


def _gradient_dtype(precision: Precision) -> str:
    """Dtype of the gradient buffer."""
    if precision.params_dtype == "fp32":
        return "fp32"
    return "bf16" if precision.grad_reduce_in_bf16 else precision.main_grads_dtype


@dataclass(frozen=True, slots=True)
class Sharding:
    """What divides the states of dense parameters and of routed experts.

    `dense` and `expert` are the sizes of their data-parallel groups (data times context parallel;
    expert data parallel).
    """

    dense: int
    expert: int
    shards_optimizer: bool
    shards_weights: bool
    """FSDP2: weights, gradients and states."""

    @property
    def held(self) -> tuple[int, int]:
        """What divides (dense, expert) weights and gradients."""
        return (self.dense, self.expert) if self.shards_weights else (1, 1)

    @property
    def states(self) -> tuple[int, int]:
        """What divides (dense, expert) optimizer states."""
        sharded = self.shards_optimizer or self.shards_weights
        return (self.dense, self.expert) if sharded else (1, 1)
