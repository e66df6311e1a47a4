"""Knobs as typed or as JSON: every mistake is one line with the nearest right spelling."""

from typing import Any

import pytest

from schemas.errors import UserError
from schemas.trial import TrialConfig
from tasks.settings import asked_for, configured, parse_settings, trial_config
from tests.builders import cluster, mixtral_8x22b


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        ([], {}),
        (["pp=4", "fp8=hybrid"], {"pp": 4, "fp8": "hybrid"}),
        ([" vpp = 2 "], {"vpp": 2}),
        (["overlap_grad_reduce=false"], {"overlap_grad_reduce": False}),
        (["recompute_granularity=none"], {"recompute_granularity": "none"}),
        (["tp=null"], {}),
        (["schedule=zerobubble"], {"pp_schedule": "zerobubble"}),
        (["recompute=full", "recompute_layers=3"], {"recompute_granularity": "full",
                                                    "recompute_num_layers": 3}),
    ],
)  # fmt: skip
def test_assignments_are_typed(assignments: list[str], expected: dict[str, Any]):
    assert parse_settings(assignments) == TrialConfig(**expected)


@pytest.mark.parametrize(
    ("assignments", "says"),
    [
        (["pp"], "'pp' is not KNOB=VALUE"),
        (["ppp=4"], "did you mean pp?"),
        (["use_deepep=1"], "did you mean use_turbo_deepep?"),
        (["pp=four"], "pp=four"),
        (["pp=2.5"], "pp=2.5"),
        (["fp8=hybird"], "'hybrid'"),
        (["pp=2", "pp=4"], "sets pp twice"),
        (["num_microbatches=0"], "num_microbatches=0"),
        (["num_micro_batches=4"], "did you mean num_microbatches?"),
        (["gbs=64", "num_microbatches=4"], "keep one"),
        (["PP=4"], "--set: no knob is called 'PP'; did you mean pp?"),
        (["RECOMPUTE_GRANULARITI=full"], "did you mean recompute_granularity?"),
        (["pp=four"], "--set pp=four: expected a whole number"),
        (["fp8=x"], "--set fp8=x: expected one of 'none', 'hybrid', 'e4m3', 'delayed'"),
        (["deepep=1", "use_turbo_deepep=0"], "sets use_turbo_deepep twice"),
    ],
)
def test_a_mistake_is_said_in_one_line(assignments: list[str], says: str):
    with pytest.raises(UserError) as refused:
        parse_settings(assignments)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_json_object_gives_what_assignments_give():
    values = {"pp": 4, "fp8": "hybrid", "deepep": True}
    assert trial_config(values, "set") == parse_settings(["pp=4", "fp8=hybrid", "deepep=true"])


def test_what_is_not_set_is_the_workloads():
    workload = mixtral_8x22b()
    assert configured([], workload, cluster(4)) == workload.baseline
    assert configured(["mbs=1"], workload, cluster(4)) == workload.baseline.model_copy(
        update={"mbs": 1}
    )


@pytest.mark.parametrize(
    ("assignments", "gbs"),
    [
        (["num_microbatches=4"], 4 * 2 * 8),
        (["num_microbatches=4", "mbs=1"], 4 * 1 * 8),
        (["num_microbatches=4", "pp=8", "tp=2"], 4 * 2 * 2),
        (["num_microbatches=3", "tp=64"], 3 * 2 * 1),
        (["num_microbatches=null", "gbs=64"], 64),
    ],
)
def test_a_batch_may_be_counted_in_microbatches(assignments: list[str], gbs: int):
    """Mixtral at pp 4 and mbs 2 on 32 GPUs: dp is 8, and one where no replica fits."""
    workload = mixtral_8x22b()
    asked = asked_for(assignments, workload, cluster(4))
    assert type(asked) is TrialConfig
    assert asked.gbs == gbs
    assert configured(assignments, workload, cluster(4)).gbs == gbs
