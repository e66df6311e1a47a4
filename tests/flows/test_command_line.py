"""The command line as such: what it offers, how fast it starts, and how it ends."""

import errno
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from flows.cli import app
from flows.verbs import Verbs
from schemas import errors
from tests.end_to_end.files import write_inputs
from tests.flows.command import PROGRAM, ROOT, command_line, environment, refold

pytestmark = pytest.mark.whole

FILES = ["WORKLOAD", "CLUSTER", "--model-path", "--json"]
SCORING = ("--scoring", "--workers", "--scoring-address")
OFFERED = {
    "tune": [
        "--workload", "--target-cluster", "--out-dir", "--mode", "--profiling-mode", "--dry-run",
        *SCORING, "--seed-only", "--no-agent", "--agent-only", "--resume", "--no-recall",
        "--seed-budget",
        "--search",
        "--llm", "--model-path", "--store", "--prefect", "--no-prefect", "--gemm-backend",
        "--memory-regime", "--json",
    ],
    "resume": [
        "RUN", "--store", "--out-dir", "--llm", *SCORING, "--prefect", "--no-prefect", "--json",
    ],
    "fork": [
        "RUN", "--at-round", "--at-trial", "--at-event", "--workload", "--target-cluster", "--set",
        "--seed-budget", "--llm", "--out-dir", "--model-path", "--store", *SCORING,
        "--prefect", "--no-prefect", "--json",
    ],
    "nightly": [
        "TARGETS", "--serve", "--slot", "--store", "--out-dir", "--prefect", "--no-prefect",
        *SCORING, "--json",
    ],
    "nights": ["[NIGHT]", "--verify", "--out-dir", "--last", "--store", "--json"],
    "check": [*FILES, "--set"],
    "axes": [*FILES, "--why"],
    "workloads": ["DIR", "--model-path", "--json"],
    "signature": [*FILES, "--gemm-backend", "--detect", "--all"],
    "project": [
        "[WORKLOAD]", "[CLUSTER]", "--set", "--batch", "--model-path", "--gemm-backend",
        "--memory-regime", "--explain", "--equation", "--json",
    ],
    "calibrate": ["--from", "--out-dir", "--start", "--gemm-backend", "--store", "--json"],
    "runs": ["--store", "--json"],
    "show": ["RUN", "--store", "--events", "--json"],
    "export": ["RUN", "--store", "--out-dir", "--json"],
    "verify": ["RUN", "--store", "--json"],
    "best": [*FILES, "--mode", "--store", "--gemm-backend", "--memory-regime"],
    "replay": ["RUN", "--at-round", "--at-trial", "--at-event", "--verify", "--store", "--json"],
    "lineage": [
        "RUN", "--trial", "--as-of", "--dot", "--svg", "--bundle", "--store", "--json",
    ],
    "sensitivity": ["RUN", "--trial", "--store", "--json"],
    "diff": ["A", "B", "--store", "--json"],
    "invalidate": ["RUN", "TRIAL", "--why", "--store", "--json"],
    "prompt-eval": [
        "RUN...", "--llm", "--prompt", "-k", "--proposals", "--optimize", "--metric-calls",
        "--store", "--json",
    ],
    "placement": [*FILES, "--set"],
    "collective": [
        "KIND", "BYTES", "--gpus", "--group", "--bytes", "--per-node", "--gpu", "--target-cluster",
        "--cluster", "--json",
    ],
    "schedule": [
        "[WORKLOAD]", "[CLUSTER]", "--set", "--schedule", "--vpp", "--pp", "--microbatches",
        "--f", "--b", "--w", "--p2p", "--compare-all", "--draw", "--trace", "--ascii",
        "--no-ascii", "--model-path", "--gemm-backend", "--json",
    ],
    "server": ["--host", "--port", "--store", "--ui", "--no-ui", "--json"],
    "fidelity": ["--source", "--rows", "--plots", "--ranges", "--gemm-backend", "--json"],
}  # fmt: skip

HEAVY = (
    "distributed",
    "ray",
    "prefect",
    "torch",
    "dspy",
    "litellm",
    "polars",
    "matplotlib",
    "pyarrow",
    "pydantic",
    "rich",
)


def offered_by(command: object) -> list[str]:
    found: list[str] = []
    for parameter in command.params:  # type: ignore[attr-defined]
        if parameter.param_type_name == "argument":
            found.append(parameter.metavar)
        elif parameter.name != "help":
            found += [*parameter.opts, *parameter.secondary_opts]
    return found


def test_it_offers_these_verbs_and_options_and_no_others():
    verbs = get_command(app).commands  # type: ignore[attr-defined]
    assert {name: sorted(offered_by(verb)) for name, verb in verbs.items()} == {
        name: sorted(options) for name, options in OFFERED.items()
    }


@pytest.mark.parametrize("verb", OFFERED)
def test_every_verb_has_an_example_of_itself_in_its_help(verb: str, tmp_path: Path):
    shown = refold(verb, "--help", cwd=tmp_path)
    assert shown.returncode == 0
    assert f"  refold {verb}" in shown.stdout.partition("Examples:")[2]


def test_help_imports_nothing_heavy():
    program = (
        "import sys\nsys.argv = ['refold', '--help']\nfrom flows.cli import main\n"
        "try:\n    main()\nfinally:\n"
        f"    print(*sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == ""
    assert "Commands:" in done.stdout


def test_help_takes_less_than_half_a_second_of_processor_time(tmp_path: Path):
    """Processor time, which a busy machine does not stretch as it does the clock's."""

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def took() -> float:
        before = spent()
        refold("--help", cwd=tmp_path)
        return spent() - before

    assert min(took() for _ in range(3)) < 0.5


def test_without_a_verb_it_shows_the_help_and_fails(tmp_path: Path):
    done = refold(cwd=tmp_path)
    assert done.returncode == 2
    assert "Commands:" in done.stderr
    assert done.stdout == ""


SCHEDULE = ("schedule", "--pp", "2", "--microbatches", "4", "--schedule")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["tuen"], "Did you mean 'tune'"),
        (["tune"], "--workload"),
        (["tune", "--workloda", "w.yaml"], "--workload"),
        (["tune", "--workload", "w", "--target-cluster", "c", "--seed-budget", "many"], "integer"),
        (["schedule", "--pp", "0", "--microbatches", "4"], "--pp"),
        (
            ["schedule", "--schedule", "1f1bb", "--pp", "2", "--microbatches", "4"],
            "did you mean '1f1b'?",
        ),
        (["collective", "allreduce", "12 apples", "--gpu", "mi355x", "--gpus", "8"], "512MB"),
        (["project", "--batch", "nowhere.jsonl"], "nowhere.jsonl: No such file"),
        (["project", "w.yaml"], "name a WORKLOAD and a CLUSTER"),
        (["check", "nowhere.yaml", "nowhere.yaml"], "nowhere.yaml"),
        (["runs", "--store", ""], "'--store': is empty"),
        (["runs", "--store", "x" * 300], "more than 255 bytes"),
        (["export", "latest", "--out-dir", " "], "'--out-dir': is empty"),
        (["resume", "latest", "--out-dir", ""], "'--out-dir': is empty"),
        (["workloads", ""], "is empty"),
        (["check", "w.yaml", "c.yaml", "--model-path", ""], "'--model-path': is empty"),
        (["collective", "allreduce", "0", "--gpu", "mi355x", "--gpus", "8"], "between 1 and 2^60"),
        (["collective", "allreduce", "9" * 400, "--gpu", "mi355x", "--gpus", "8"], "2^60 bytes"),
        (["collective", "allreduce", "1", "--gpu", "mi355x", "--gpus", "9" * 30], "--gpus"),
        (["schedule", "--schedule", "1f1b", "--pp", "100000", "--microbatches", "2"], "1024"),
        (
            ["schedule", "--schedule", "1f1b", "--pp", "1024", "--microbatches", "2000"],
            "may hold 200,000",
        ),
        ([*SCHEDULE, "ilp", "--f", "inf"], "durations and P2P delays must be finite"),
        ([*SCHEDULE, "v-min", "--p2p", "1e308"], "durations and P2P delays must be finite"),
        (["schedule", "w.yaml", "c.yaml", "--f", "3"], "are for a pipeline without files"),
        ([*SCHEDULE, "1f1b", "--trace", "/dev/full"], "/dev/full: No space left on device"),
        (["show", "nothing-like-it"], "no run 'nothing-like-it'"),
        (["lineage", "nothing-like-it"], "no run 'nothing-like-it'"),
        (["diff", "latest", "latest"], "no run 'latest'"),
        (["invalidate", "latest", "3"], "--why"),
    ],
)
def test_a_mistake_is_one_line_exit_code_2_and_no_traceback(
    arguments: list[str], says: str, tmp_path: Path
):
    done = refold(*arguments, cwd=tmp_path)
    lines = done.stderr.splitlines()
    assert done.returncode == 2
    assert done.stdout == ""
    assert lines[0].startswith("refold: ")
    assert says in lines[0]
    assert all(line.startswith("  ") for line in lines[1:])
    assert len(lines) <= 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--profiling-mode", "benchmark"], "--profiling-mode benchmark is not in this version"),
        (["--profiling-mode", "both"], "--profiling-mode both is not in this version"),
        (["--search", "tpe"], "--search tpe is not in this version"),
    ],
)
def test_what_this_version_lacks_is_refused_with_exit_code_3(
    arguments: list[str], says: str, tmp_path: Path
):
    done = refold("tune", "--workload", "w", "--target-cluster", "c", *arguments, cwd=tmp_path)
    assert done.returncode == 3
    assert says in done.stderr.splitlines()[0]
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def every_error() -> list[type[errors.RefoldError]]:
    found, todo = [], [errors.RefoldError]
    while todo:
        kind = todo.pop()
        found.append(kind)
        todo += kind.__subclasses__()
    return [kind for kind in found if kind.__module__ == errors.__name__]


def ending(raised: BaseException, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and stderr of a command line whose only verb raises."""
    line = typer.Typer(cls=Verbs, rich_markup_mode=None, add_completion=False)

    @line.command()
    def verb() -> None:
        raise raised

    @line.command()
    def other() -> None: ...

    with pytest.raises(SystemExit) as ended:
        get_command(line).main(["verb"])
    code = ended.value.code
    assert isinstance(code, int)
    return code, capsys.readouterr().err


@pytest.mark.parametrize("kind", every_error())
def test_every_error_of_ours_ends_with_its_code_and_says_what_to_do(
    kind: type[errors.RefoldError], capsys: pytest.CaptureFixture[str]
):
    code, shown = ending(kind("what\nwent wrong", hint="do this"), capsys)
    assert code == kind.exit_code
    assert shown == "refold: what went wrong\n  do this\n"


def test_a_bug_keeps_its_traceback_and_has_a_code_of_its_own(capsys: pytest.CaptureFixture[str]):
    code, shown = ending(ZeroDivisionError("a bug"), capsys)
    assert code == 70
    assert "Traceback" in shown
    assert "ZeroDivisionError: a bug" in shown
    assert shown.splitlines()[-1].startswith("refold: this is a bug in Refold")


def test_a_full_disk_anywhere_is_the_environment(capsys: pytest.CaptureFixture[str]):
    code, shown = ending(OSError(errno.ENOSPC, "No space left on device", "some/file"), capsys)
    assert (code, shown) == (3, "refold: some/file: No space left on device\n")


LONG_OUTPUT = ("schedule", "--schedule", "1f1b", "--pp", "512", "--microbatches", "8")


@pytest.mark.parametrize("arguments", [("--help",), ("runs",), LONG_OUTPUT])
def test_output_that_cannot_be_written_is_one_line_and_exit_code_3(
    arguments: tuple[str, ...], tmp_path: Path
):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command_line(*arguments),
            cwd=tmp_path,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 3
    assert done.stderr == "refold: the output cannot be written: No space left on device\n"


def closed(redirection: str, *arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["/bin/sh", "-c", f'"$@" {redirection}', "sh", *command_line(*arguments)],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_closed_stdout_is_one_line_and_exit_code_3(tmp_path: Path):
    done = closed(">&-", "runs", cwd=tmp_path)
    assert done.returncode == 3
    assert done.stderr.startswith("refold: standard output is closed")
    assert len(done.stderr.splitlines()) == 1


def test_a_closed_stderr_puts_nothing_on_stdout(tmp_path: Path):
    done = closed("2>&-", "show", "nothing", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize("which", ["--out-dir", "--workload"])
def test_a_name_that_a_run_cannot_record_is_refused_before_there_is_a_run(
    which: str, tmp_path: Path
):
    write_inputs(tmp_path)
    (tmp_path / "wé.yaml").write_text((tmp_path / "workload.yaml").read_text())
    names = {"--workload": "workload.yaml", "--target-cluster": "cluster.yaml"}
    names[which] = "wé.yaml" if which == "--workload" else "oé"
    ascii_only = environment(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    arguments = [word for pair in names.items() for word in pair]
    done = refold("tune", *arguments, "--no-prefect", cwd=tmp_path, env=ascii_only)
    assert done.returncode == 2
    assert "is not text in this locale's encoding" in done.stderr
    assert not (tmp_path / ".refold").exists()


def test_where_the_terminal_has_no_unicode_json_is_still_json(tmp_path: Path):
    write_inputs(tmp_path)
    ascii_only = environment(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    arguments = ("axes", "workload.yaml", "cluster.yaml")
    plain = refold(*arguments, "--why", cwd=tmp_path, env=ascii_only)
    assert plain.returncode == 0
    assert plain.stdout.isascii()
    there = refold(*arguments, "--json", cwd=tmp_path, env=ascii_only)
    here = refold(*arguments, "--json", cwd=tmp_path)
    assert json.loads(there.stdout) == json.loads(here.stdout)


def test_an_interrupt_ends_with_130(capsys: pytest.CaptureFixture[str]):
    code, shown = ending(KeyboardInterrupt(), capsys)
    assert code == 130
    assert "Traceback" not in shown


def test_a_reader_that_goes_away_is_no_error():
    """`refold schedule … | head -0`, with more output than a pipe holds."""
    arguments = ("schedule", "--schedule", "1f1b", "--pp", "900", "--microbatches", "8")
    writer = subprocess.Popen(
        command_line(*arguments),
        env=environment(),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    writer.stdout.close()
    shown = writer.stderr.read().decode()
    writer.stderr.close()
    assert writer.wait(60) == 141
    assert shown == ""


def test_schedule_json_is_json(tmp_path: Path):
    size = ("--pp", 4, "--microbatches", 8)
    done = refold("schedule", "--schedule", "1f1b", *size, "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["makespan"] == 33.0


def test_the_module_runs_as_the_console_command_does():
    assert "main()" in PROGRAM
