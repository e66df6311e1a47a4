"""Times of one layer: forward, input gradient, weight gradient, and what recomputation re-runs.

Exposed communication is decided here, where both sides are known: a tensor-parallel collective
hides behind its own linear layer's GEMMs, a ring step behind one block of attention, an expert
all-to-all behind the layer's compute where the dispatcher overlaps it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from projection.collectives import Priced
from projection.kernels import KernelModels
from projection.operations import (
    AttentionCore,
    Collective,
    Gemm,
    LayerWork,
    MemoryPass,
    ModuleWork,
    Operation,
)
from projection.placement import Group
from projection.time.cost import ZERO, Cost, total
from projection.time.graphs import replayed
from projection.work.recompute import SelectiveRecompute
from projection.work.shape import WorkShape
from schemas.workload import GraphScope


@dataclass(frozen=True, slots=True)
class ExposedCollective:
    """One collective of a layer: what of it no compute hides, and the algorithm that won."""

    name: str
    forward_ms: float
    backward_ms: float
    rerun_ms: float
    """Again in backward, where selective recomputation re-runs its module."""
    algorithm: str


FORWARD, BACKWARD = 0, 1

Exposed = dict[tuple[str, int, str, str], tuple[float, str]]
"""(module, direction, group, collective) → (exposed ms, winning algorithm)."""
Spent = dict[tuple[str, int], float]
"""(module, direction) → compute that hides a collective already, in ms: it hides no second one."""


@dataclass(frozen=True, slots=True)
class HostTimes:
    """Host time to launch one layer's kernels, in ms; what its syncs cost the GPU."""

    forward: float
    input_grad: float
    weight_grad: float
    rerun: float
    syncs: float
    """GPU time lost to synchronisations in forward; 0 where the host never waits."""


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """One microbatch through one layer on one GPU, in ms by class."""

    forward: Cost
    input_grad: Cost
    weight_grad: Cost
    rerun: Cost
    """Forward again of what selective recomputation re-runs, as recomputation."""
    collectives: tuple[ExposedCollective, ...]
    host: "HostTimes"

    @property
    def full_rerun(self) -> Cost:
        """Forward again of the whole layer, as recomputation."""
        return self.forward.as_recompute()


@dataclass(frozen=True, slots=True)
class LayerPricing:
    """What prices a layer: kernel models, the expert group, and how compute hides communication.

    `expert_group`: ranks of the expert all-to-all (the trial's target size may differ from ep).
    `splits_backward`: weight gradients run later, so nothing can hide behind them.
    `deepep_overlap`: fraction of a DeepEP all-to-all that compute can hide.
    `graphs`: what CUDA graphs replay.
    """

    models: KernelModels
    expert_group: Group
    splits_backward: bool
    deepep_overlap: float
    graphs: tuple[GraphScope, ...] = ()

    def collective(self, op: Collective) -> Priced:
        """`op` on the group that performs it."""
        if op.group == "ep":
            return self.models.collective_on(op, self.expert_group)
        return self.models.collective(op)


def layer_times(
    work: LayerWork, shape: WorkShape, recompute: SelectiveRecompute, pricing: LayerPricing
) -> LayerTimes:
    """Price `work`.

    Within a module a collective is exposed unless marked overlappable; then it hides behind that
    module's GEMMs (tensor parallel: in backward a reduction behind the weight gradient's, when
    that follows at once) or its attention core (ring).
    """
    exposed: Exposed = {}
    spent: Spent = {}
    forward, backward, weights = {}, {}, {}
    for module in work.modules:
        later = _compute(module.weight_grad, pricing, backward=True)
        forward[module.name] = _module_cost(module, ZERO, FORWARD, shape, pricing, exposed, spent)
        behind = ZERO if pricing.splits_backward else later
        backward[module.name] = _module_cost(
            module, behind, BACKWARD, shape, pricing, exposed, spent
        )
        weights[module.name] = later
    _hide_exchange(shape, pricing, forward, exposed, spent, FORWARD)
    _hide_exchange(shape, pricing, backward, exposed, spent, BACKWARD)
    reruns = [forward[m.name].as_recompute() for m in work.modules if recompute.is_rerun(m)]
    return LayerTimes(
        forward=total(forward.values()),
        input_grad=total(backward.values()),
        weight_grad=total(weights.values()),
        rerun=total(reruns) if reruns else ZERO,
        collectives=_by_name(exposed, recompute),
        host=_host_times(work, recompute, pricing),
    )


def _host_times(work: LayerWork, recompute: SelectiveRecompute, pricing: LayerPricing) -> HostTimes:
    """What launching the layer's operations costs the host."""

    models, graphs = pricing.models, pricing.graphs

    def launch(operations: Iterable[Operation]) -> float:
        return sum(models.host_ms(op) for op in operations)

    eager = [m for m in work.modules if not graphs or not replayed(graphs, m.name)]
    syncs = 0 if "full_iteration" in graphs else work.host_syncs
    return HostTimes(
        forward=sum(launch(m.forward) for m in eager),
        input_grad=sum(launch(m.input_grad) for m in eager),
        weight_grad=sum(launch(m.weight_grad) for m in eager),
        rerun=sum(launch(m.forward) for m in eager if recompute.is_rerun(m)),
        syncs=syncs * models.achievable.host_sync_us * 1e-3,
    )


def _by_name(exposed: Exposed, recompute: SelectiveRecompute) -> tuple[ExposedCollective, ...]:
    """Exposed times summed over the modules of a layer, per collective."""
    sums: dict[str, list[float]] = {}
    algorithms: dict[str, str] = {}
    for (module, direction, _, name), (time_ms, algorithm) in exposed.items():
        entry = sums.setdefault(name, [0.0, 0.0, 0.0])
        entry[direction] += time_ms
        if direction == FORWARD and module in recompute.reruns:
            entry[2] += time_ms
        algorithms.setdefault(name, algorithm)
    return tuple(
        ExposedCollective(name, forward, backward, rerun, algorithms[name])
        for name, (forward, backward, rerun) in sums.items()
    )


def _compute(operations: Iterable[Operation], pricing: LayerPricing, *, backward: bool) -> Cost:
    """Kernels of `operations` by class; collectives are left out."""
    gemm = attention = elementwise = 0.0
    models = pricing.models
    for op in operations:
        if isinstance(op, Gemm):
            gemm += models.gemm_ms(op)
        elif isinstance(op, MemoryPass):
            elementwise += models.pass_ms(op)
        elif isinstance(op, AttentionCore):
            attention += models.attention_ms(op, backward)
    return Cost(gemm=gemm, attention=attention, elementwise=elementwise)


def _module_cost(
    module: ModuleWork,
    behind: Cost,
    direction: int,
    shape: WorkShape,
    pricing: LayerPricing,
    exposed: Exposed,
    spent: Spent,
) -> Cost:
    """Compute of one direction of a module plus what its collectives expose.

    `behind`: compute that follows at once and may hide tensor-parallel collectives too.
    """
    operations = module.input_grad if direction else module.forward
    compute = _compute(operations, pricing, backward=direction == BACKWARD)
    windows = [compute.gemm, behind.gemm]
    times: dict[str, float] = {"tp": 0.0, "cp": 0.0, "ep": 0.0}
    exposes = False
    for op in operations:
        if not isinstance(op, Collective):
            continue
        exposes = True
        priced = pricing.collective(op)
        alone = priced.time_ms
        if op.overlappable and op.group == "tp":
            alone = _hidden_behind(alone, windows, _windows_of(op, direction, shape))
        elif op.overlappable and op.group == "cp":
            alone = max(0.0, alone - compute.attention / shape.cp)
        place = (module.name, direction)
        spent[place] = spent.get(place, 0.0) + priced.time_ms - alone
        times[op.group if op.group in times else "ep"] += alone
        key = (module.name, direction, op.group, op.name)
        before = exposed[key][0] if key in exposed else 0.0
        exposed[key] = (before + alone, f"{priced.algorithm}/{priced.protocol}")
    if not exposes:
        return compute
    gemm, attention, elementwise, *_ = compute
    return Cost(gemm, attention, elementwise, 0.0, times["tp"], times["cp"], times["ep"])


def _windows_of(op: Collective, direction: int, shape: WorkShape) -> tuple[int, ...]:
    """Which GEMMs hide a tensor-parallel collective: the module's own (0), those that follow (1).

    In backward the input is gathered again, for the weight gradient, behind the input gradient's
    GEMM; the input gradient is reduced when that GEMM has made it, so behind the weight gradient's
    (Megatron-Core, `LinearWithGradAccumulationAndAsyncCommunication`). Where GEMMs run in chunks
    with their collectives (`tp_comm_overlap`), behind either.
    """
    if direction == FORWARD or shape.tp_comm_overlap:
        return (0, 1)
    return (0,) if op.kind == "allgather" else (1,)


def _hidden_behind(time_ms: float, windows: list[float], usable: tuple[int, ...]) -> float:
    """What is left of `time_ms` behind the `usable` windows, whose compute is then taken."""
    for window in usable:
        hidden = min(time_ms, windows[window])
        windows[window] -= hidden
        time_ms -= hidden
    return time_ms


def _hide_exchange(
    shape: WorkShape,
    pricing: LayerPricing,
    costs: dict[str, Cost],
    exposed: Exposed,
    spent: Spent,
    direction: int,
) -> None:
    """Take what compute hides off the expert exchange of one direction, in place.

    DeepEP: min(overlap · exchange, the layer's attention and MLP compute). All-to-all with
    shared-expert overlap: behind the shared expert's compute. Compute that hides a ring step or a
    tensor-parallel collective is not there twice. Expert tensor parallelism's own collectives are
    part of DeepEP's exchange, which runs over both groups; behind an all-to-all they are not, and
    the experts wait for them.
    """
    parts = ("ep", "etp") if shape.dispatcher == "deepep" else ("ep",)
    sent: dict[str, float] = {}
    for (module, way, group, _), (time_ms, _) in exposed.items():
        if way == direction and group in parts:
            sent[module] = sent.get(module, 0.0) + time_ms
    exchange = sum(sent.values())
    if not exchange:
        return
    hidden = 0.0
    if shape.dispatcher == "deepep":
        free = _free_compute(costs, costs, spent, direction)
        hidden = min(pricing.deepep_overlap * exchange, free)
    elif shape.shared_expert_overlap:
        shared = [name for name in costs if name.startswith("shared_")]
        hidden = min(exchange, _free_compute(shared, costs, spent, direction))
    share = hidden / exchange
    for module, time_ms in sent.items():
        left = max(0.0, costs[module].expert_parallel - time_ms * share)
        costs[module] = costs[module]._replace(expert_parallel=left)
    for key, (time_ms, algorithm) in exposed.items():
        if key[1] == direction and key[2] in parts:
            exposed[key] = (time_ms * (1 - share), algorithm)


def _free_compute(
    modules: Iterable[str], costs: dict[str, Cost], spent: Spent, direction: int
) -> float:
    """Compute of `modules` in one direction that hides nothing yet, in ms."""
    free = [costs[name].compute - spent.get((name, direction), 0.0) for name in modules]
    return max(0.0, sum(free))
