from typing import Any

import pytest

from projection.legality import LegalSpace, derive_axes
from schemas.legality import Axis, Violation
from schemas.search import SearchSpec
from schemas.workload import Workload
from tests.builders import (
    cluster,
    deepseek_v3,
    llama_70b,
    mixtral_8x22b,
    search,
    small_dense,
    small_moe,
)

FOUR_GPUS = cluster(1, gpus_per_node=4)


def why_not(axis: Axis, value: Any) -> Violation:
    return next(absent.violation for absent in axis.absent if absent.value == value)


@pytest.mark.parametrize("workload", [small_dense(), small_moe(ep=2)])
def test_values_are_exactly_those_of_legal_trials(workload: Workload) -> None:
    spec = search(fp8=False, recompute=False, dp_sharding=False)
    axes = derive_axes(workload, FOUR_GPUS, spec)
    trials = list(LegalSpace(workload, FOUR_GPUS, spec))
    for axis in axes.axes:
        occurring = {getattr(trial, axis.name) for trial in trials} - {None}
        assert set(axis.values) == occurring, axis.name
        assert len(axis.values) == len(occurring)
    pairs = {(trial.vpp, trial.pp_schedule) for trial in trials}
    assert pairs == {
        (vpp, name)
        for vpp, names in axes.schedules_by_vpp.items()
        for name in names
        if name != "auto"
    }


def test_mixtral_on_64_gpus() -> None:
    axes = derive_axes(mixtral_8x22b(), cluster(8), search())
    assert axes.axis("tp").values == (1, 2, 4, 8)
    assert axes.axis("pp").values == (1, 2, 4, 8)
    assert axes.axis("ep").values == (1, 2, 4, 8)
    assert axes.axis("cp").values == (1, 2, 4, 8)
    assert axes.axis("vpp").values == (1, 2, 4, 7)
    assert axes.axis("mbs").values == (1, 2, 4, 8, 16)
    assert axes.axis("pp").baseline == 4
    assert axes.schedules_by_vpp[1] == ("auto", "1f1b", "zero-bubble", "zb-heuristic", "ilp")
    assert axes.schedules_by_vpp[2] == (
        "auto",
        "interleaved",
        "zbv-formatted",
        "zbv-greedy-half",
        "zbv-greedy-min",
    )
    assert axes.schedules_by_vpp[7] == ("auto", "interleaved")


def test_absent_neighbours_say_why() -> None:
    axes = derive_axes(mixtral_8x22b(), cluster(8), search())
    assert why_not(axes.axis("tp"), 3).code == "tp_kv_groups"
    assert why_not(axes.axis("tp"), 16).code == "tp_exceeds_node"
    assert "leaves 8 idle" in why_not(axes.axis("pp"), 14).reason
    assert why_not(axes.axis("ep"), 16).code == "ep_experts"
    assert why_not(axes.axis("vpp"), 3).code == "vpp_splits_layers_unevenly"
    assert why_not(axes.axis("mbs"), 32).code == "mbs_not_power_of_two"
    assert why_not(axes.axis("recompute_num_layers"), 57).code == "recompute_exceeds_stage"


def test_a_dense_model_has_no_moe_axes_to_move() -> None:
    axes = derive_axes(llama_70b(), cluster(4), search())
    assert axes.axis("ep").values == (1,)
    assert axes.axis("use_turbo_deepep").values == (False,)
    assert why_not(axes.axis("ep"), 8).code == "ep_needs_moe"
    assert why_not(axes.axis("sync_free_stage"), 2).code == "sync_free_needs_moe"


def test_a_toggled_axis_has_the_workloads_value_and_says_what_fixes_it() -> None:
    axes = derive_axes(mixtral_8x22b(), cluster(8), search(pp=False))
    axis = axes.axis("pp")
    assert (axis.values, axis.pinned) == ((4,), True)
    assert axis.pinned_by == "optimization.axes.pp: false"
    assert axes.axis("gbs").pinned_by == "optimization.axes.gbs: false"
    assert not axes.axis("tp").pinned


def test_a_pinned_axis_has_the_pinned_value_and_still_shows_the_baseline() -> None:
    axis = derive_axes(mixtral_8x22b(), cluster(8), search({"pp": 2})).axis("pp")
    assert (axis.values, axis.baseline, axis.pinned_by) == ((2,), 4, "pinned.pp")
    assert why_not(axis, 4).code == "axis_pinned"


def test_a_freed_global_batch_doubles_up_to_its_maximum() -> None:
    axes = derive_axes(mixtral_8x22b(), cluster(8), search(gbs=True))
    assert axes.axis("gbs").values == (128, 256, 512, 1024)
    limited = SearchSpec(axes=search(gbs=True).axes, max_gbs=300)
    assert derive_axes(mixtral_8x22b(), cluster(8), limited).axis("gbs").values == (128, 256)


def test_an_odd_micro_batch_of_the_workload_stays_in_its_axis() -> None:
    axes = derive_axes(llama_70b(mbs=3, gbs=96), cluster(4), search())
    assert 3 in axes.axis("mbs").values
    assert 3 not in derive_axes(llama_70b(), cluster(4), search()).axis("mbs").values


def test_a_baseline_value_that_no_legal_trial_has_is_shown_with_its_reason() -> None:
    """PP 16 × EP 8 does not fit on one node."""
    axis = derive_axes(deepseek_v3(gbs=256), cluster(1), search()).axis("pp")
    assert axis.baseline == 16
    assert 16 not in axis.values
    assert why_not(axis, 16).code == "world_not_tiled"


def test_an_unset_override_is_no_axis() -> None:
    axes = derive_axes(mixtral_8x22b(), cluster(8), search())
    with pytest.raises(KeyError):
        axes.axis("target_ep_size")
