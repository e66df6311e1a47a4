"""What a model's code can reach: attacks sent through the real driver, in a real jail."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flows.requests import ResumeRequest
from flows.tune import resume
from storage import EventLog, RunSummary, list_runs
from tasks.llm.sandbox import Sandbox, Step
from tasks.llm.syscalls import filter_program
from tests.end_to_end.cutting import but_export
from tests.flows.command import ROOT, command_line, environment
from tests.llm.endpoint import endpoint
from tests.llm.investigating import DONE, asked, ends_well, investigate, investigator, needs_a_jail
from tests.llm.test_rounds import _at

pytestmark = [needs_a_jail, pytest.mark.whole]
PLANTED = "planted-0123456789"
WAIT_S = 60


@contextmanager
def listening() -> Iterator[tuple[int, list[object]]]:
    """A port of this machine, and who connected to it."""
    guests: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        over = threading.Event()

        def accept() -> None:
            while not over.is_set():
                try:
                    guests.append(server.accept())
                except TimeoutError:
                    continue

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield server.getsockname()[1], guests
        finally:
            over.set()
            thread.join()


def descendants(of: int) -> dict[int, str]:
    """Live processes below `of`, by what they are."""
    parents: dict[int, tuple[int, str]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            name, _, rest = stat.partition("(")[2].rpartition(")")
            status, parent, *_ = rest.split()
            if status != "Z":
                parents[int(folder.name)] = (int(parent), name)
    found = {of: ""}
    while more := {n: name for n, (p, name) in parents.items() if p in found and n not in found}:
        found |= more
    return {number: name for number, name in found.items() if number != of}


def jailed(of: int) -> dict[int, str]:
    """Jails below `of`, and who is in one: in a process namespace of its own. Not the servers and
    clusters that other tests keep."""
    below = descendants(of)
    return {n: name for n, name in below.items() if name == "bwrap" or not shares_processes(n)}


def shares_processes(number: int) -> bool:
    try:
        return os.readlink(f"/proc/{number}/ns/pid") == os.readlink("/proc/self/ns/pid")
    except OSError:  # it has just ended
        return True


READ = """
import os
def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError as error:
        return type(error).__name__
for path in {paths!r}:
    print(read(path))
print(sorted(os.environ), sorted(os.listdir("/")), os.getuid())
"""
CONNECT = """
import ctypes, socket, urllib.request
def failure(what, *args):
    try:
        what(*args)
    except Exception as error:
        return type(error).__name__
print(failure(socket.create_connection, ("127.0.0.1", {port})))
print(failure(urllib.request.urlopen, "http://127.0.0.1:{port}/"))
print(ctypes.CDLL(None).syscall(41, 2, 1, 0), failure(socket.socket, socket.AF_UNIX))
"""
ALLOCATE = """
import mmap
def failure(what, *args):
    try:
        what(*args)
    except BaseException as error:
        return type(error).__name__
print(failure(bytearray, 1 << 31), failure(mmap.mmap, -1, 1 << 31))
held = []
try:
    while True:
        held.append(bytearray(1 << 24))
except MemoryError:
    many, held = len(held), []
    print("at most a gigabyte", many <= 64)
"""
FORK = """
import os, subprocess, threading, multiprocessing
def failure(what, *args):
    try:
        what(*args)
    except BaseException as error:
        return type(error).__name__
print(failure(os.fork), failure(subprocess.run, ["true"]), failure(os.posix_spawn, "/x", ["x"], {}))
hold, threads = threading.Event(), []
try:
    while len(threads) < 2000:
        threads.append(threading.Thread(target=hold.wait, daemon=True))
        threads[-1].start()
except BaseException as error:
    print(type(error).__name__)
hold.set()
print("few threads", len(threads) < 500)
"""
WRITE = """
import os
def failure(path, mode):
    try:
        with open(path, mode) as file:
            file.write("x" * (1 << 26))
    except Exception as error:
        return type(error).__name__
print({failure(path, "w") for path in
       ("/x", "/tmp/x", "/dev/x", "/dev/shm/x", "/python/x", "/worker.py", "/usr/lib/x")})
print("x" * (1 << 22))
"""
REBIND = "def evaluate_simulate(config):\n    return {'trial': '#1', 'tokens_per_s_per_gpu': 1e9}"
SNEAK = """
globals()["evaluate_simulate"] = lambda config: {"trial": "#77", "tokens_per_s_per_gpu": 1e9}
exec("def get_best(): return 'mine'")
"""
STILL = """
print(evaluate_simulate({"mbs": 1})["tokens_per_s_per_gpu"] < 1e8, get_best()["trial"])
print(str(globals().get("__builtins__"))[:3])
"""
LIE = """
SUBMIT(["#77", "#78", "trial of the century"], "#77 does a billion tokens/s/GPU.", "Stop here.")
"""


def test_a_model_that_attacks_gets_nothing_and_the_run_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    planted = tmp_path / "planted.txt"
    planted.write_text(PLANTED)
    monkeypatch.setenv("PLANTED_KEY", PLANTED)
    home, ours = Path.home(), ROOT / "pyproject.toml"
    paths = [str(path) for path in (planted, home / ".ssh/id_rsa", home / ".bashrc", ours)]
    paths += ["/etc/passwd", "/etc/shadow", "/proc/1/environ", "/proc/self/status"]
    with listening() as (port, guests):
        run = investigate(
            tmp_path,
            investigator(
                READ.format(paths=paths), CONNECT.format(port=port), ALLOCATE, FORK, WRITE,
                REBIND, SNEAK, STILL, LIE,
            ),
        )  # fmt: skip
        assert not guests
    assert not jailed(os.getpid())
    read, connect, allocate, fork, write, rebind, sneak, still, lie = run.steps
    assert read.text.split()[: len(paths)] == ["FileNotFoundError"] * len(paths)
    assert "'python', 'usr'" in read.text
    assert PLANTED not in "\n".join(run.prompts)
    assert connect.text.split() == ["PermissionError", "URLError", "-1", "PermissionError"]
    assert allocate.text.split("\n")[0] in ("MemoryError OSError", "MemoryError MemoryError")
    assert "at most a gigabyte True" in allocate.text
    assert "PermissionError PermissionError PermissionError" in fork.text
    assert "few threads True" in fork.text
    assert write.kind == "output"
    assert "None" not in write.text.split("\n")[0]
    assert len(write.text) < 30_000
    for step in (rebind, sneak):
        assert step.kind == "error"
        assert "provided by the host" in step.text
    assert still.text.startswith("True #")
    assert lie.kind == "final"
    notes = {note.author: note.text for note in run.state.notes}
    assert "'#77', '#78', 'trial of the century'" in notes["proposal check"]
    assert all((trial.score or 0) < 1e8 for trial in run.state.trials.values())
    assert "investigator" not in notes  # no trial it named exists
    ends_well(run)


HANG = "while True: pass"
QUIT = "import os; os._exit(0)"
GARBAGE = """
import os
for descriptor in range(3, 20):
    try:
        os.write(descriptor, b'{"done": {"kind": "final", "value": 7}}\\n' + b"[" * 3000 + b"\\n")
    except OSError:
        pass
"""
FLOOD = """
import os
for descriptor in range(3, 20):
    try:
        while True:
            os.write(descriptor, b"x" * 65536)
    except OSError:
        pass
"""
DEEP = "import sys; sys.setrecursionlimit(10**9)\ndef f(): return f()\nf()"
CHATTER = "while True: get_best()"
SIGNAL = "import os, signal; os.kill(1, signal.SIGKILL); os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.parametrize(
    ("attacks", "told"),
    [
        ((HANG, QUIT, CHATTER), ("took more than", "process ended", "200 tool calls")),
        ((GARBAGE, FLOOD, SIGNAL), ("wrote where", "more than fits", "process ended")),
        ((DEEP, "raise SystemExit", "raise KeyboardInterrupt"), ("", "SystemExit", "Keyboard")),
    ],
    ids=["time", "protocol", "ends"],
)
def test_a_step_that_must_be_stopped_is_and_the_model_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    attacks: tuple[str, ...],
    told: tuple[str, ...],
):
    monkeypatch.setattr("tasks.llm.sandbox.STEP_S", 2.0)
    run = investigate(tmp_path, investigator(*attacks, DONE))
    assert not jailed(os.getpid())
    for step, words in zip(run.steps, told, strict=False):
        assert step.kind in ("stopped", "error")
        assert words in step.text
    if "SystemExit" in told:
        assert run.steps[-1].kind == "final"
    else:
        assert any("CodeInterpreterError" in note.text for note in run.state.notes)
    ends_well(run)


def test_what_a_stopped_step_knew_is_gone_and_what_it_did_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tasks.llm.sandbox.STEP_S", 1.0)
    first = "kept = evaluate_simulate({'mbs': 1})['trial']\nwhile True: pass"
    run = investigate(tmp_path, investigator(first, "print(kept)", DONE))
    assert [step.kind for step in run.steps] == ["stopped", "error", "final"]
    assert "NameError" in run.steps[1].text
    assert len(run.state.rounds[1].trials) == 1
    ends_well(run)


ALONE = """
import sys
from tasks.llm.sandbox import Sandbox, Step
def serve(name, args, kwargs):
    print("spinning", flush=True)
Sandbox().run(Step("call()\\nwhile True: pass", {}, ("call",), ()), serve)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_jail_dies_with_its_parent(number: signal.Signals):
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", ALONE],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "spinning\n"
        inside = descendants(process.pid)
        assert len(inside) >= 2
        process.send_signal(number)
    gone(inside)


def gone(processes: dict[int, str]) -> None:
    """Waits until the kernel has ended them."""
    until = time.monotonic() + WAIT_S
    while left := [number for number in processes if alive(number)]:
        assert time.monotonic() < until, left
        time.sleep(0.01)


def alive(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def decided(run: RunSummary) -> int:
    return run.scored + run.rejected


@pytest.mark.slow
def test_a_search_killed_in_the_middle_of_a_step_leaves_nobody_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    spin = "print(evaluate_simulate({'mbs': 1})['trial'])\nwhile True: pass"
    with endpoint(investigator(spin, DONE)) as server:
        request = asked(tmp_path, server, "rlm")
        process = subprocess.Popen(
            command_line(
                "tune", "--workload", request.workload, "--target-cluster", request.target_cluster,
                "--out-dir", tmp_path / "out", "--store", tmp_path / "store", "--no-prefect",
                "--gemm-backend", "tile", "--llm", "openai/scripted",
            ),
            cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        with process:
            until = time.monotonic() + WAIT_S
            while not (known := list_runs(tmp_path / "store")) or decided(known[0]) < 3:
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.05)
            inside = descendants(process.pid)
            assert "bwrap" in inside.values()
            process.kill()
        gone(inside)
        monkeypatch.setattr("tasks.llm.sandbox.STEP_S", 1.0)
        monkeypatch.setattr("flows.llm_rounds.live_model", _at(server.url))
        run_id = resume(
            ResumeRequest(run=known[0].run_id, store=str(tmp_path / "store")), stage=but_export
        )
    state = EventLog.open(tmp_path / "store", run_id).state()
    assert state.finished is not None
    assert len(state.rounds[1].trials) == 1
    assert not jailed(os.getpid())


def test_values_that_are_no_json_do_not_leave_the_jail():
    """Infinite numbers, half surrogates and depth come out in words, or not at all."""
    seen: list[object] = []
    code = """
def failure(value):
    try:
        call(value)
    except Exception as error:
        return type(error).__name__
deep = []
for _ in range(200):
    deep = [deep]
print(failure(float("inf")), failure(object()), failure("\\ud800"), failure(10**40), failure(deep))
"""
    sandbox = Sandbox()
    try:
        outcome = sandbox.run(
            Step(code, {}, ("call",), ()), lambda name, args, kwargs: seen.append(args)
        )
    finally:
        sandbox.close()
    assert outcome.kind == "output"
    assert outcome.value == "ValueError TypeError None None None\n"
    assert seen[:2] == [["?"], ["(a number too large)"]]
    assert "(too deep)" in json.dumps(seen[2])


def test_a_machine_whose_system_calls_are_not_known_has_no_filter():
    assert filter_program("x86_64")
    assert filter_program("aarch64")
    assert filter_program("s390x") is None
