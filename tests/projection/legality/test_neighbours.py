from typing import Any

import pytest
from hypothesis import given, settings

from projection.legality import LegalSpace, as_request, check, neighbours, normalise
from projection.legality.neighbours import Shapes
from schemas.legality import Neighbour
from schemas.trial import NormalTrial, TrialConfig
from schemas.workload import Workload
from tests.builders import cluster, deepseek_v3, llama_70b, mixtral_8x22b, search, small_moe
from tests.projection.legality.strategies import requests

SPACE = {
    "mixtral": (mixtral_8x22b(), 8),
    "llama": (llama_70b(), 4),
    "deepseek": (deepseek_v3(), 64),
}


def near(workload: Workload, nodes: int, **asked: Any) -> list[Neighbour]:
    return neighbours(TrialConfig(**asked), workload, cluster(nodes), search())


def test_a_value_between_two_legal_ones_is_one_step_from_each() -> None:
    first, second, *_ = near(*SPACE["mixtral"], mbs=3)
    assert (first.changed, first.distance) == ({"mbs": (3, 2)}, 1)
    assert (second.changed, second.distance) == ({"mbs": (3, 4)}, 1)


def test_a_misspelt_schedule_is_offered_in_its_right_spelling() -> None:
    offer = near(*SPACE["mixtral"], pp_schedule="zerobuble")[0]
    assert offer.changed == {"pp_schedule": ("zerobuble", "zero-bubble")}
    assert offer.config == TrialConfig(pp_schedule="zero-bubble")


def test_folding_is_offered_where_a_replica_is_too_large() -> None:
    offer = near(*SPACE["mixtral"], tp=4, pp=8, ep=8)[0]
    assert offer.changed == {"etp": (4, 1)}


def test_the_stages_own_number_of_layers_is_offered() -> None:
    offer = near(*SPACE["mixtral"], recompute_granularity="full", recompute_num_layers=40)[0]
    assert offer.changed == {"recompute_num_layers": (40, 14)}


def test_either_side_of_a_contradiction_is_offered() -> None:
    offers = near(*SPACE["mixtral"], pp_schedule="zerobubble", recompute_granularity="full")
    assert offers[0].changed == {"pp_schedule": ("zero-bubble", "1f1b")}
    assert any(offer.config == TrialConfig(pp_schedule="zero-bubble") for offer in offers)


def test_a_request_that_contradicts_itself_has_the_contradiction_named() -> None:
    offer = near(*SPACE["mixtral"], enable_zero_bubble=True, vpp=2)[0]
    assert offer.changed["enable_zero_bubble"] == (True, None)
    assert offer.distance >= 1


def test_undoing_a_change_gives_the_workload_back() -> None:
    """FSDP2 is excluded by pp and ep: the distributed optimizer it displaced comes back."""
    offer = near(*SPACE["mixtral"], use_torch_fsdp2=True)[0]
    assert offer.config == TrialConfig()


def test_pinned_axes_are_not_moved() -> None:
    offers = neighbours(
        TrialConfig(tp=3), mixtral_8x22b(), cluster(8), search({"pp": 4}, ep=False), limit=20
    )
    assert {normalise(offer.config, mixtral_8x22b()).pp for offer in offers} == {4}
    assert {normalise(offer.config, mixtral_8x22b()).ep for offer in offers} == {8}


def test_nothing_is_offered_where_nothing_is_legal() -> None:
    workload = small_moe(gbs=7)
    there = cluster(1, gpus_per_node=4)
    assert neighbours(TrialConfig(), workload, there, search({"tp": 1, "pp": 1, "cp": 1})) == []


@given(requests)
@settings(max_examples=25, deadline=None)
def test_offers_are_legal_sorted_and_repeatable(request: TrialConfig) -> None:
    workload, there, spec = small_moe(ep=2), cluster(1), search(recompute=False)
    offers = neighbours(request, workload, there, spec, limit=4)
    assert len(offers) == 4
    assert [offer.distance for offer in offers] == sorted(offer.distance for offer in offers)
    for offer in offers:
        assert check(offer.config, workload, there, spec).legal
    assert neighbours(request, workload, there, spec, limit=4) == offers


LADDERS = {"tp": (1, 2, 4), "ep": (1, 2, 4), "mbs": (1, 2, 4, 8, 16)}


def test_no_legal_trial_is_nearer_than_the_first_offer() -> None:
    """Against every trial of a small space that differs in tp, ep and mbs only."""
    workload, there, spec = small_moe(), cluster(1, gpus_per_node=4), search(recompute=False)
    asked = normalise(TrialConfig(tp=1, ep=4, mbs=16), workload)
    others = {
        trial
        for trial in LegalSpace(workload, there, spec, only={"pp": (1,), "fp8": ("none",)})
        if trial.model_copy(update={knob: getattr(asked, knob) for knob in LADDERS}) == asked
    }
    assert asked not in others
    offer = neighbours(as_request(asked), workload, there, spec, limit=1)[0]
    assert offer.distance == min(_steps(asked, trial) for trial in others) == 2


def _steps(one: NormalTrial, other: NormalTrial) -> int:
    return sum(
        abs(places.index(getattr(one, knob)) - places.index(getattr(other, knob)))
        for knob, places in LADDERS.items()
    )


@pytest.mark.parametrize("name", SPACE)
def test_as_many_neighbours_as_asked_are_found_in_a_large_space(name: str) -> None:
    assert len(near(*SPACE[name], tp=3, pp=5, mbs=99)) == 3


def test_a_shape_is_reached_by_the_least_change() -> None:
    workload = mixtral_8x22b()
    space = LegalSpace(workload, cluster(8), search())
    shapes = Shapes(workload.baseline, space)
    found = shapes.nearest(2, 2, 1, 8)
    assert found is not None
    assert found == workload.baseline.model_copy(update={"tp": 2, "pp": 2})
    assert shapes.nearest(3, 2, 1, 8) is None
