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
from projection.operations import AttentionCore, Collective, Gemm, MemoryPass
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
        factor = self.achievable.gemm_fp8 if op.dtype == "fp8" else self.achievable.gemm_bf16
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

    def collective(self, op: Collective) -> Priced:
        """The fastest algorithm and protocol for `op` on the group that performs it."""
        return self.collective_on(op, self.placement.group(op.group))

    def collective_on(self, op: Collective, group: Group) -> Priced:
        """As `collective`, on a group the caller names."""
        key = (op.kind, op.num_bytes, group)
        known = self._priced.get(key)
        if known is not None:
            return known
        assert self._collectives is not None
        priced = self._collectives.price(op.kind, op.num_bytes, group)
        if len(self._priced) >= MEMO_LIMIT:
            self._priced.clear()
        self._priced[key] = priced
        return priced
