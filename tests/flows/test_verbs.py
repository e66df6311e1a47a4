"""What each verb prints, for people and for programs."""

import json
from pathlib import Path
from typing import Any

import pytest

from projection.legality import derive_axes
from tasks.inputs import resolve_pair
from tests.end_to_end.files import write_inputs
from tests.flows.command import ROOT
from tests.flows.inline import Ended, refold_inline

pytestmark = pytest.mark.whole

Run = Any


@pytest.fixture
def refold(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    write_inputs(tmp_path)

    def run(*arguments: object) -> Ended:
        return refold_inline(capsys, *arguments)

    return run


PAIR = ("workload.yaml", "cluster.yaml")


def fits_100_columns(text: str) -> bool:
    return all(len(line) <= 100 for line in text.splitlines())


def test_check_passes_what_is_legal_and_fits(refold: Run):
    done = refold("check", *PAIR, "--set", "mbs=1")
    assert done.code == 0
    assert "fits" in done.out
    assert fits_100_columns(done.out)


def test_check_fails_what_does_not_fit(refold: Run):
    done = refold("check", *PAIR, "--json")
    answer = json.loads(done.out)
    assert done.code == 1
    assert answer["legal"]
    assert answer["fits"] is False
    assert answer["memory_per_gpu_gb"] > answer["cap_gb"]


def test_check_offers_the_nearest_legal_configurations(refold: Run):
    done = refold("check", *PAIR, "--set", "tp=3", "--json")
    answer = json.loads(done.out)
    assert done.code == 1
    assert answer["fits"] is None
    assert {"world_not_tiled"} <= {violation["code"] for violation in answer["violations"]}
    assert answer["nearest_legal"]
    shown = refold("check", *PAIR, "--set", "tp=3").out
    assert "ILLEGAL" in shown
    assert "nearest legal:" in shown


def test_axes_lists_what_the_rules_derive(refold: Run):
    inputs = resolve_pair(*map(Path, PAIR))
    expected = derive_axes(inputs.workload, inputs.cluster, inputs.search)
    answer = json.loads(refold("axes", *PAIR, "--json").out)
    assert answer == expected.model_dump(mode="json")
    assert fits_100_columns(refold("axes", *PAIR).out)
    shown = refold("axes", *PAIR, "--why").out
    assert "gbs is pinned by" in shown
    assert "tp 16: tp 16 is more than the 8 GPUs of a node" in shown


def test_workloads_tabulates_what_resolves_and_what_does_not(refold: Run, tmp_path: Path):
    folder = tmp_path / "all"
    (folder / "below").mkdir(parents=True)
    write_inputs(folder / "below")
    (folder / "below" / "cluster.yaml").unlink()
    (folder / "broken.yaml").write_text("modules: {}\n")
    rows = json.loads(refold("workloads", folder, "--json").out)
    assert [row["file"] for row in rows] == ["below/workload.yaml", "broken.yaml"]
    assert rows[0]["parameters"] == pytest.approx(140.6e9, rel=0.005)
    assert rows[1]["parameters"] is None
    assert rows[1]["verdict"].startswith("refused: ")
    shown = refold("workloads", folder).out
    assert "2 files: 1 resolved, 1 refused" in shown
    assert fits_100_columns(shown)


def test_project_prints_the_evaluation(refold: Run):
    answer = json.loads(refold("project", *PAIR, "--set", "mbs=1", "--json").out)
    promised = (
        "legal, reason, memory_per_gpu_gb, param_optimizer_gb, activation_gb, iteration_ms,"
        " tokens_per_s_per_gpu, tflops_per_s_per_gpu, bubble_ratio, comm_breakdown, source,"
        " provenance, derived_dp, config, time_breakdown_ms, memory_breakdown_gb,"
        " memory_by_rank_gb, fits, cap_gb, schedule, signature, warnings"
    )
    assert set(promised.split(", ")) <= set(answer)
    shown = refold("project", *PAIR, "--set", "mbs=1").out
    assert f"{answer['tokens_per_s_per_gpu']:,.0f} ± " in shown
    assert fits_100_columns(shown)


def test_project_explains_memory_per_rank_and_per_component(refold: Run):
    shown = refold("project", *PAIR, "--set", "mbs=1", "--explain").out
    answer = json.loads(refold("project", *PAIR, "--set", "mbs=1", "--explain", "--json").out)
    memory, evaluation = answer["memory"], answer["evaluation"]
    assert memory["heaviest_rank"] == evaluation["memory_heaviest_rank"]
    assert len(memory["ranks"]) == evaluation["config"]["pp"]
    for rank in memory["ranks"]:
        sizes = [line["gb"] for line in rank["lines"]]
        assert sizes == sorted(sizes, reverse=True)
        assert sum(sizes) == pytest.approx(rank["total_gb"])
        assert f"rank {rank['rank']}: {rank['total_gb']:,.2f} GB in phase" in shown
    assert evaluation["largest_moe_imbalance"] > 1
    assert f"fits up to {evaluation['largest_moe_imbalance']:.2f}" in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_project_shows_the_equation_and_the_numbers_behind_a_component(refold: Run):
    shown = refold("project", *PAIR, "--equation", "activations").out
    assert shown.startswith("activations (derived)")
    assert "experts_hidden" in shown
    assert max(map(len, shown.splitlines())) <= 100
    done = refold("project", *PAIR, "--equation", "activation")
    assert done.code == 2
    assert "activations" in done.err


def test_project_of_an_illegal_configuration_exits_1_with_the_reason(refold: Run):
    done = refold("project", *PAIR, "--set", "pp=3")
    assert done.code == 1
    assert done.out.startswith("illegal (world_not_tiled): ")


def test_a_batch_with_a_bad_line_answers_the_others_and_exits_2(refold: Run, tmp_path: Path):
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"set": {"mbs": 1}}\nnot json\n{"set": {"pp": 3}}\n')
    done = refold("project", *PAIR, "--batch", questions)
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 2
    assert [answer.get("legal") for answer in answers] == [True, None, False]
    assert answers[1]["line"] == 2
    assert done.err.startswith("refold: 1 of the lines could not be answered")


def test_a_line_of_a_batch_that_is_not_text_or_too_deep_costs_only_its_own_answer(
    refold: Run, tmp_path: Path
):
    questions = tmp_path / "questions.jsonl"
    lines = [b'{"set": {"mbs": 1}}', b"\xff\xfe", b'{"a":' * 30000, b"9" * 5000]
    lines += [b'{"set": {"pp": "%s"}}' % (b"x" * 5000), b'{"set": {"mbs": 1}}']
    questions.write_bytes(b"\n".join(lines))
    done = refold("project", *PAIR, "--batch", questions)
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 2
    assert [answer.get("line") for answer in answers] == [None, 2, 3, 4, 5, None]
    assert "not UTF-8" in answers[1]["error"]
    assert "nested too deep" in answers[2]["error"]
    assert all(len(answer["error"]) < 200 for answer in answers[1:5])


def test_a_group_of_one_gpu_has_nothing_to_send(refold: Run):
    assert refold("collective", "allreduce", "1MB", "--gpus", 1, "--gpu", "mi355x").code == 0


@pytest.mark.parametrize("knob", ["tp", "cp", "pp", "ep", "etp"])
@pytest.mark.parametrize("value", [0, -1])
def test_placement_refuses_sizes_below_one(refold: Run, knob: str, value: int):
    done = refold("placement", *PAIR, "--set", f"{knob}={value}")
    assert done.code == 2
    assert knob in done.err


def test_a_value_that_is_empty_or_long_is_refused_in_one_short_line(refold: Run):
    empty = refold("check", *PAIR, "--set", "pp=")
    assert (empty.code, empty.err.splitlines()[0]) == (2, "refold: --set 'pp=' has no value")
    for text in ("pp=" + "9" * 5000, "9" * 5000, "x" * 5000 + "=1", "fp8=" + "x" * 5000):
        done = refold("check", *PAIR, "--set", text)
        assert done.code == 2
        assert len(done.err.splitlines()[0]) < 200
    for arguments in (
        ("schedule", "--pp", 4, "--microbatches", 4, "x" * 5000, "--pq"),
        ("schedule", "--pp", "x" * 5000, "--microbatches", 4),
        ("collective", "allreduce", "x" * 5000, "--gpu", "mi355x", "--gpus", 8),
        ("collective", "x" * 5000, "1", "--gpu", "mi355x", "--gpus", 8),
    ):
        done = refold(*arguments)
        assert done.code == 2
        assert len(done.err.splitlines()[0]) < 300


def test_placement_says_which_groups_span_nodes(refold: Run):
    groups = json.loads(refold("placement", *PAIR, "--json").out)
    assert groups["ep"] == {"size": 8, "ranks_per_node": 8, "num_nodes": 1, "num_pods": 1}
    assert groups["pp"]["num_nodes"] == 4
    assert fits_100_columns(refold("placement", *PAIR).out)


def test_placement_of_sizes_that_do_not_tile_the_cluster_is_refused(refold: Run):
    done = refold("placement", *PAIR, "--set", "pp=3")
    assert done.code == 2
    assert done.err == "refold: tp·cp·pp = 1·1·3 = 3 does not divide the 32 GPUs\n"


def test_placement_of_a_dense_model_is_the_one_that_is_projected(refold: Run, tmp_path: Path):
    """No experts lie in its way: pipelines inside data parallelism beside context parallelism."""
    inner = (tmp_path / "cluster.yaml").read_text() + "\nplacement: tp-cp-ep-pp-dp\n"
    (tmp_path / "inner.yaml").write_text(inner)
    files = (ROOT / "examples/workloads/llama3.1_70B.yaml", "inner.yaml")
    sizes = ("--set", "tp=4", "--set", "cp=2", "--set", "pp=2")
    groups = json.loads(refold("placement", *files, *sizes, "--json").out)
    assert set(groups) == {"tp", "cp", "dp", "pp"}
    assert refold("check", *files, *sizes, "--json").code in (0, 1)
    assert groups["pp"]["num_nodes"] == 2
    done = refold("placement", *files, "--set", "ep=8")
    assert (done.code, done.err) == (2, "refold: ep 8: a dense model has no experts to share out\n")


def test_collective_puts_the_fastest_first(refold: Run):
    size = ("allreduce", "256MB", "--gpus", 32)
    priced = json.loads(refold("collective", *size, "--gpu", "mi355x", "--json").out)
    times = [each["time_ms"] for each in priced]
    assert times == sorted(times)
    assert len(times) > 1
    from_file = refold("collective", *size, "--target-cluster", "cluster.yaml", "--json")
    assert json.loads(from_file.out) == priced
    named = ("--bytes", "256MB", "--group", 32, "--cluster", "cluster.yaml", "--json")
    assert json.loads(refold("collective", "allreduce", *named).out) == priced
    winner = f"{priced[0]['algorithm']} in {priced[0]['protocol']} wins"
    table = refold("collective", *size, "--gpu", "mi355x").out
    assert winner in " ".join(table.split())
    assert fits_100_columns(refold("collective", *size, "--gpu", "mi355x").out)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--gpu", "mi355x", "--target-cluster", "cluster.yaml"),
        ("--gpu", "mi355x", "--per-node", 5),
        ("--gpu", "mi35x"),
    ],
)
def test_collective_refuses_hardware_it_cannot_place(refold: Run, options: tuple[object, ...]):
    done = refold("collective", "allreduce", "1MB", "--gpus", 16, *options)
    assert done.code == 2
    assert done.err.startswith("refold: ")


def test_collective_takes_the_rates_a_projection_would(refold: Run, tmp_path: Path):
    """The cluster's calibration counts as its network does; so does none at all."""
    size = ("allreduce", "256MB", "--gpus", 8, "--target-cluster")
    target = "target_cluster: {name: t, num_nodes: 2, gpu_arch: h100-sxm, calibration: none}\n"
    (tmp_path / "published.yaml").write_text(target)
    (tmp_path / "fitted.yaml").write_text(target.replace(", calibration: none", ""))
    published, fitted = (
        refold("collective", *size, f"{name}.yaml") for name in ("published", "fitted")
    )
    assert "(published rates)" in " ".join(published.out.split())
    assert "(calibrated)" in " ".join(fitted.out.split())
    assert published.out != fitted.out


def test_collective_knows_a_fabric_that_spans_boxes(refold: Run, tmp_path: Path):
    rack = "target_cluster: {name: t, num_nodes: 18, gpus_per_node: 4, gpu_arch: gb200}\n"
    (tmp_path / "rack.yaml").write_text(rack)
    size = ("allreduce", "256MB", "--gpus", 8, "--json")
    boxed = refold("collective", *size, "--target-cluster", "rack.yaml")
    assert json.loads(boxed.out) == json.loads(refold("collective", *size, "--gpu", "gb200").out)


def test_collective_fills_node_after_node(refold: Run):
    table = refold("collective", "allreduce", "1MB", "--gpus", 12, "--gpu", "mi355x").out
    assert "12 GPUs, 4 to 8 per node" in " ".join(table.split())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((40,), "--gpus 40 is more than the cluster's 32 GPUs hold"),
        (
            (8, "--per-node", 1),
            "--gpus 8 with 1 on each node is more than the cluster's 32 GPUs hold",
        ),
        ((16, "--per-node", 16), "--per-node 16 is more than the 8 GPUs of a node"),
    ],
)
def test_collective_has_no_more_gpus_than_the_cluster(
    refold: Run, options: tuple[object, ...], reason: str
):
    done = refold(
        "collective", "allreduce", "1MB", "--target-cluster", "cluster.yaml", "--gpus", *options
    )
    assert (done.code, done.err) == (2, f"refold: {reason}\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4096", 4096), ("1KB", 1000), ("1KiB", 1024), ("1.5 MB", 1_500_000), ("2gib", 2 * 2**30)],
)
def test_sizes_are_decimal_or_binary_as_written(text: str, expected: int):
    from flows.commands.collective import parse_bytes

    assert parse_bytes(text) == expected


def test_schedule_draws_every_pass_where_it_runs(refold: Run):
    """Two ranks, forward 1 ms, backward 2: rank 0 waits for rank 1's first gradient."""
    done = refold("schedule", "--schedule", "1f1b", "--pp", 2, "--microbatches", 2)
    rows = [line for line in done.out.splitlines() if line.startswith("rank")]
    passes = [row.split()[2] for row in rows]
    assert len({len(row) for row in passes}) == 1
    wide = len(passes[0]) // 9
    assert passes[0][: 2 * wide] == f"F0{'F' * (wide - 2)}F1{'F' * (wide - 2)}"
    assert set(passes[1][:wide]) == {"."}
    assert fits_100_columns(done.out)
    quiet = refold("schedule", "--schedule", "1f1b", "--pp", 2, "--microbatches", 2, "--no-ascii")
    assert "rank 0" not in quiet.out


EQUAL = ("--f", 1, "--b", 1, "--w", 1, "--p2p", 0)


def test_schedule_compares_all_on_plain_durations(refold: Run):
    size = ("--pp", 4, "--microbatches", 8)
    answers = json.loads(refold("schedule", *size, *EQUAL, "--compare-all", "--json").out)
    keys = {"schedule", "vpp", "makespan", "lower_bound", "bubble_ratio", "peak_in_flight"}
    assert all(set(answer) - {"solver"} == keys for answer in answers)
    assert all(len(answer["peak_in_flight"]) == 4 for answer in answers)
    makespans = {answer["schedule"]: answer["makespan"] for answer in answers}
    assert makespans["1f1b"] == 33.0
    assert makespans["interleaved"] == 28.5
    assert makespans["zbv-formatted"] == 25.5
    shown = refold("schedule", *size, "--compare-all").out
    assert "gap to the lower bound 0.0%" in shown
    assert fits_100_columns(shown)


def test_a_chunk_takes_its_share_of_a_stage(refold: Run):
    sizes = ("--schedule", "interleaved", "--pp", 4, "--microbatches", 8, "--vpp", 4)
    answer = json.loads(refold("schedule", *sizes, *EQUAL, "--json").out)
    assert answer["vpp"] == 4
    assert answer["makespan"] == 24 + 3 * 3 / 4


def test_schedule_of_a_workload_takes_as_long_as_its_projection(refold: Run):
    knobs = ("--set", "mbs=1")
    timeline = json.loads(refold("schedule", *PAIR, *knobs, "--json").out)
    projected = json.loads(refold("project", *PAIR, *knobs, "--json").out)
    pipeline = sum(
        ms
        for name, ms in projected["time_breakdown_ms"].items()
        if not name.startswith("dp_") and name not in ("optimizer", "iteration_overhead")
    )
    assert timeline["makespan"] == pytest.approx(pipeline)
    assert timeline["schedule"] == "1f1b"
    assert max(timeline["memory_gb"]) == projected["memory_per_gpu_gb"]


def test_schedule_compares_what_a_workload_may_run_and_says_why_not_the_rest(refold: Run):
    done = refold(
        "schedule", *PAIR, "--set", "mbs=1", "--set", "gbs=160", "--compare-all", "--json"
    )
    answers = {answer["schedule"]: answer for answer in json.loads(done.out)}
    assert len(answers) == 8
    assert "20 microbatches" not in answers["interleaved"].get("impossible", "")
    done = refold(
        "schedule", *PAIR, "--set", "mbs=1", "--set", "gbs=144", "--compare-all", "--json"
    )
    answers = {answer["schedule"]: answer for answer in json.loads(done.out)}
    assert answers["interleaved"]["impossible"].startswith(
        "interleaved with 18 microbatches, not a"
    )
    assert answers["zbv-greedy-min"]["memory_gb"] < answers["1f1b"]["memory_gb"]
    assert len(answers) == 8
    recomputing = ("--set", "recompute=full", "--set", "recompute_layers=7")
    done = refold("schedule", *PAIR, *recomputing, "--compare-all")
    assert "not possible: zero-bubble, vpp 1: recompute full with schedule zero-bubble" in done.out
    assert fits_100_columns(refold("schedule", *PAIR, "--set", "mbs=1", "--compare-all").out)


def test_schedule_that_may_not_run_says_why_and_fails(refold: Run):
    done = refold("schedule", *PAIR, "--schedule", "interleaved", "--set", "gbs=144")
    assert done.code == 1
    assert "not a multiple of pp 4" in done.out


def test_schedule_writes_a_picture_and_a_trace_of_all_memory(refold: Run, tmp_path: Path):
    files = ("--draw", "p.png", "--trace", "t.json")
    done = refold("schedule", *PAIR, "--schedule", "v-half", "--set", "mbs=1", *files, "--json")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    peaks = [0.0] * 4
    for event in events:
        if event["ph"] == "C":
            peaks[event["tid"]] = max(peaks[event["tid"]], event["args"]["GB"])
    assert peaks == pytest.approx(json.loads(done.out)["memory_gb"])
    plain = ("--schedule", "1f1b", "--pp", 2, "--microbatches", 2, "--draw", "p.svg")
    assert refold("schedule", *plain).code == 0
    assert (tmp_path / "p.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    "arguments",
    [
        ("schedule",),
        ("schedule", "--schedule", "1f1b"),
        ("schedule", "--pp", 2, "--microbatches", 2),
        ("schedule", "--schedule", "1f1b", "--compare-all", "--pp", 2, "--microbatches", 2),
        ("schedule", "workload.yaml"),
        ("schedule", *PAIR, "--pp", 2),
        ("schedule", *PAIR, "--draw", "p.pdf"),
        ("schedule", *PAIR, "--draw", "no/such/folder.png"),
        ("schedule", "--schedule", "1f1b", "--pp", 2, "--microbatches", 2, "--set", "mbs=1"),
        ("schedule", "--schedule", "zero-bubble", "--pp", 4, "--vpp", 3, "--microbatches", 8),
        ("tune", "--workload", "workload.yaml", "--target-cluster", "cluster.yaml", "--dry-run",
         "--mode", "memory-real"),
        ("tune", "--workload", "workload.yaml", "--target-cluster", "cluster.yaml", "--dry-run",
         "--mode", "full"),
        ("tune", "--workload", "workload.yaml", "--target-cluster", "cluster.yaml",
         "--out-dir", ""),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(refold: Run, arguments: tuple[object, ...]):
    done = refold(*arguments)
    assert done.code == 2
    assert done.err.startswith("refold: ")
