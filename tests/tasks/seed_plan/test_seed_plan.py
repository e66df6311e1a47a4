from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from projection.legality import LegalSpace, check, normalise
from schemas.cluster import Cluster
from schemas.errors import ClusterError
from schemas.search import SearchSpec
from schemas.trial import Candidate, NormalTrial, TrialConfig
from schemas.workload import Workload
from tasks.seed_plan import (
    SEED_RULES,
    SeedPlan,
    order_for_budget,
    plan_seeds,
    seed_plan,
    skipped_notes,
)
from tasks.seed_plan.grid import reduced
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

RUNS = [
    (mixtral_8x22b(), cluster(4), search()),
    (mixtral_8x22b(), cluster(8), search()),
    (mixtral_8x22b(), cluster(8, gpu=a100()), search(recompute=False)),
    (mixtral_8x22b(pp_schedule="zero-bubble"), cluster(8), search({"pp": 8}, fp8=False)),
    (llama_70b(), cluster(4), search()),
    (llama_70b(mbs=3, gbs=96), cluster(4), search()),
    (deepseek_v3(), cluster(64), search()),
    (deepseek_v3(), cluster(1), search()),
    (small_moe(ep=2), cluster(1), search(gbs=True)),
    (small_dense(fp8="hybrid"), cluster(1), search()),
    (small_dense(gbs=7), cluster(1), search({"tp": 1, "pp": 1, "cp": 1})),
]
RULE_NAMES = (
    "baseline",
    "recompute",
    "moe-communication",
    "fp8",
    "tier-a-stack",
    "schedule",
    "neighbour",
    "dp-sharding",
    "grid",
)


def trials(plan: SeedPlan, workload: Workload, rule: str) -> list[NormalTrial]:
    return [normalise(c.config, workload) for c in plan.candidates if c.rule == rule]


def moved(trial: NormalTrial, workload: Workload) -> dict[str, Any]:
    """Knobs that a trial has differently from the workload."""
    base = workload.baseline
    return {
        knob: getattr(trial, knob)
        for knob in NormalTrial.model_fields
        if getattr(trial, knob) != getattr(base, knob)
    }


@pytest.mark.parametrize(("workload", "there", "spec"), RUNS)
def test_the_plan_keeps_its_promises(workload: Workload, there: Cluster, spec: SearchSpec) -> None:
    plan = plan_seeds(workload, there, spec)
    first, *others = plan.candidates
    assert set(moved(normalise(first.config, workload), workload)) <= {*spec.pinned, "etp"}
    assert first.rule == "baseline"
    for candidate in plan.candidates:
        trial = normalise(candidate.config, workload)
        assert {knob: getattr(trial, knob) for knob in spec.pinned} == spec.pinned
    ids = [normalise(c.config, workload).trial_id for c in plan.candidates]
    assert len(set(ids)) == len(ids)
    for candidate in others:
        assert check(candidate.config, workload, there, spec).legal
        assert candidate.why
        assert candidate.tag
    for skipped in plan.skipped:
        verdict = check(skipped.candidate.config, workload, there, spec)
        assert skipped.violation in verdict.violations
    order = [RULE_NAMES.index(candidate.rule) for candidate in plan.candidates]
    assert order == sorted(order)
    assert len(SEED_RULES) == len(RULE_NAMES)
    assert plan_seeds(workload, there, spec) == plan


def test_every_rule_speaks_up_for_an_moe_workload() -> None:
    workload = mixtral_8x22b()
    plan = plan_seeds(workload, cluster(8), search())
    assert {candidate.rule for candidate in plan.candidates} == set(RULE_NAMES)


def test_single_lever_seeds_move_their_lever_only() -> None:
    workload = mixtral_8x22b()
    plan = plan_seeds(workload, cluster(8), search())
    assert [moved(t, workload) for t in trials(plan, workload, "moe-communication")] == [
        {"use_turbo_deepep": True},
        {"use_turbo_deepep": True, "sync_free_stage": 2},
        {"use_turbo_deepep": True, "sync_free_stage": 3},
    ]
    assert [moved(t, workload) for t in trials(plan, workload, "fp8")] == [{"fp8": "hybrid"}]
    kinds = [t.recompute_granularity for t in trials(plan, workload, "recompute")]
    assert kinds == ["selective", "full"]
    for recomputed in trials(plan, workload, "recompute"):
        assert all(knob.startswith("recompute_") for knob in moved(recomputed, workload))


def test_the_stack_moves_every_lever_at_once() -> None:
    workload = mixtral_8x22b(
        recompute_granularity="full", recompute_method="block", recompute_num_layers=14
    )
    stacked = trials(plan_seeds(workload, cluster(8), search()), workload, "tier-a-stack")[0]
    assert (stacked.use_turbo_deepep, stacked.sync_free_stage) == (True, 3)
    assert (stacked.fp8, stacked.recompute_granularity) == ("hybrid", "none")


def test_a_lean_stack_follows_the_one_that_needs_most_memory() -> None:
    workload = mixtral_8x22b()
    plan = plan_seeds(workload, cluster(8), search())
    lean, full = trials(plan, workload, "tier-a-stack")[1:3]
    assert (lean.mbs, lean.sync_free_stage, lean.recompute_granularity) == (1, 2, "none")
    assert (full.sync_free_stage, full.recompute_granularity) == (3, "full")


def test_the_stack_leaves_out_what_the_gpu_cannot_do() -> None:
    workload = mixtral_8x22b()
    plan = plan_seeds(workload, cluster(8, gpu=a100()), search())
    stacks = trials(plan, workload, "tier-a-stack")
    assert {stacked.fp8 for stacked in stacks} == {"none"}
    assert 3 in {stacked.sync_free_stage for stacked in stacks}
    assert not trials(plan, workload, "fp8")
    assert "fp8_unsupported" in {skipped.violation.code for skipped in plan.skipped}


def test_the_schedule_sweep_covers_what_the_layers_allow() -> None:
    workload = mixtral_8x22b(
        recompute_granularity="full", recompute_method="block", recompute_num_layers=14
    )
    plan = plan_seeds(workload, cluster(8), search())
    swept = {(t.pp_schedule, t.vpp): t for t in trials(plan, workload, "schedule")}
    assert set(swept) == {
        ("interleaved", 2),
        ("zero-bubble", 1),
        ("zbv-formatted", 2),
        ("ilp", 1),
        ("zbv-greedy-half", 2),
    }
    for trial in swept.values():
        expected = "none" if trial.splits_backward else "full"
        assert trial.recompute_granularity == expected
    assert swept["interleaved", 2].recompute_num_layers == 7
    tags = {skipped.candidate.tag for skipped in plan.skipped}
    assert {"interleaved-vpp3", "interleaved-vpp4"} <= tags


def test_a_workload_without_a_pipeline_has_schedules_tried_at_the_first_legal_depth() -> None:
    workload = llama_70b()
    swept = trials(plan_seeds(workload, cluster(4), search()), workload, "schedule")
    assert {trial.pp for trial in swept} == {2}
    assert all(trial.use_distributed_optimizer for trial in swept), "FSDP2 needs pp 1"


def test_neighbours_start_with_one_lever() -> None:
    workload = mixtral_8x22b(
        recompute_granularity="full", recompute_method="block", recompute_num_layers=14
    )
    found = trials(plan_seeds(workload, cluster(4), search()), workload, "neighbour")
    assert moved(found[0], workload) == {"mbs": 1}
    assert moved(found[1], workload) == {"mbs": 4}
    combined = [(t.mbs, t.vpp, t.recompute_granularity) for t in found]
    assert (1, 1, "none") in combined
    assert (1, 2, "none") in combined


def test_dp_sharding_offers_both_kinds() -> None:
    workload = llama_70b()
    sharded = trials(plan_seeds(workload, cluster(4), search()), workload, "dp-sharding")
    assert sharded[0].use_distributed_optimizer
    assert not sharded[0].use_torch_fsdp2
    moe = mixtral_8x22b()
    fsdp2 = trials(plan_seeds(moe, cluster(8), search()), moe, "dp-sharding")[0]
    assert (fsdp2.use_torch_fsdp2, fsdp2.pp, fsdp2.ep) == (True, 1, 1)


@pytest.mark.parametrize(
    ("values", "own", "expected"),
    [
        ((1, 2, 4, 7, 8, 14, 28, 56), 4, (1, 4, 8, 56)),
        ((1, 2, 4, 8), 4, (1, 4, 8)),
        ((1,), 1, (1,)),
        ((), 16, (16,)),
    ],
)
def test_a_reduced_axis_keeps_the_workloads_own_value(
    values: Sequence[int], own: int, expected: Sequence[int]
) -> None:
    assert reduced(values, own) == expected


def test_the_grid_visits_qualitatively_different_shapes() -> None:
    workload = mixtral_8x22b()
    shapes = [
        (t.tp, t.pp, t.ep, t.cp)
        for t in trials(plan_seeds(workload, cluster(8), search()), workload, "grid")
    ]
    assert len(set(shapes)) == len(shapes)
    assert {tp for tp, _, _, _ in shapes} == {1, 4, 8}
    assert {pp for _, pp, _, _ in shapes} == {1, 4, 8}, "the workload's own pp stays in the grid"
    moved_axes = [sum(a != b for a, b in zip(s, (1, 4, 8, 1), strict=True)) for s in shapes]
    assert moved_axes == sorted(moved_axes)


def test_pinned_axes_are_never_moved() -> None:
    workload = mixtral_8x22b()
    spec = search({"pp": 8}, fp8=False, recompute=False)
    plan = plan_seeds(workload, cluster(8), spec)
    proposals = [normalise(c.config, workload) for c in plan.candidates]
    assert len(proposals) > 10
    assert {trial.pp for trial in proposals} == {8}
    assert {trial.fp8 for trial in proposals} == {"none"}
    assert {trial.recompute_granularity for trial in proposals} == {"none"}


def test_an_illegal_baseline_stays_trial_0_and_seeds_anchor_nearby() -> None:
    """PP 16 × EP 8 needs 128 GPUs; the cluster has 8."""
    workload = deepseek_v3()
    plan = plan_seeds(workload, cluster(1), search())
    assert plan.candidates[0].config == TrialConfig()
    assert not check(TrialConfig(), workload, cluster(1), search(), proposal=False).legal
    assert plan.candidates[1].tag == "anchor"
    assert len(plan.candidates) > 20


def test_nothing_legal_leaves_the_baseline_and_the_reasons() -> None:
    workload = small_dense(gbs=7)
    plan = plan_seeds(workload, cluster(1), search({"tp": 1, "pp": 1, "cp": 1}))
    assert [candidate.tag for candidate in plan.candidates] == ["baseline"]
    assert plan.skipped


@pytest.mark.parametrize(("workload", "there", "spec"), RUNS)
def test_the_budget_order_gives_every_rule_its_turn(
    workload: Workload, there: Cluster, spec: SearchSpec
) -> None:
    plan = plan_seeds(workload, there, spec)
    ordered = seed_plan(workload, there, spec)
    assert ordered[0] == plan.candidates[0]
    assert sorted(c.tag for c in ordered) == sorted(c.tag for c in plan.candidates)
    present = {candidate.rule for candidate in ordered}
    seen: dict[str, int] = {}
    for candidate in ordered:
        seen[candidate.rule] = seen.get(candidate.rule, 0) + 1
        if seen[candidate.rule] == 4:
            assert set(seen) == present


def test_a_small_budget_hears_every_rule() -> None:
    plan = plan_seeds(mixtral_8x22b(), cluster(8), search())
    everything = order_for_budget(plan.candidates)
    assert {candidate.rule for candidate in everything[:9]} == set(RULE_NAMES)


def test_an_order_keeps_each_rules_own_order() -> None:
    made = [
        Candidate(config=TrialConfig(mbs=n), rule=rule, why="because", tag=f"{rule}{n}")
        for rule in ("a", "b")
        for n in range(5)
    ]
    tags = [candidate.tag for candidate in order_for_budget(made)]
    assert tags == ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "a4", "b3", "b4"]


@pytest.mark.parametrize(("workload", "there", "spec"), RUNS)
def test_every_refused_seed_is_counted_under_its_rule(
    workload: Workload, there: Cluster, spec: SearchSpec
) -> None:
    plan = plan_seeds(workload, there, spec)
    notes = skipped_notes(plan)
    counts = [(line.partition(":")[0], int(line.split()[1])) for line in notes]
    assert dict(counts) == Counter(skipped.violation.code for skipped in plan.skipped)
    assert [count for _, count in counts] == sorted((n for _, n in counts), reverse=True)
    for line, (code, _) in zip(notes, counts, strict=True):
        first = next(seed for seed in plan.skipped if seed.violation.code == code)
        assert line.endswith(f"{first.candidate.tag}: {first.violation.reason}")
        assert "\n" not in line


@pytest.mark.parametrize(
    ("pinned", "says", "legal"),
    [
        ({"pp": 3}, "pinned.pp: 3 is not legal on mi355x_4nodes: tp·cp·pp", "1, 2, 4, 8"),
        ({"pp": 0}, "pinned.pp: 0 is not legal on mi355x_4nodes: pp = 0, the smallest", "1, 2, 4"),
        ({"pp": -1}, "pinned.pp: -1 is not legal", "1, 2, 4, 8"),
        ({"pp": 10**30}, "pinned.pp: 1000000000000000000000000000000 is not legal", "1, 2, 4, 8"),
        ({"ep": 3, "pp": 4}, "pinned.ep: 3 is not legal", "1, 2, 4, 8"),
        ({"sync_free_stage": 7}, "pinned.sync_free_stage: 7 is not legal", "0, 1, 2, 3"),
        ({"mbs": 3}, "pinned.mbs: 3 is not legal", "1, 2, 4"),
    ],
)
def test_a_pin_no_configuration_can_have_is_refused_with_the_legal_values(
    pinned: dict[str, int | str | bool], says: str, legal: str
) -> None:
    with pytest.raises(ClusterError) as caught:
        plan_seeds(mixtral_8x22b(), cluster(4), search(pinned))
    assert says in str(caught.value)
    assert legal in (caught.value.hint or "")


def test_pins_that_exclude_each_other_are_refused_together() -> None:
    with pytest.raises(
        ClusterError, match="no legal configuration on mi355x_4nodes has tp 3, pp 5"
    ):
        plan_seeds(mixtral_8x22b(), cluster(4), search({"tp": 3, "pp": 5}))


def test_a_pin_is_not_blamed_where_nothing_is_legal_without_it() -> None:
    workload = small_dense(gbs=7)
    there = cluster(4)
    assert LegalSpace(workload, there, search(tp=False, cp=False, pp=False)).count() == 0
    spec = SearchSpec(
        axes=search(tp=False, cp=False, pp=False).axes, pinned={"cross_entropy_loss_fusion": True}
    )
    assert plan_seeds(workload, there, spec).candidates[0].rule == "baseline"


def test_the_baseline_has_the_pinned_value_and_says_so() -> None:
    first = plan_seeds(mixtral_8x22b(), cluster(8), search({"pp": 8})).candidates[0]
    assert first.config == TrialConfig(pp=8)
    assert first.why == "the workload's own configuration, with the pinned pp 8"
