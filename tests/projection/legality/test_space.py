"""The legal space against the definition: the product of all values, filtered by `check`."""

import time
from collections.abc import Mapping, Sequence
from itertools import islice, product
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projection.legality import LegalSpace, check, normalise, short_request
from schemas.cluster import Cluster
from schemas.search import SearchSpec
from schemas.trial import NormalTrial, Schedule, TrialConfig
from schemas.workload import Workload
from tests.builders import (
    a100,
    cluster,
    deepseek_v3,
    llama_70b,
    mixtral_8x22b,
    search,
    small_dense,
    small_moe,
)
from tests.projection.legality.strategies import requests

PINNED = {
    **dict.fromkeys(("tp", "pp", "ep", "cp", "mbs", "vpp", "pp_schedule", "recompute"), False),
    **dict.fromkeys(("fp8", "moe_communication", "cross_entropy_loss_fusion"), False),
    "dp_sharding": False,
}
"""All toggles off but for those a test frees."""
FOUR_GPUS = cluster(1, gpus_per_node=4)
SIZES = (1, 2, 3, 4, 8)
SCHEDULES: tuple[str, ...] = get_args(Schedule)


def freed(*toggles: str) -> SearchSpec:
    """A search that may move only these axes."""
    return search(**{**PINNED, **dict.fromkeys(toggles, True)})


def by_product(
    workload: Workload, there: Cluster, spec: SearchSpec, values: Mapping[str, Sequence[Any]]
) -> set[str]:
    """Ids of all legal trials among the product of `values`, asked one by one."""
    found = set()
    for combination in product(*values.values()):
        request = TrialConfig(**dict(zip(values, combination, strict=True)))
        if check(request, workload, there, spec).legal:
            found.add(normalise(request, workload).trial_id)
    return found


def ids(space: LegalSpace) -> set[str]:
    trials = [trial.trial_id for trial in space]
    assert len(set(trials)) == len(trials) == space.count()
    return set(trials)


@pytest.mark.parametrize("workload", [small_dense(), small_moe(), small_moe(tp=2, etp=2, ep=2)])
def test_parallel_shapes_are_all_there(workload: Workload) -> None:
    spec = freed("tp", "pp", "ep", "cp")
    values = {"tp": SIZES, "pp": SIZES, "ep": SIZES, "cp": (1, 2, 4), "etp": (None, 1, 2, 3, 4)}
    expected = by_product(workload, FOUR_GPUS, spec, values)
    assert len(expected) > 5
    assert ids(LegalSpace(workload, FOUR_GPUS, spec)) == expected


@pytest.mark.parametrize(
    "workload",
    [
        small_dense(),
        small_dense(mbs=3, gbs=24),
        small_dense(pp=2, vpp=3, pp_schedule="interleaved"),
        small_dense(pp=2, vpp=2, pp_schedule="zbv-formatted", layout="Et*2|t|t|t*2,L"),
    ],
)
def test_pipelines_and_batches_are_all_there(workload: Workload) -> None:
    spec = freed("pp", "vpp", "pp_schedule", "mbs")
    values = {
        "pp": SIZES,
        "vpp": (1, 2, 3, 4, 6),
        "pp_schedule": SCHEDULES,
        "mbs": (1, 2, 3, 4, 8, 16, 32),
    }
    expected = by_product(workload, FOUR_GPUS, spec, values)
    assert len(expected) > 5
    assert ids(LegalSpace(workload, FOUR_GPUS, spec)) == expected


@pytest.mark.parametrize(
    "workload",
    [
        small_dense(),
        small_dense(recompute_granularity="selective", recompute_modules=("mlp",)),
        small_dense(recompute_granularity="full", recompute_layer_ids=(0, 5)),
        small_dense(
            recompute_granularity="full", recompute_method="uniform", recompute_num_layers=9
        ),
    ],
)
def test_recompute_settings_are_all_there(workload: Workload) -> None:
    spec = freed("pp", "vpp", "pp_schedule", "recompute")
    values = {
        "pp": (1, 2),
        "vpp": (1, 3),
        "pp_schedule": ("1f1b", "interleaved", "zero-bubble", "zb-heuristic", "ilp"),
        "recompute_granularity": (None, "none", "selective", "full"),
        "recompute_method": (None, "block", "uniform"),
        "recompute_num_layers": (None, *range(10)),
    }
    expected = by_product(workload, FOUR_GPUS, spec, values)
    assert ids(LegalSpace(workload, FOUR_GPUS, spec)) == expected


@pytest.mark.parametrize(
    ("workload", "there"),
    [
        (small_moe(), FOUR_GPUS),
        (small_moe(use_torch_fsdp2=True, use_distributed_optimizer=False), FOUR_GPUS),
        (small_moe(), cluster(1, gpus_per_node=4, gpu=a100())),
        (small_moe(sync_free_stage=2, use_turbo_deepep=True, ep=2, target_ep_size=4), FOUR_GPUS),
        (small_dense(fp8="hybrid"), FOUR_GPUS),
    ],
)
def test_levers_are_all_there(workload: Workload, there: Cluster) -> None:
    spec = freed(
        "ep",
        "dp_sharding",
        "overlap_grad_reduce",
        "overlap_param_gather",
        "moe_communication",
        "fp8",
    )
    values = {
        "ep": (1, 2),
        "use_distributed_optimizer": (False, True),
        "use_torch_fsdp2": (False, True),
        "overlap_grad_reduce": (False, True),
        "overlap_param_gather": (False, True),
        "use_turbo_deepep": (False, True),
        "sync_free_stage": (0, 1, 2, 3),
        "fp8": ("none", "hybrid", "e4m3", "delayed"),
    }
    expected = by_product(workload, there, spec, values)
    in_space = {trial.trial_id for trial in LegalSpace(workload, there, spec) if trial.ep in (1, 2)}
    assert in_space == expected


def test_freed_global_batches_are_all_there() -> None:
    spec = SearchSpec(axes=freed("mbs", "gbs").axes, max_gbs=70)
    values = {"mbs": (1, 2, 4, 8, 16), "gbs": (8, 16, 24, 32, 48, 64, 128)}
    expected = by_product(small_dense(), FOUR_GPUS, spec, values)
    assert ids(LegalSpace(small_dense(), FOUR_GPUS, spec)) == expected
    assert {trial.gbs for trial in LegalSpace(small_dense(), FOUR_GPUS, spec)} == {16, 32, 64}


@pytest.mark.parametrize(
    ("workload", "nodes"), [(mixtral_8x22b(), 8), (llama_70b(), 4), (deepseek_v3(), 64)]
)
def test_what_the_space_yields_is_legal_and_in_normal_form(workload: Workload, nodes: int) -> None:
    there, spec = cluster(nodes), search()
    space = LegalSpace(workload, there, spec)
    for index in range(0, space.count(), space.count() // 150):
        trial = space[index]
        assert check(trial, workload, there, spec).violations == ()
        request = short_request(trial, workload)
        assert normalise(request, workload) == trial
        assert check(request, workload, there, spec).legal


@given(requests)
@settings(max_examples=200, deadline=None)
def test_every_legal_request_is_in_the_space(request: TrialConfig) -> None:
    workload, there, spec = small_moe(), cluster(1), search()
    trial = normalise(request, workload)
    if trial.target_ep_size is not None or not check(request, workload, there, spec).legal:
        return
    shape = {knob: (getattr(trial, knob),) for knob in ("tp", "pp", "ep", "mbs", "fp8", "vpp")}
    assert trial in set(LegalSpace(workload, there, spec, only=shape))


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_a_position_is_the_trial_that_iteration_reaches_there(data: st.DataObject) -> None:
    space = LegalSpace(small_dense(), FOUR_GPUS, search())
    position = data.draw(st.integers(0, min(5000, space.count() - 1)))
    assert space[position] == next(islice(iter(space), position, None))
    assert space[position - space.count()] == space[position]


def test_positions_outside_are_refused() -> None:
    space = LegalSpace(small_dense(), FOUR_GPUS, search())
    with pytest.raises(IndexError):
        space[space.count()]


def test_the_order_does_not_depend_on_counting_first() -> None:
    fresh = LegalSpace(small_moe(), FOUR_GPUS, search())
    counted = LegalSpace(small_moe(), FOUR_GPUS, search())
    counted.count()
    assert list(islice(fresh, 3000)) == list(islice(counted, 3000))


def test_iteration_starts_without_building_the_space() -> None:
    first: NormalTrial = next(iter(LegalSpace(deepseek_v3(), cluster(256), search())))
    assert first.tp == 1


def test_narrowing_keeps_exactly_what_has_the_values() -> None:
    only = {"fp8": ("none",), "recompute_method": ("block",), "pp": (1, 2)}
    spec = freed("tp", "pp", "ep", "fp8", "recompute")
    narrowed = LegalSpace(small_moe(), FOUR_GPUS, spec, only=only)
    expected = {
        trial.trial_id
        for trial in LegalSpace(small_moe(), FOUR_GPUS, spec)
        if trial.fp8 == "none" and trial.recompute_method != "uniform" and trial.pp in (1, 2)
    }
    assert expected
    assert ids(narrowed) == expected


def test_narrowing_a_knob_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="fp9"):
        LegalSpace(small_moe(), FOUR_GPUS, search(), only={"fp9": ("none",)})


def test_nothing_legal_is_an_empty_space() -> None:
    workload = small_dense(gbs=7)
    space = LegalSpace(workload, FOUR_GPUS, search({"tp": 1, "pp": 1, "cp": 1}))
    assert space.count() == 0
    assert list(space) == []


def test_a_large_space_is_counted_without_listing_it() -> None:
    assert LegalSpace(mixtral_8x22b(), cluster(8), search()).count() > 1_000_000


def test_a_million_gpus_are_counted_in_seconds_of_processor_time() -> None:
    """Minutes, were divisors looked for one number after another at every node of the space."""
    started = time.process_time()
    space = LegalSpace(mixtral_8x22b(gbs=1_000_000), cluster(125_000), search())
    assert space.count() > 1_000
    assert time.process_time() - started < 30


@pytest.mark.parametrize("knob", ["tp", "pp", "cp", "ep", "etp", "vpp", "mbs", "gbs"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_size_pinned_below_one_leaves_nothing_legal(knob: str, value: int) -> None:
    assert LegalSpace(mixtral_8x22b(), cluster(1), search({knob: value})).count() == 0
