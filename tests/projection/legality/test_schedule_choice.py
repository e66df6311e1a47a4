import pytest

from projection.legality.schedule_choice import framework_schedule


@pytest.mark.parametrize(("vpp", "schedule"), [(1, "1f1b"), (2, "interleaved"), (4, "interleaved")])
def test_megatron_runs_its_own_schedules_without_a_patch(vpp: int, schedule: str) -> None:
    for zero_bubble in (False, True):
        got = framework_schedule(vpp, 4, "zero-bubble", enable_zero_bubble=zero_bubble)
        assert got == schedule


def test_without_a_pipeline_everything_is_1f1b() -> None:
    assert framework_schedule(1, 1, "v-half", patch_primus_pipeline=True) == "1f1b"
    assert framework_schedule(2, 1) == "1f1b"


@pytest.mark.parametrize(
    ("algorithm", "vpp", "schedule"),
    [
        ("1f1b", 1, "1f1b"),
        ("1f1b-interleaved", 1, "1f1b"),
        ("1f1b-interleaved", 2, "interleaved"),
        ("zero-bubble", 1, "zero-bubble"),
        ("zero-bubble-heuristic", 1, "zb-heuristic"),
        ("zbv-formatted", 2, "zbv-formatted"),
        ("v-half", 2, "zbv-greedy-half"),
        ("v-min", 2, "zbv-greedy-min"),
        ("seaailab-ilp", 1, "ilp"),
    ],
)
def test_primus_pipeline_runs_its_algorithm(algorithm: str, vpp: int, schedule: str) -> None:
    assert framework_schedule(vpp, 8, algorithm, patch_primus_pipeline=True) == schedule


@pytest.mark.parametrize(
    ("flags", "vpp", "schedule"),
    [
        ({"enable_zero_bubble": True}, 1, "zero-bubble"),
        ({"enable_zero_bubble": False}, 1, "1f1b"),
        ({"enable_zero_bubble": False}, 2, "interleaved"),
        ({"enable_zero_bubble": True, "zero_bubble_v_schedule": True}, 2, "zbv-greedy-half"),
        (
            {
                "enable_zero_bubble": True,
                "zero_bubble_v_schedule": True,
                "zero_bubble_v_memory": "min",
            },
            2,
            "zbv-greedy-min",
        ),
        (
            {
                "enable_zero_bubble": True,
                "zero_bubble_v_schedule": True,
                "zero_bubble_v_memory": "zb",
            },
            2,
            "zbv-formatted",
        ),
    ],
)
def test_the_zero_bubble_patch_wins_over_primus_pipeline(flags, vpp: int, schedule: str) -> None:
    got = framework_schedule(
        vpp, 4, "1f1b", patch_primus_pipeline=True, patch_zero_bubble=True, **flags
    )
    assert got == schedule
