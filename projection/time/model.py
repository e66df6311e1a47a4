"""The time of trials of one workload on one cluster, memoised by what each part depends on."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from projection.degrees import Degrees, placed, placed_sizes
from projection.kernels import KernelModels
from projection.memo import remember
from projection.memory.model import MemoryModel, fp8_weights, sharding_of
from projection.memory.regime import Sharding, bytes_per_parameter
from projection.operations import Collective
from projection.placement import Group, consecutive
from projection.schedules import P2P, PipelineSchedule, Timeline, build, simulate
from projection.time.chunks import (
    ChunkTimes,
    TimesOf,
    chunk_times,
)
from projection.time.data_parallel import (
    DataParallel,
    RankMessages,
    data_parallel_settings,
    exposed_gather,
    exposed_reduce,
    rank_messages,
    rank_windows,
)
from projection.time.fsdp import NO_FSDP, FsdpTimes, fsdp_times
from projection.time.iteration import (
    PipelineTimes,
    durations_of,
    exposed_by_name,
    p2p_delays,
    pipeline_times,
)
from projection.time.layers import LayerPricing, LayerTimes, layer_times
from projection.time.muon import matrices_of, orthogonalisation_ms
from projection.time.optimizer import optimizer_step_ms
from projection.work.catalog import Catalog, LayerKey, recompute_key, stage_key
from projection.work.chunk import ChunkPlan
from projection.work.imbalance import moe_imbalance
from projection.work.layer import LayerKind
from projection.work.recompute import NOTHING, SelectiveRecompute, selective
from projection.work.shape import WorkShape
from schemas.cluster import Cluster
from schemas.trial import NormalTrial
from schemas.workload import Workload


@dataclass(frozen=True, slots=True)
class TimeReport:
    """Where the milliseconds of one iteration go; `breakdown_ms` sums to `iteration_ms`."""

    breakdown_ms: dict[str, float]
    iteration_ms: float
    bubble_ratio: float
    comm_ms: dict[str, float]
    comm_algorithms: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Pipeline:
    """A trial's pipeline with everything later parts need of it."""

    schedule: PipelineSchedule
    times: PipelineTimes
    chunks: tuple[tuple[ChunkTimes, ...], ...]
    p2p: P2P
    comm_ms: dict[str, float]
    comm_algorithms: dict[str, str]


CHUNK_LIMIT: Final = 32_768
"""Priced chunks that all views together hold before they are dropped: some 60 MB."""


@dataclass(frozen=True, slots=True)
class _View:
    """Layers and chunks of one shape, recompute setting and placement, priced when first asked."""

    times_of: TimesOf
    chunks: dict[ChunkPlan, ChunkTimes]


class TimeModel:
    """Iteration time of any trial of one workload on one cluster."""

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        catalog: Catalog,
        memory: MemoryModel,
        models: KernelModels,
    ) -> None:
        self._workload = workload
        self._cluster = cluster
        self._catalog = catalog
        self._memory = memory
        self._models = models
        self._placed: dict[tuple[int, ...], KernelModels] = {}
        self._layers: dict[tuple[Hashable, ...], LayerTimes] = {}
        self._views: dict[tuple[Hashable, ...], _View] = {}
        self._chunks_in_views = 0
        self._pipelines: dict[tuple[Hashable, ...], _Pipeline] = {}
        self._steps: dict[tuple[Hashable, ...], float] = {}
        self._dp_messages: dict[tuple[Hashable, ...], tuple[RankMessages, ...]] = {}

    def report(self, trial: NormalTrial, degrees: Degrees) -> TimeReport:
        """Time of one iteration. Raises WorkloadError or ScheduleError without a pipeline."""
        load = moe_imbalance(self._workload, self._cluster, trial.ep).pooled
        shape = self._memory.shapes.of(trial, routed_load=load)
        models = self._models_for(trial, degrees)
        pipeline = self._pipeline(trial, degrees, shape, models)
        breakdown = dict(pipeline.times.breakdown_ms)
        comm, algorithms = dict(pipeline.comm_ms), dict(pipeline.comm_algorithms)
        extra = self._data_parallel(trial, shape, pipeline, models, algorithms)
        breakdown |= extra
        comm |= {name: value for name, value in extra.items() if value}
        breakdown["optimizer"] = self._optimizer(trial, degrees, shape, models)
        breakdown["iteration_overhead"] = models.achievable.iteration_overhead_ms
        breakdown = {name: value for name, value in breakdown.items() if value}
        return TimeReport(
            breakdown_ms=breakdown,
            iteration_ms=sum(breakdown.values()),
            bubble_ratio=pipeline.times.bubble_ratio,
            comm_ms={name: value for name, value in comm.items() if value},
            comm_algorithms={n: a for n, a in algorithms.items() if comm.get(n)},
        )

    def timeline(self, trial: NormalTrial, degrees: Degrees) -> Timeline:
        """The pipeline of one iteration, pass by pass; raises as `report` does."""
        pipeline = self._pipeline_of(trial, degrees)
        return simulate(pipeline.schedule, durations_of(pipeline.chunks), pipeline.p2p)

    def schedule(self, trial: NormalTrial, degrees: Degrees) -> PipelineSchedule:
        """The order that the pipeline runs; raises as `report` does."""
        return self._pipeline_of(trial, degrees).schedule

    def _pipeline_of(self, trial: NormalTrial, degrees: Degrees) -> _Pipeline:
        load = moe_imbalance(self._workload, self._cluster, trial.ep).pooled
        shape = self._memory.shapes.of(trial, routed_load=load)
        return self._pipeline(trial, degrees, shape, self._models_for(trial, degrees))

    def _models_for(self, trial: NormalTrial, degrees: Degrees) -> KernelModels:
        """Kernel models on the trial's rank placement."""
        key = placed_sizes(trial, degrees, self._workload.architecture)
        found = self._placed.get(key)
        if found is None:
            placement = placed(self._cluster, *key)
            found = self._models.with_placement(placement)
            remember(self._placed, key, found)
        return found

    def _expert_group(self, trial: NormalTrial, models: KernelModels) -> Group:
        """Ranks of the expert all-to-all: the trial's ep, or the size it asks to model."""
        group = models.placement.group("ep")
        target = trial.target_ep_size
        if target is None or target == trial.ep:
            return group
        node, pod = models.placement.node_size, models.placement.pod_size
        return consecutive(target, node, pod, stride=trial.etp)

    def _pipeline(
        self,
        trial: NormalTrial,
        degrees: Degrees,
        shape: WorkShape,
        models: KernelModels,
    ) -> _Pipeline:
        """The trial's pipeline, simulated once for all trials that share it."""
        expert_group = self._expert_group(trial, models)
        key = (
            shape,
            stage_key(trial),
            recompute_key(trial),
            degrees.num_microbatches,
            trial.use_torch_fsdp2,
            expert_group,
        )
        found = self._pipelines.get(key)
        if found is not None:
            return found
        schedule = build(trial.pp_schedule, trial.pp, trial.vpp, degrees.num_microbatches)
        pricing = LayerPricing(
            models,
            expert_group,
            schedule.splits_backward,
            models.achievable.a2a_overlap[trial.sync_free_stage],
            self._workload.cuda_graphs,
        )
        plans = self._catalog.plans(trial)
        view = self._view(shape, selective(trial), pricing)
        times_of = view.times_of

        def fsdp_of(kind: LayerKind) -> FsdpTimes:
            if not trial.use_torch_fsdp2:
                return NO_FSDP
            parameters = self._memory.layers(shape, NOTHING)(kind).parameters
            return fsdp_times(kind, parameters, times_of(kind), models)

        # FSDP groups are the placement's, which the view does not know.
        known = {} if trial.use_torch_fsdp2 else view.chunks
        splits = schedule.splits_backward

        def times_of_chunk(plan: ChunkPlan) -> ChunkTimes:
            found = known.get(plan)
            if found is None:
                found = chunk_times(plan, times_of, fsdp_of, splits=splits)
                known[plan] = found
                self._count_chunk()
            return found

        chunks = tuple(tuple(map(times_of_chunk, row)) for row in plans)
        hidden = self._workload.architecture.hidden_size
        p2p, algorithms = p2p_delays(schedule, shape.residual_tokens, hidden, models)
        times = pipeline_times(schedule, chunks, p2p)
        comm = exposed_by_name(
            plans[times.busiest], degrees.num_microbatches, times_of, fsdp_of, algorithms
        )
        comm["pipeline_p2p"] = times.breakdown_ms.get("pipeline_p2p", 0.0)
        found = _Pipeline(times.schedule, times, chunks, p2p, comm, algorithms)
        return remember(self._pipelines, key, found)

    def _view(
        self, shape: WorkShape, recompute: SelectiveRecompute, pricing: LayerPricing
    ) -> "_View":
        """Times of layers and chunks in `shape`."""
        groups = self._groups(pricing)
        key = (shape, recompute, pricing.splits_backward, pricing.deepep_overlap, groups)
        found = self._views.get(key)
        if found is None:
            layers: dict[LayerKind, LayerTimes] = {}

            def times_of(kind: LayerKind) -> LayerTimes:
                times = layers.get(kind)
                if times is None:
                    times = self._layer(kind, shape, recompute, pricing)
                    layers[kind] = times
                return times

            found = remember(self._views, key, _View(times_of, {}))
        return found

    def _count_chunk(self) -> None:
        """Drop all views when they hold too many chunks: a memo of memos bounds only the outer."""
        self._chunks_in_views += 1
        if self._chunks_in_views > CHUNK_LIMIT:
            self._views.clear()
            self._chunks_in_views = 0

    def _groups(self, pricing: LayerPricing) -> tuple[Group, ...]:
        """The groups whose collectives a layer performs; experts' last."""
        placement = pricing.models.placement
        return (
            placement.group("tp"),
            placement.group("cp"),
            pricing.expert_group,
            placement.group("etp"),
        )

    def _layer(
        self,
        kind: LayerKind,
        shape: WorkShape,
        recompute: SelectiveRecompute,
        pricing: LayerPricing,
    ) -> LayerTimes:
        """Times of one layer, shared by all trials whose relevant shape and groups agree."""
        layer_key: LayerKey = self._catalog.key(kind, shape)
        groups = self._groups(pricing) if kind.moe else self._groups(pricing)[:2]
        overlap = pricing.deepep_overlap if kind.moe else 0.0
        key = (layer_key, recompute, pricing.splits_backward, overlap, groups)
        found = self._layers.get(key)
        if found is None:
            work = self._catalog.work(layer_key)
            found = layer_times(work, layer_key[1], recompute, pricing)
            remember(self._layers, key, found)
        return found

    def _data_parallel(
        self,
        trial: NormalTrial,
        shape: WorkShape,
        pipeline: _Pipeline,
        models: KernelModels,
        algorithms: dict[str, str],
    ) -> dict[str, float]:
        """Exposed data-parallel communication: the rank that finishes last decides."""
        exposed: dict[str, float] = {}
        if not trial.use_torch_fsdp2:
            settings = data_parallel_settings(trial, self._workload)
            rows = self._messages(trial, shape, settings, models)
            windows = rank_windows(
                pipeline.chunks,
                splits=trial.splits_backward,
                last_backward_ms=pipeline.times.last_backward_ms,
            )
            pairs = list(zip(rows, windows, strict=True))
            exposed["dp_grad_reduce"] = max(exposed_reduce(m, settings, w) for m, w in pairs)
            exposed["dp_param_gather"] = max(exposed_gather(m, settings, w) for m, w in pairs)
            for row in dict.fromkeys(rows):  # not a set: its order differs between processes
                algorithms.update(row.algorithms())
        exposed["tied_embedding_allreduce"] = self._tied_embeddings(
            trial, shape, models, algorithms
        )
        return exposed

    def _messages(
        self,
        trial: NormalTrial,
        shape: WorkShape,
        settings: DataParallel,
        models: KernelModels,
    ) -> tuple[RankMessages, ...]:
        """Data-parallel messages of every rank, priced once per sharding and placement."""
        ranks = self._memory.parameters(trial, shape)
        key = (
            stage_key(trial),
            shape.padded_vocab,
            (trial.tp, trial.cp, trial.ep, trial.etp),
            settings.distributed_optimizer,
            settings.gradient_bytes,
            settings.weight_bytes,
            settings.linear_weight_bytes,
        )
        found = self._dp_messages.get(key)
        if found is None:
            found = tuple(rank_messages(rank, settings, models) for rank in ranks)
            remember(self._dp_messages, key, found)
        return found

    def _tied_embeddings(
        self,
        trial: NormalTrial,
        shape: WorkShape,
        models: KernelModels,
        algorithms: dict[str, str],
    ) -> float:
        """All-reduce that keeps the two copies of a tied table equal, between its two ranks."""
        copies = max(rank.copies for rank in self._memory.parameters(trial, shape))
        if not copies:
            return 0.0
        stages = self._catalog.stages(trial)
        ends = stages.rank_of_embedding(), stages.rank_of_output()
        size = bytes_per_parameter(self._workload.precision).gradient * copies
        op = Collective("tied_embedding_allreduce", "allreduce", size, "pp")
        priced = models.collective_on(op, models.placement.p2p_group(*ends))
        algorithms[op.name] = f"{priced.algorithm}/{priced.protocol}"
        return priced.time_ms

    def _optimizer(
        self, trial: NormalTrial, degrees: Degrees, shape: WorkShape, models: KernelModels
    ) -> float:
        """The slowest rank's step: all wait for the gradient norm."""
        sharding = sharding_of(trial, degrees)
        # Weights that FSDP gathers are cast in the layers, after every gather.
        copies = 0.0 if sharding.shards_weights else fp8_weights(trial, self._workload).copies
        key = (self._memory.parameters_key(trial, shape), sharding, copies)
        found = self._steps.get(key)
        if found is None:
            regime = bytes_per_parameter(self._workload.precision)
            ranks = self._memory.parameters(trial, shape)
            steps = [optimizer_step_ms(rank, regime, sharding, copies, models) for rank in ranks]
            if self._workload.precision.optimizer == "muon":
                rows = self._catalog.plans(trial)
                more = [self._orthogonalisation(row, shape, sharding, models) for row in rows]
                steps = [step + extra for step, extra in zip(steps, more, strict=True)]
            found = max(steps)
            remember(self._steps, key, found)
        return found

    def _orthogonalisation(
        self,
        row: tuple[ChunkPlan, ...],
        shape: WorkShape,
        sharding: Sharding,
        models: KernelModels,
    ) -> float:
        """Muon's Newton-Schulz iterations over the layers of one rank, in ms."""
        catalog = self._catalog
        matrices = [
            group
            for plan in row
            for entry in plan.counts
            for group in matrices_of(catalog.work(catalog.key(entry.kind, shape)), entry.count)
        ]
        return orthogonalisation_ms(matrices, sharding, models)
