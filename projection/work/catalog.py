"""Every layer description a workload needs, built once per kind and relevant shape."""

from collections.abc import Hashable

from projection.memo import LARGE_LIMIT, remember
from projection.operations import LayerWork
from projection.stages import StageMap, stage_map
from projection.work.chunk import ChunkPlan, chunk_plan
from projection.work.context import relevant_shape
from projection.work.layer import LayerKind, layer_work
from projection.work.shape import WorkShape
from schemas.architecture import Architecture
from schemas.trial import NormalTrial

LayerKey = tuple[LayerKind, WorkShape]


class Catalog:
    """Memoised descriptions of one architecture: its layers and its stages."""

    def __init__(self, architecture: Architecture) -> None:
        self.architecture = architecture
        self._keys: dict[LayerKey, LayerKey] = {}
        self._work: dict[LayerKey, LayerWork] = {}
        self._stages: dict[tuple[Hashable, ...], StageMap] = {}
        self._one: dict[ChunkPlan, ChunkPlan] = {}
        self._plans: dict[tuple[Hashable, ...], tuple[tuple[ChunkPlan, ...], ...]] = {}

    def key(self, kind: LayerKind, shape: WorkShape) -> LayerKey:
        """What layers of `kind` depend on, of `shape`: the key to memoise their numbers by."""
        asked = (kind, shape)
        found = self._keys.get(asked)
        if found is None:
            found = (kind, relevant_shape(shape, kind))
            remember(self._keys, asked, found)
        return found

    def work(self, key: LayerKey) -> LayerWork:
        """The description of a layer under a key of this catalog."""
        found = self._work.get(key)
        if found is None:
            kind, shape = key
            found = layer_work(self.architecture, shape, kind)
            remember(self._work, key, found, LARGE_LIMIT)
        return found

    def stages(self, trial: NormalTrial) -> StageMap:
        """The chunks of `trial`. Raises WorkloadError when they cannot be built."""
        key = stage_key(trial)
        found = self._stages.get(key)
        if found is None:
            found = stage_map(
                self.architecture,
                trial.pp_schedule,
                trial.pp,
                trial.vpp,
                layout=trial.layout,
                first_stage_layers=trial.first_stage_layers,
                last_stage_layers=trial.last_stage_layers,
            )
            remember(self._stages, key, found)
        return found

    def plans(self, trial: NormalTrial) -> tuple[tuple[ChunkPlan, ...], ...]:
        """The plan of every [rank][chunk]. Raises WorkloadError when stages cannot be built."""
        key = (stage_key(trial), recompute_key(trial))
        found = self._plans.get(key)
        if found is None:
            one = self._one
            rows = [
                [chunk_plan(self.architecture, trial, chunk) for chunk in row]
                for row in self.stages(trial).chunks
            ]
            # Equal plans are one object, which finds itself in a dictionary without comparing.
            found = tuple(
                tuple(one.get(plan) or remember(one, plan, plan) for plan in row) for row in rows
            )
            remember(self._plans, key, found)
        return found


def stage_key(trial: NormalTrial) -> tuple[Hashable, ...]:
    """What a trial's stages depend on."""
    return (
        trial.pp_schedule,
        trial.pp,
        trial.vpp,
        trial.layout,
        trial.first_stage_layers,
        trial.last_stage_layers,
    )


def recompute_key(trial: NormalTrial) -> tuple[Hashable, ...]:
    """What a trial's recomputation depends on."""
    return (
        trial.recompute_granularity,
        trial.recompute_method,
        trial.recompute_num_layers,
        trial.recompute_layer_ids,
        trial.recompute_modules,
    )
