"""Published speeds and memory of schedules: the projected order is the measured one."""

import json

import pytest

from benchmarks.schedule_fidelity import DATA, llama_7b, missed, oracle_of, qwen3_235b, ratios

LLAMA, QWEN = json.loads(DATA.read_text(encoding="utf-8"))["tables"]


def compared(case, field, measured, num_microbatches):
    oracle = oracle_of(case, "tile")
    rows = case.table["rows"]
    projected = [getattr(oracle.project(case.trial(row, num_microbatches)), field) for row in rows]
    return missed(ratios([row[measured] for row in rows]), ratios(projected))


@pytest.mark.parametrize(
    ("case", "num_microbatches", "against"),
    [
        (llama_7b(LLAMA, 32), 32, []),
        (llama_7b(LLAMA, 32), 64, []),
        (qwen3_235b(QWEN), 32, []),
    ],
)
def test_schedules_are_as_fast_in_the_order_measured(case, num_microbatches, against):
    found = compared(case, "tokens_per_s_per_gpu", "tokens_per_s", num_microbatches)
    assert found == (against, 13)


@pytest.mark.parametrize("num_layers", [16, 32])
def test_schedules_need_memory_in_the_order_measured(num_layers):
    found = compared(llama_7b(LLAMA, num_layers), "memory_per_gpu_gb", "memory_gb", 32)
    assert found == ([], 14)


def test_unequal_passes_make_v_min_slower_than_1f1b():
    case = llama_7b(LLAMA, 32)
    oracle = oracle_of(case, "tile")
    rows = {row["schedule"]: case.trial(row, 64) for row in LLAMA["rows"]}
    plain, least = oracle.timeline(rows["1f1b"]), oracle.timeline(rows["zbv-greedy-min"])
    assert least.makespan_ms > plain.makespan_ms
    assert least.lower_bound_ms < plain.lower_bound_ms


def test_only_pairs_clearly_apart_are_held_to_their_order():
    assert missed([1.0, 1.02, None, 1.2], [1.0, 0.9, 5.0, 0.95]) == ([(0, 3)], 2)
