"""Rows become cases, cases projections, projections a report; none is fitted to itself."""

from collections import Counter
from collections.abc import Sequence

import pytest

from projection.profiles import achievable, gpu_profile
from schemas.gpu import Achievable
from schemas.measured import MeasuredRow
from tasks.evidence import evidence
from tasks.fidelity.cases import case_of, left_out
from tasks.fidelity.leave_out import LeftOutProjector, only_group_of_its_gpu, refitting
from tasks.fidelity.predict import Predicted, Projector
from tasks.fidelity.ranges import alternatives, plausible_range
from tasks.fidelity.report import fidelity

ROWS = {row.id: row for row in evidence()}
FEW = [row for row in evidence() if row.source in ("megatron-a100", "paper-points", "mi355x-lora")]


def test_a_row_becomes_the_run_it_describes() -> None:
    case = case_of(ROWS["turing-530B-selective"])
    trial = case.trial
    assert (trial.tp, trial.pp, trial.vpp, trial.pp_schedule) == (8, 35, 3, "interleaved")
    assert (trial.recompute_granularity, trial.recompute_modules) == ("selective", ("core_attn",))
    assert (case.cluster.world_size, case.cluster.gpu.name) == (280, "a100-80g")
    assert case.workload.sequence_parallel
    assert not case.workload.flash_attention
    assert case.workload.precision.params_dtype == "fp16"


def test_a_network_that_a_source_states_is_the_clusters() -> None:
    row = next(row for row in evidence() if row.source == "internevo")
    network = case_of(row).cluster.network
    assert (network.nics_per_node, network.pod_bw, network.cluster_bw) == (4, 12.5, 12.5)


def test_more_virtual_stages_run_interleaved() -> None:
    row = ROWS["gpt-oss-120b-64gpu-trial32"]
    assert case_of(row).trial.pp_schedule == "1f1b"
    assert case_of(row, {"vpp": 2}).trial.pp_schedule == "interleaved"


def test_every_row_is_projected_or_counted_with_a_reason() -> None:
    rows = [row for row in evidence() if left_out(row) is not None or row in FEW]
    report = fidelity(rows, backend="tile")
    assert len(report.rows) + sum(each.rows for each in report.exclusions) == len(rows)
    assert sum(each.before.accuracy.rows for each in report.sources) == len(report.rows)
    reasons = Counter(left_out(row) for row in rows)
    assert reasons["not pretraining (LoRA)"] == 2
    assert reasons["no profile ships for its GPU (A100-40GB)"] == 10


def test_without_a_fit_there_is_no_after() -> None:
    report = fidelity(FEW, backend="tile")
    assert report.fitted is None
    assert all(source.after is None for source in report.sources)
    assert all(target.after is None and target.met is None for target in report.targets)


def half_as_fast(rows: Sequence[MeasuredRow]) -> dict[str, Achievable]:
    """Rates of every GPU, at half the GEMM rate where `rows` has one of its rows."""
    found = {}
    for name in ("a100-80g", "mi325x", "mi355x"):
        published = achievable(gpu_profile(name), "tile")
        seen = any(row.gpu == name for row in rows)
        half = {"gemm_bf16": published.gemm_bf16 / 2}
        found[name] = published.model_copy(update=half if seen else {})
    return found


def test_a_group_is_judged_by_a_fit_that_never_saw_it() -> None:
    seen: list[set[str]] = []

    def fit(rows: Sequence[MeasuredRow]) -> dict[str, Achievable]:
        seen.append({" ".join(map(str, row.group)) for row in rows})
        return half_as_fast(rows)

    rows = [row for row in FEW if left_out(row) is None]
    report = fidelity(rows, backend="tile", rates=refitting(rows, fit), fitted="a half")
    assert len(seen) == len({row.group for row in rows})
    assert all(len(others) == len(seen) - 1 for others in seen)
    slowed = [row for row in report.rows if row.source == "megatron-a100"]
    assert all(row.after is not None and row.after > row.before for row in slowed)


def test_the_only_group_of_a_gpu_is_said_to_have_its_familys_factors() -> None:
    rows = [row for row in FEW if left_out(row) is None and row.gpu != "a100-80g"]
    rows.append(ROWS["megatron-22B-full"])
    alone = only_group_of_its_gpu(rows)
    assert alone == {ROWS["megatron-22B-full"].group}
    report = fidelity(rows, backend="tile", rates=refitting(rows, half_as_fast), fitted="a half")
    noted = [row.id for row in report.rows if row.note is not None]
    assert noted == ["megatron-22B-full"]


def test_the_range_holds_the_projection_and_moves_nothing_stated() -> None:
    projector = Projector(backend="tile")
    row = ROWS["llama70b-bf16-mi325x-64"]
    here = projector.row(row)
    assert isinstance(here, Predicted)
    bounds = plausible_range(row, projector)
    assert bounds is not None
    low, high = bounds
    assert low <= here.projected <= high
    assert low < high
    certain = row.model_copy(
        update={
            "assumed": {n: a.model_copy(update={"plausible": ()}) for n, a in row.assumed.items()}
        }
    )
    assert plausible_range(certain, projector) is None


def test_a_sweep_is_ranked_again_under_other_assumptions() -> None:
    rows = [row for row in evidence() if row.sweep == "mixtral22b-32gpu"]
    found = list(alternatives(rows, Projector(backend="tile")))
    assert {(each.setting, each.value) for each in found} >= {("gbs", "128")}
    assert all(each.rows == len(rows) for each in found)


def test_rates_go_through_the_oracle() -> None:
    row = ROWS["megatron-22B-full"]
    slow = LeftOutProjector(
        lambda row, gemm: achievable(gpu_profile(row.gpu), gemm).model_copy(
            update={"gemm_bf16": 0.3}
        ),
        "tile",
    )
    before, after = Projector(backend="tile").row(row), slow.row(row)
    assert isinstance(before, Predicted)
    assert isinstance(after, Predicted)
    assert after.projected > 1.5 * before.projected


@pytest.mark.parametrize("source", ["paper-sweep-qwen3-235b-32gpu", "megatron-a100"])
def test_targets_are_of_the_rows_that_are_there(source: str) -> None:
    rows = [row for row in evidence() if row.source == source]
    (target,) = fidelity(rows, backend="tile").targets
    assert target.name == {"megatron-a100": "megatron_a100"}.get(source, "rank sweeps")
