"""The memory of trials of one workload on one cluster, memoised by what each part depends on."""

from collections.abc import Callable, Hashable

from projection.degrees import Degrees
from projection.memo import LARGE_LIMIT, remember
from projection.memory.layers import LayerMemory, layer_memory
from projection.memory.live import LiveMemory, live_memory
from projection.memory.overheads import communicators
from projection.memory.rank import ChunkMemory, RankParameters, chunk_memory, rank_parameters
from projection.memory.regime import Sharding, bytes_per_parameter
from projection.memory.report import MemoryContext, MemoryReport, memory_report
from projection.memory.static import Fp8Weights
from projection.schedules import PipelineSchedule
from projection.work.catalog import Catalog, LayerKey, recompute_key, stage_key
from projection.work.chunk import ChunkPlan
from projection.work.context import Shapes
from projection.work.imbalance import moe_imbalance
from projection.work.layer import LayerKind
from projection.work.recompute import NOTHING, SelectiveRecompute, selective
from projection.work.shape import WorkShape
from schemas.cluster import Cluster
from schemas.trial import NormalTrial
from schemas.workload import Workload


def sharding_of(trial: NormalTrial, degrees: Degrees) -> Sharding:
    """What divides states: dp × cp ranks for dense parameters, edp for routed experts."""
    return Sharding(
        dense=degrees.dp * trial.cp,
        expert=degrees.edp,
        shards_optimizer=trial.use_distributed_optimizer,
        shards_weights=trial.use_torch_fsdp2,
    )


def fp8_weights(trial: NormalTrial, workload: Workload) -> Fp8Weights:
    """FP8 copies of linear weights: one byte, and one more where the transpose is cached."""
    if trial.fp8 == "none":
        return Fp8Weights()
    copies = 2.0 if workload.precision.fp8_weight_transpose_cache else 1.0
    return Fp8Weights(copies, workload.precision.fp8_param_gather)


class MemoryModel:
    """Memory per pipeline rank of any trial of one workload on one cluster."""

    def __init__(self, workload: Workload, cluster: Cluster, catalog: Catalog) -> None:
        self._workload = workload
        self._cluster = cluster
        self._catalog = catalog
        self.shapes = Shapes(workload)
        self._regime = bytes_per_parameter(workload.precision)
        self._layers: dict[tuple[WorkShape, SelectiveRecompute], dict[LayerKind, LayerMemory]] = {}
        self._priced: dict[tuple[LayerKey, SelectiveRecompute], LayerMemory] = {}
        self._chunks: dict[tuple[ChunkPlan, WorkShape, SelectiveRecompute], ChunkMemory] = {}
        self._parameters: dict[tuple[Hashable, ...], tuple[RankParameters, ...]] = {}
        self._reports: dict[tuple[Hashable, ...], MemoryReport] = {}

    def report(
        self,
        trial: NormalTrial,
        degrees: Degrees,
        schedule: PipelineSchedule,
        imbalance: float | None = None,
    ) -> MemoryReport:
        """Memory of every rank while `schedule` runs. Raises WorkloadError without a pipeline.

        `imbalance`: expert load of the busiest rank over the mean, else the setting's.
        """
        load = self.imbalance(trial) if imbalance is None else imbalance
        shape = self.shapes.of(trial, routed_load=load)
        context = self.context(trial, degrees, shape)
        key = (
            shape,
            stage_key(trial),
            recompute_key(trial),
            schedule,
            context.sharding,
            context.fp8,
            context.communicators,
        )
        found = self._reports.get(key)
        if found is None:
            ranks = list(
                zip(self.parameters(trial, shape), self.chunk_rows(trial, shape), strict=True)
            )
            found = memory_report(ranks, schedule, context)
            remember(self._reports, key, found, LARGE_LIMIT)
        return found

    def live(self, trial: NormalTrial, degrees: Degrees, schedule: PipelineSchedule) -> LiveMemory:
        """What `report` is made of over time; raises as it does."""
        shape = self.shapes.of(trial, routed_load=self.imbalance(trial))
        chunks = self.chunk_rows(trial, shape)
        return live_memory(self.report(trial, degrees, schedule), schedule, chunks)

    def imbalance(self, trial: NormalTrial) -> float:
        """Expert load of the busiest rank over the mean that `trial` is projected with."""
        return moe_imbalance(self._workload, self._cluster, trial.ep).layer

    def context(self, trial: NormalTrial, degrees: Degrees, shape: WorkShape) -> MemoryContext:
        """What all ranks of `trial` share."""
        architecture, cluster = self._workload.architecture, self._cluster
        exchange_ranks = trial.ep * trial.etp if architecture.is_moe else 1
        deepep = exchange_ranks > 1 and shape.dispatcher == "deepep"
        return MemoryContext(
            architecture=architecture,
            precision=self._workload.precision,
            regime=self._regime,
            sharding=sharding_of(trial, degrees),
            fp8=fp8_weights(trial, self._workload),
            settings=cluster.memory_overheads,
            communicators=communicators(
                trial, degrees, cluster.world_size, is_moe=architecture.is_moe
            ),
            deepep_ranks=(exchange_ranks, cluster.gpus_per_node) if deepep else None,
        )

    def parameters_key(self, trial: NormalTrial, shape: WorkShape) -> tuple[Hashable, ...]:
        """What `parameters` depends on."""
        return (shape.tp, shape.ep, shape.etp, shape.padded_vocab, stage_key(trial))

    def parameters(self, trial: NormalTrial, shape: WorkShape) -> tuple[RankParameters, ...]:
        """Parameters of every rank on one GPU."""
        key = self.parameters_key(trial, shape)
        found = self._parameters.get(key)
        if found is None:
            stages = self._catalog.stages(trial)
            layer_of = self.layers(shape, NOTHING)
            found = tuple(
                rank_parameters(self._workload.architecture, stages, rank, layer_of)
                for rank in range(trial.pp)
            )
            remember(self._parameters, key, found)
        return found

    def layers(
        self, shape: WorkShape, recompute: SelectiveRecompute
    ) -> Callable[[LayerKind], LayerMemory]:
        """Memory of one layer of any kind in `shape`, as a function of the kind."""
        key = (shape, recompute)
        seen = self._layers.get(key)
        known = remember(self._layers, key, {}) if seen is None else seen

        def layer_of(kind: LayerKind) -> LayerMemory:
            found = known.get(kind)
            if found is None:
                found = self._layer(kind, shape, recompute)
                known[kind] = found
            return found

        return layer_of

    def _layer(
        self, kind: LayerKind, shape: WorkShape, recompute: SelectiveRecompute
    ) -> LayerMemory:
        """Memory of one layer, shared by all shapes that agree in what its kind depends on."""
        layer_key = self._catalog.key(kind, shape)
        key = (layer_key, recompute)
        found = self._priced.get(key)
        if found is None:
            work = self._catalog.work(layer_key)
            found = layer_memory(self._workload.architecture, layer_key[1], work, recompute)
            remember(self._priced, key, found)
        return found

    def chunk_rows(
        self, trial: NormalTrial, shape: WorkShape
    ) -> tuple[tuple[ChunkMemory, ...], ...]:
        """Per-microbatch bytes of every [rank][chunk]; chunks with one plan are one."""
        recompute = selective(trial)
        layer_of = self.layers(shape, recompute)
        known = self._chunks

        def fold(plan: ChunkPlan) -> ChunkMemory:
            key = (plan, shape, recompute)
            found = known.get(key)
            return remember(known, key, chunk_memory(plan, layer_of)) if found is None else found

        return tuple(tuple(map(fold, row)) for row in self._catalog.plans(trial))
