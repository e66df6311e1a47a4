"""One place where an operation becomes milliseconds: the models, and the derates on top of them.

The GEMM, attention and collective models work at peak clock and data-sheet bandwidth. The factors
of `Achievable` enter here and nowhere else (link derates enter inside the collective models, which
are handed the same object).
"""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Final

from projection.attention import attention_backward_ms, attention_forward_ms
from projection.collectives import Collectives, Priced
from projection.gemm import GemmModel
from projection.operations import AttentionCore, Collective, Gemm, MemoryPass, Operation
from projection.placement import Group, Placement
from schemas.cluster import Network
from schemas.gpu import Achievable, GpuProfile

MEMO_LIMIT: Final = 200_000
"""Entries a memo may hold before it is emptied; a whole search stays far below it."""


@dataclass(frozen=True, slots=True)
class KernelModels:
    """Prices operations of one GPU type in one placement.

    `with_placement` gives the same models for another placement and shares what was priced: the
    keys say everything a price depends on.
    """

    gpu: GpuProfile
    achievable: Achievable
    gemm: GemmModel
    network: Network
    placement: Placement
    _collectives: Collectives | None = field(default=None, repr=False, compare=False)
    _memo: dict[Hashable, float] = field(default_factory=dict, repr=False, compare=False)
    _priced: dict[Hashable, Priced] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self._collectives is None:
            object.__setattr__(self, "_collectives", Collectives(self.network, self.achievable))

    def with_placement(self, placement: Placement) -> "KernelModels":
        """These models for another placement, sharing the memo."""
        return replace(self, placement=placement)

    def gemm_ms(self, op: Gemm) -> float:
        """One GEMM: the model's time over the achieved fraction of its rate, and the launch gap."""
        factor = gemm_factor(op, self.achievable)
        modelled = self.gemm.time_ms(
            op.m, op.n, op.k, batch=op.batch, dtype=op.dtype, layout=op.layout
        )
        return modelled / factor + self.achievable.kernel_launch_us * 1e-3

    def attention_ms(self, op: AttentionCore, backward: bool) -> float:
        """The attention core of one microbatch, forward or backward, launch gap included."""
        key = (
            backward,
            op.batch,
            op.heads,
            op.kv_heads,
            op.seq_q,
            op.seq_kv,
            op.d_qk,
            op.d_v,
            op.causal,
            op.window,
        )
        known = self._memo.get(key)
        if known is not None:
            return known
        launch_ms = self.achievable.kernel_launch_us * 1e-3
        factor = self.achievable.attention
        if backward:
            factor = self.achievable.attention_backward or factor
            time_ms = attention_backward_ms(op, self.gpu) / factor + launch_ms
        else:
            time_ms = attention_forward_ms(op, self.gpu) / factor + launch_ms
        if len(self._memo) >= MEMO_LIMIT:
            self._memo.clear()
        self._memo[key] = time_ms
        return time_ms

    def pass_ms(self, op: MemoryPass) -> float:
        """HBM traffic at the achieved fraction of its bandwidth, plus a gap per kernel."""
        gb_per_s = self.gpu.hbm_gb_per_s * self.achievable.hbm
        return (
            op.num_bytes / gb_per_s * 1e-6 + op.launches * self.achievable.kernel_launch_us * 1e-3
        )

    def optimizer_ms(self, num_bytes: float) -> float:
        """Optimizer traffic of `num_bytes` at the fraction of HBM that optimizers reach."""
        return num_bytes / (self.gpu.hbm_gb_per_s * self.achievable.optimizer_hbm) * 1e-6

    def host_ms(self, op: Operation) -> float:
        """Host time to launch `op` from an eager framework."""
        return host_operations(op) * self.achievable.host_launch_us * 1e-3

    def collective(self, op: Collective) -> Priced:
        """The fastest algorithm and protocol for `op` on the group that performs it."""
        return self.collective_on(op, self.placement.group(op.group))

    def collective_on(self, op: Collective, group: Group) -> Priced:
        """As `collective`, on a group the caller names."""
        key = (op.kind, op.num_bytes, group, op.forwarding)
        known = self._priced.get(key)
        if known is not None:
            return known
        assert self._collectives is not None
        forwarding = op.forwarding
        crossing = None if forwarding is None else forwarding.crossing_bytes(group.num_nodes)
        priced = self._collectives.price(op.kind, op.num_bytes, group, crossing)
        if len(self._priced) >= MEMO_LIMIT:
            self._priced.clear()
        self._priced[key] = priced
        return priced


LINEAR_OPERATIONS: Final = 14.2
"""Eager operations whose host time one GEMM of a training framework's linear layer takes.

Transformer Engine's layer forward and backward, three GEMMs of 1024 x 1024 x 1024 on H100, takes
573.8 us (NVIDIA/TransformerEngine issue 445): three times 14.2 of the 13.48 us that
`host_launch_us` is there. Attention modules are counted alike."""
PLAIN_OPERATIONS: Final = 4.3
"""The same for torch's linear layer: 175.7 us (same issue). Collectives are counted alike."""
EXPERT_OPERATIONS: Final = 3.0
"""More for each expert of a grouped layer that loops over them: a slice, an allocation, a launch
(NVIDIA/TransformerEngine issue 1499 names them as its overhead)."""


def host_operations(op: Operation) -> float:
    """Eager operations that launching `op` costs the host: one per elementwise kernel."""
    if isinstance(op, MemoryPass):
        return float(op.launches)
    if isinstance(op, AttentionCore):
        return LINEAR_OPERATIONS
    if isinstance(op, Gemm) and op.call != "plain":
        loops = op.batch if op.call == "grouped" else 0
        return LINEAR_OPERATIONS + EXPERT_OPERATIONS * loops
    return PLAIN_OPERATIONS


def gemm_factor(op: Gemm, achievable: Achievable) -> float:
    """Achieved fraction of the GEMM model's rate, by precision, direction and kind of kernel.

    Falls back from the particular to the general: backward to forward, grouped to dense. One expert
    per GPU has published figures of its own in bf16 only, where libraries run it as a plain GEMM.
    """
    a, backward, fp8 = achievable, op.layout != "TN", op.dtype == "fp8"
    dense = a.gemm_fp8 if fp8 else a.gemm_bf16
    if backward:
        dense = (a.gemm_fp8_backward if fp8 else a.gemm_bf16_backward) or dense
    if op.call != "grouped":
        return dense
    if fp8:
        grouped = a.grouped_fp8_backward if backward else a.grouped_fp8
        alone = a.one_expert_fp8_backward if backward else a.one_expert_fp8
        return (alone if op.batch == 1 else None) or grouped or dense
    if op.batch == 1:
        return (a.one_expert_bf16_backward if backward else a.one_expert_bf16) or dense
    return (a.grouped_bf16_backward if backward else a.grouped_bf16) or dense
