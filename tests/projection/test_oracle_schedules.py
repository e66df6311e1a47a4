"""What the schedule decides reaches memory and time of a projection."""

import pytest

from projection.oracle import Oracle
from projection.profiles import gpu_profile
from projection.schedules import activation_high_water, build, held_over_time
from schemas.evaluation import SignatureHashes
from schemas.search import SearchSpec
from tests.builders import cluster, llama_70b, mixtral_8x22b

SIGNATURE = SignatureHashes(model="0" * 16, cluster="0" * 16, stack="0" * 16)
SCHEDULES = [
    ("1f1b", 1),
    ("interleaved", 2),
    ("zero-bubble", 1),
    ("zb-heuristic", 1),
    ("ilp", 1),
    ("zbv-formatted", 2),
    ("zbv-greedy-half", 2),
    ("zbv-greedy-min", 2),
]


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    spec = SearchSpec(gemm_backend="tile")
    return Oracle(mixtral_8x22b(mbs=1), cluster(4), spec, signature=SIGNATURE)


def trial(oracle: Oracle, name: str, vpp: int, **knobs: object):
    knobs = {"pp_schedule": name, "vpp": vpp, **knobs}
    return oracle.workload.baseline.model_copy(update=knobs)


@pytest.mark.parametrize(("name", "vpp"), SCHEDULES)
def test_memory_of_every_rank_is_its_high_water_over_the_timeline(oracle, name, vpp):
    asked = trial(oracle, name, vpp)
    timeline, memory = oracle.timeline(asked), oracle.live_memory(asked)
    ranks = oracle.project(asked).memory_by_rank_gb
    totals = [rank.phases_gb["steady"] for rank in ranks]
    curves = held_over_time(timeline, memory.saved, memory.for_weights)
    over_time = [max(amount for _, amount in curve) for curve in curves]
    counted = activation_high_water(timeline.schedule, memory.saved, memory.for_weights)
    assert over_time == pytest.approx(counted)
    assert [b + a for b, a in zip(memory.base, over_time, strict=True)] == pytest.approx(totals)
    assert [rank.total_gb for rank in ranks] == pytest.approx(totals)


def test_memory_and_time_are_of_the_order_that_runs():
    """Attention over 128k tokens: weight gradients are so short that V-min's order for 8
    microbatches loses to that for 4, run twice."""
    long = llama_70b(gbs=8).model_copy(update={"seq_length": 131072})
    spec = SearchSpec(gemm_backend="tile")
    oracle = Oracle(long, cluster(4, 8, gpu_profile("h100")), spec, signature=SIGNATURE)
    asked = trial(oracle, "zbv-greedy-min", 2, tp=8, pp=4, cp=1, mbs=1, gbs=8)
    half = asked.model_copy(update={"gbs": 4})
    timeline, planned = oracle.timeline(asked), build("zbv-greedy-min", 4, 2, 8)
    assert timeline.schedule in planned.others
    assert timeline.schedule.live_states != planned.live_states
    assert oracle.memory(asked).memory_by_rank_gb == oracle.project(asked).memory_by_rank_gb
    assert oracle.memory(asked).memory_per_gpu_gb == oracle.memory(half).memory_per_gpu_gb
    one, two = oracle.project(half), oracle.project(asked)
    assert two.tokens_per_s_per_gpu >= one.tokens_per_s_per_gpu
    memory = oracle.live_memory(asked)
    counted = activation_high_water(timeline.schedule, memory.saved, memory.for_weights)
    totals = [rank.phases_gb["steady"] for rank in oracle.project(asked).memory_by_rank_gb]
    assert [b + a for b, a in zip(memory.base, counted, strict=True)] == pytest.approx(totals)


def test_a_leaner_schedule_needs_less_memory(oracle):
    peaks = {
        name: oracle.memory(trial(oracle, name, vpp)).memory_per_gpu_gb for name, vpp in SCHEDULES
    }
    assert peaks["zbv-greedy-min"] < peaks["zbv-greedy-half"] < peaks["zbv-formatted"]
    assert peaks["1f1b"] < peaks["interleaved"]


def test_recomputation_lengthens_the_backward_pass_by_the_forwards_it_repeats(oracle):
    kept = oracle.timeline(trial(oracle, "1f1b", 1)).costs
    full = {"recompute_granularity": "full", "recompute_method": "block"}
    again = oracle.timeline(trial(oracle, "1f1b", 1, recompute_num_layers=14, **full)).costs
    half = oracle.timeline(trial(oracle, "1f1b", 1, recompute_num_layers=7, **full)).costs
    assert again.forward == pytest.approx(kept.forward)
    assert again.weight_grad == pytest.approx(kept.weight_grad)
    added = [more - less for more, less in zip(again.input_grad, kept.input_grad, strict=True)]
    # Inner stages are layers alone: all of their forward, or half of it.
    assert 0.8 * kept.forward[1] < added[1] <= kept.forward[1] * (1 + 1e-9)
    assert half.input_grad[1] - kept.input_grad[1] == pytest.approx(added[1] / 2)


def test_a_split_backward_pass_is_the_whole_one_in_two(oracle):
    whole = oracle.timeline(trial(oracle, "1f1b", 1))
    split = oracle.timeline(trial(oracle, "zero-bubble", 1))
    assert min(split.costs.weight_grad) > 0
    both = [b + w for b, w in zip(split.costs.input_grad, split.costs.weight_grad, strict=True)]
    of_whole = [b + w for b, w in zip(whole.costs.input_grad, whole.costs.weight_grad, strict=True)]
    assert both == pytest.approx(of_whole, rel=0.02)
    assert split.makespan_ms < whole.makespan_ms


def test_the_projection_takes_as_long_as_its_timeline(oracle):
    for name, vpp in SCHEDULES:
        asked = trial(oracle, name, vpp)
        evaluation, timeline = oracle.project(asked), oracle.timeline(asked)
        rest = sum(
            ms
            for part, ms in evaluation.time_breakdown_ms.items()
            if part.startswith("dp_") or part in ("optimizer", "iteration_overhead")
        )
        assert evaluation.iteration_ms - rest == pytest.approx(timeline.makespan_ms)
        assert evaluation.bubble_ratio == timeline.bubble_ratio


@pytest.mark.parametrize(("name", "vpp"), SCHEDULES)
def test_a_stage_that_a_layout_leaves_empty_has_its_place_and_nothing_else(oracle, name, vpp):
    """Megatron allows one: https://github.com/NVIDIA/Megatron-LM, pipeline_parallel_layer_layout.py
    prints it as "(empty stage)"."""
    layouts = {1: "Et*28||t*27|tL", 2: "Et*10||t*10||t*10||t*26|L"}
    asked = trial(oracle, name, vpp, layout=layouts[vpp])
    result, memory = oracle.project(asked), oracle.live_memory(asked)
    assert sum(result.time_breakdown_ms.values()) == pytest.approx(result.iteration_ms, rel=1e-9)
    empty = [
        (rank, chunk)
        for rank, row in enumerate(memory.saved)
        for chunk, saved in enumerate(row)
        if saved == 0
    ]
    timeline = oracle.timeline(asked)
    idle = {
        (timed.rank, timed.op.chunk)
        for row in timeline.operations()
        for timed in row
        if timed.op.kind == "F" and timed.start_ms == timed.end_ms
    }
    assert empty
    assert idle == set(empty)
    if vpp == 1:
        weights = [rank.components.get("weights", 0) for rank in result.memory_by_rank_gb]
        assert [rank for rank, held in enumerate(weights) if not held] == [1]
        assert sum(timeline.busy_ms[1:2]) == 0
    explained = oracle.explain(asked).summary()
    assert [row.total_gb for row in explained] == [
        rank.total_gb for rank in result.memory_by_rank_gb
    ]
