"""Forks of a search: what stands, what is evaluated again, and what becomes of the parent."""

import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.forking import fork
from flows.interrupts import Interrupted
from flows.requests import ForkRequest, ResumeRequest
from flows.tune import resume, tune
from schemas.errors import RunNotFound, SpecChanged, UserError
from schemas.events import RoundStarted, RunForked, RunResumed, TrialRejected, TrialScored
from schemas.search import Budget
from storage import Entry, EventLog, State, Store
from storage.extent import Origin
from storage.layout import blobs_prefix, head_key, run_prefix
from storage.verify import verify
from tasks.carry import CARRIED
from tasks.evaluators import Dry
from tests.end_to_end.cutting import but_export, cut, decided
from tests.end_to_end.files import write_inputs
from tests.end_to_end.made_once import Uninterrupted
from tests.end_to_end.searches import request_in, searched
from tests.flows.command import ROOT, command_line, environment
from tests.flows.inline import refold_inline

CALLS = "search.budget.max_perf_calls"


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Uninterrupted:
    """A dry search of 7 seeds with calls for 4 of them."""
    folder = tmp_path_factory.mktemp("parent")
    budget = {"max_perf_calls": 4, "seed_budget": 7}
    found = searched(request_in(folder, budget=budget, mode="dry"))
    assert found.state.spent.perf_calls == 4
    assert given_up(found.state)
    return found


@pytest.fixture
def store(parent: Uninterrupted, tmp_path: Path) -> Path:
    """A copy of the parent's store, without its evaluation cache."""
    ignored = shutil.ignore_patterns("evaluations")
    return Path(shutil.copytree(parent.store, tmp_path / "store", ignore=ignored))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The trials that an evaluator is asked to score, by id."""
    scored: list[str] = []
    score = Dry.score

    def counting(self: Dry, trial: Any) -> Any:
        scored.append(trial.trial_id)
        return score(self, trial)

    monkeypatch.setattr(Dry, "score", counting)
    return scored


def given_up(state: State) -> list[int]:
    rejected = [(n, t.rejected) for n, t in state.trials.items() if t.rejected is not None]
    return [number for number, rejection in rejected if rejection.code == "budget_spent"]


def forked(store: Path, run: str, *, listeners: Any = (), **changes: Any) -> State:
    changes.setdefault("out_dir", store.parent / "out")
    request = ForkRequest(run=run, store=str(store), **changes)
    child = fork(request, stage=but_export, listeners=listeners)
    assert verify(store, child).ok
    return EventLog.open(store, child).state()


def own(store: Path, run: str) -> list[Any]:
    """The events of a run that are in its own folder."""
    return [r for r in EventLog.open(store, run).iterate() if r.envelope.run_id == run]


def bytes_of(store: Path, run: str) -> dict[str, bytes]:
    paths = [*(store / run_prefix(run)).rglob("*"), store / head_key(run)]
    return {str(path): path.read_bytes() for path in paths if path.is_file()}


def test_a_larger_budget_goes_on_where_the_parent_gave_up(
    parent: Uninterrupted, store: Path, asked: list[str]
):
    before = bytes_of(store, parent.run_id)
    state = forked(store, parent.run_id, settings=(f"{CALLS}=0",))
    assert bytes_of(store, parent.run_id) == before
    scored = {t.proposed.trial_id for t in parent.state.trials.values() if t.status == "scored"}
    assert scored.isdisjoint(asked)
    assert state.forks[-1].event.inherits
    assert state.forks[-1].event.changed == (f"{CALLS}: 4 → 0",)
    assert list(state.forks[-1].event.reopened) == given_up(parent.state)
    assert given_up(state) == []
    assert state.conservation.candidates == 7
    for number, trial in parent.state.trials.items():
        if number not in given_up(parent.state):
            assert state.trials[number] == trial
    assert state.spent.perf_calls == 4 + len(set(asked))
    assert state.finished is not None
    assert state.finished.why == "the plan is done"


def test_it_ends_where_a_search_that_always_had_the_budget_ends(
    parent: Uninterrupted, store: Path, tmp_path: Path
):
    state = forked(store, parent.run_id, settings=(f"{CALLS}=0",), seed_budget=9)
    budget = {"max_perf_calls": 0, "seed_budget": 9}
    workload, cluster = write_inputs(tmp_path, optimization={"budget": budget})
    update = {"workload": workload, "target_cluster": cluster, "store": str(tmp_path / "other")}
    run_id = tune(parent.request.model_copy(update=update), stage=but_export)
    whole = EventLog.open(tmp_path / "other", run_id).state()
    results = {n: (t.status, t.score) for n, t in whole.trials.items()}
    assert {n: (t.status, t.score) for n, t in state.trials.items()} == results
    assert (state.incumbent, state.finished) == (whole.incumbent, whole.finished)
    assert state.spent.perf_calls == whole.spent.perf_calls


def test_a_candidate_of_a_language_model_that_was_given_up_is_taken_up_too(
    parent: Uninterrupted, store: Path
):
    number = len(parent.state.trials)
    config = parent.state.trials[0].proposed.config.model_copy(update={"mbs": 4})
    proposed = parent.state.trials[1].proposed.model_copy(
        update={"trial_id": config.trial_id, "config": config, "rule": "llm"}
    )
    spent = TrialRejected(trial_id=config.trial_id, code="budget_spent", reason="spent")
    assert parent.state.rounds[0].finished is not None
    assert parent.state.finished is not None
    with EventLog.open(store, parent.run_id, writing=True) as log:
        entries = [
            Entry(RunResumed(refold_version="1", projection_version="1", reopened=True)),
            Entry(RoundStarted(proposer="llm", planned=1, budget=Budget()), 1),
            Entry(proposed, 1, number),
            Entry(spent, 1, number),
            Entry(parent.state.rounds[0].finished, 1),
            Entry(parent.state.finished),
        ]
        log.append(entries, log.next_seq)
    state = forked(store, parent.run_id, settings=(f"{CALLS}=0",), seed_budget=20)
    assert state.trials[number].status in ("scored", "rejected")
    assert given_up(state) == []
    assert state.conservation.candidates == number + 1  # a seed's number is taken by then


@pytest.mark.parametrize(
    "changes",
    [{"seed_budget": 1}, {"settings": (f"{CALLS}=1",)}, {"at_event": 5, "seed_budget": 1}],
)
def test_a_smaller_budget_than_was_spent_ends_it_and_loses_nothing(
    parent: Uninterrupted, store: Path, asked: list[str], changes: dict[str, Any]
):
    state = forked(store, parent.run_id, **changes)
    assert state.finished is not None
    assert state.conservation.in_flight == 0
    if "at_event" not in changes:
        assert asked == []
        assert decided(state).keys() == decided(parent.state).keys()
        assert state.incumbent == parent.state.incumbent


def test_a_price_changes_nothing_and_asks_nothing(
    parent: Uninterrupted, store: Path, asked: list[str]
):
    state = forked(store, parent.run_id, settings=("cluster.gpu_hour_price=2.5",))
    assert asked == []
    assert state.forks[-1].event.inherits
    assert (state.incumbent, state.spent.perf_calls) == (parent.state.incumbent, 4)
    child = EventLog.open(store, state.run_id)
    assert b'"gpu_hour_price":2.5' in child.get_blob(state.spec.cluster_blob)


@pytest.mark.parametrize(
    "setting", ["cluster.memory_safety_margin=0.2", "search.axes.pp=false", "search.pinned.mbs=1"]
)
def test_what_may_move_a_verdict_has_the_candidates_asked_again_the_best_first(
    parent: Uninterrupted, store: Path, setting: str
):
    state = forked(store, parent.run_id, settings=(setting,))
    assert not state.forks[-1].event.inherits
    carried = [t for t in state.trials.values() if t.proposed.rule == CARRIED]
    best = [trial.proposed.requested for trial in parent.state.ranked() if trial.number]
    assert [trial.proposed.requested for trial in carried][: len(best)] == best
    assert [trial.number for trial in carried] == list(range(1, len(carried) + 1))
    assert state.trials[0].proposed.rule == "baseline"
    assert all(isinstance(r.event, RunForked) for r in own(store, state.run_id)[:1])
    scores = [r for r in own(store, state.run_id) if isinstance(r.event, TrialScored)]
    assert len(scores) == state.spent.perf_calls


def test_another_cluster_is_another_signature_and_every_candidate_is_asked_again(
    parent: Uninterrupted, store: Path, tmp_path: Path
):
    _, cluster = write_inputs(tmp_path, nodes=2)
    state = forked(store, parent.run_id, target_cluster=cluster)
    assert state.spec.signature.cluster != parent.state.spec.signature.cluster
    assert state.spec.signature.model == parent.state.spec.signature.model
    assert "cluster.num_nodes: 4 → 2" in state.forks[-1].event.changed
    assert all(
        trial.evaluation.signature == state.spec.signature
        for trial in state.trials.values()
        if trial.evaluation is not None
    )


def test_another_workload_takes_along_what_was_asked_not_what_it_came_to(
    parent: Uninterrupted, store: Path, tmp_path: Path
):
    overrides = {"micro_batch_size": 1, "pipeline_model_parallel_size": 2}
    workload, _ = write_inputs(tmp_path, overrides=overrides)
    state = forked(store, parent.run_id, workload=workload)
    assert not state.forks[-1].event.inherits
    asked = {t.proposed.requested for t in parent.state.trials.values() if t.number}
    carried = [t for t in state.trials.values() if t.proposed.rule == CARRIED]
    assert {trial.proposed.requested for trial in carried} <= asked
    for trial in carried:
        if trial.proposed.requested.mbs is None:
            assert trial.proposed.config.mbs == 1


def test_a_fork_of_a_fork_at_an_event_both_have_is_the_grandparents(
    parent: Uninterrupted, store: Path
):
    child = forked(store, parent.run_id, settings=(f"{CALLS}=0",))
    grandchild = forked(store, child.run_id, at_event=6)
    (point,) = grandchild.forks
    assert (point.event.parent, point.event.parent_seq) == (parent.run_id, 6)
    assert point.event.asked == f"after event 6 of {child.run_id}"


def test_a_fork_of_a_fork_goes_on_from_its_own_events(parent: Uninterrupted, store: Path):
    child = forked(store, parent.run_id, settings=("cluster.memory_safety_margin=0.2",))
    again = forked(store, child.run_id, settings=(f"{CALLS}=0",))
    assert [point.event.inherits for point in again.forks] == [False, True]
    scored = [n for n, t in child.trials.items() if t.status == "scored"]
    assert all(again.trials[n] == child.trials[n] for n in scored)
    assert again.spent.perf_calls >= child.spent.perf_calls


def test_a_place_in_a_fork_that_began_anew_is_one_of_its_own(parent: Uninterrupted, store: Path):
    child = forked(store, parent.run_id, settings=("cluster.memory_safety_margin=0.2",))
    first = child.forks[-1].seq
    for place in ({"at_round": 0}, {"at_trial": 0}, {"at_round": 1}):
        grandchild = forked(store, child.run_id, **place)
        assert grandchild.forks[-1].event.parent == child.run_id
        assert grandchild.forks[-1].event.parent_seq >= first
        assert grandchild.forks[-1].event.changed == ()
        assert decided(grandchild).keys() == decided(child).keys()


def test_a_trial_that_was_taken_up_again_is_cut_after_its_last_verdict(
    parent: Uninterrupted, store: Path
):
    child = forked(store, parent.run_id, settings=(f"{CALLS}=0",))
    number = given_up(parent.state)[0]
    grandchild = forked(store, child.run_id, at_trial=number)
    assert grandchild.forks[-1].event.parent == child.run_id
    verdicts = [
        record.event
        for record in EventLog.open(store, child.run_id).iterate()
        if record.envelope.trial == number and isinstance(record.event, TrialScored | TrialRejected)
    ]
    assert len(verdicts) == 2


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ({"at_round": 5}, "cannot be cut before round 5, only before 0 to 1"),
        ({"at_trial": 99}, "has no verdict on a trial 99"),
        ({"at_event": 10**9}, "has no event 1000000000: its last is"),
        ({"at_event": 3, "at_trial": 1}, "name one place"),
        ({"settings": ("search.pinned.tp=3",)}, "pinned.tp: 3 is not legal"),
        ({"model_path": (Path(),)}, "give --workload too"),
    ],
)
def test_what_cannot_be_forked_is_said_and_nothing_is_begun(
    parent: Uninterrupted, store: Path, place: dict[str, Any], says: str
):
    with pytest.raises(UserError, match=says):
        forked(store, parent.run_id, **place)
    assert [folder.name for folder in (store / "runs").iterdir()] == [f"run_id={parent.run_id}"]


def cut_child(store: Path, child: str, records: list[Any], events: int, to: Path) -> None:
    """A store with the parent, and a fork that was killed after `events` events of its own."""
    shutil.copytree(store, to, ignore=shutil.ignore_patterns(f"run_id={child}", f"{child}*"))
    shutil.copytree(store / blobs_prefix(child), to / blobs_prefix(child))
    if not events:
        return
    first = records[0].event
    origin = Origin(first.parent, first.parent_seq, first.parent_hash)
    with EventLog.create(to, child, parent=origin) as log:
        entries = [Entry(event, at.round, at.trial) for at, event in records[:events]]
        log.append(entries, log.next_seq)


@pytest.mark.parametrize(
    "setting",
    [
        f"{CALLS}=6",
        pytest.param("cluster.memory_safety_margin=0.2", marks=pytest.mark.slow),
    ],
)
def test_a_fork_killed_after_any_event_is_resumed_to_the_same_end(
    parent: Uninterrupted, store: Path, tmp_path: Path, setting: str
):
    whole = forked(store, parent.run_id, settings=(setting,))
    records = own(store, whole.run_id)
    every = max(1, len(records) // 6)
    for events in sorted({1, 2, 3, *range(4, len(records), every)}):
        copy = tmp_path / f"killed{events}"
        cut_child(store, whole.run_id, records, events, copy)
        resume(ResumeRequest(run=whole.run_id, store=str(copy)), stage=but_export)
        state = EventLog.open(copy, whole.run_id).state()
        assert decided(state) == decided(whole), f"cut after {events} events"
        assert (state.finished, state.incumbent) == (whole.finished, whole.incumbent)
        assert state.spent.perf_calls == whole.spent.perf_calls
        assert verify(copy, whole.run_id).ok


def test_a_fork_killed_before_its_first_event_leaves_nothing_to_resume(
    parent: Uninterrupted, store: Path, tmp_path: Path
):
    whole = forked(store, parent.run_id, settings=(f"{CALLS}=6",))
    cut_child(store, whole.run_id, [], 0, tmp_path / "killed")
    with pytest.raises(RunNotFound):
        resume(ResumeRequest(run=whole.run_id, store=str(tmp_path / "killed")))
    assert Store.at(tmp_path / "killed").run_ids() == [parent.run_id]
    forked(tmp_path / "killed", "latest")


def test_an_interrupted_fork_says_how_to_go_on_and_does(
    parent: Uninterrupted, store: Path, tmp_path: Path
):
    def interrupt(event: object, at: Any) -> None:
        if at.run_id != parent.run_id and isinstance(event, TrialScored):
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as stopped:
        forked(store, parent.run_id, settings=(f"{CALLS}=0",), listeners=[interrupt])
    assert EventLog.open(store, stopped.value.run_id).state().status == "interrupted"
    resume(ResumeRequest(run=stopped.value.run_id, store=str(store)), stage=but_export)
    whole = forked(store, parent.run_id, settings=(f"{CALLS}=0",))
    assert decided(EventLog.open(store, stopped.value.run_id).state()) == decided(whole)


def test_a_running_parent_is_forked_as_far_as_it_has_got_and_goes_on(
    parent: Uninterrupted, tmp_path: Path
):
    children: list[State] = []

    def fork_it(event: object, at: Any) -> None:
        if isinstance(event, TrialScored) and not children:
            store = tmp_path / "store"
            before = bytes_of(store, at.run_id)
            children.append(forked(store, at.run_id, settings=(f"{CALLS}=0",)))
            assert bytes_of(store, at.run_id) == before

    request = parent.request.model_copy(update={"store": str(tmp_path / "store")})
    run_id = tune(request, stage=but_export, listeners=[fork_it])
    (child,) = children
    assert child.finished is not None
    state = EventLog.open(tmp_path / "store", run_id).state()
    assert decided(state) == decided(parent.state)
    assert verify(tmp_path / "store", child.run_id).ok  # the parent was compacted since
    assert child.forks[-1].event.parent_seq < state.head_seq


DIES = """
    import os, signal, sys
    from pathlib import Path
    from flows.forking import fork
    from flows.requests import ForkRequest

    def die(event, at):
        if at.seq == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)

    setting = "search.budget.max_perf_calls=0"
    request = ForkRequest(
        run=sys.argv[1], store=sys.argv[2], settings=(setting,), out_dir=Path(sys.argv[2]) / "out"
    )
    fork(request, listeners=[die])
"""


@pytest.mark.slow
def test_a_forking_process_that_is_killed_leaves_a_run_to_resume(
    parent: Uninterrupted, store: Path, tmp_path: Path
):
    whole = forked(store, parent.run_id, settings=(f"{CALLS}=0",))
    first = whole.forks[-1].seq
    for seq in (first, first + 2, whole.head_seq):
        copy = tmp_path / f"killed{seq}"
        shutil.copytree(parent.store, copy, ignore=shutil.ignore_patterns("evaluations"))
        killed = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(DIES), parent.run_id, str(copy), str(seq)],
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            check=False,
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        child = Store.at(copy).find_run("latest")
        assert child != parent.run_id
        resume(ResumeRequest(run=child, store=str(copy), out_dir=tmp_path / "o"), stage=but_export)
        state = EventLog.open(copy, child).state()
        assert decided(state) == decided(whole)
        assert state.finished == whole.finished
        assert verify(copy, child).ok


@pytest.mark.slow
def test_two_forks_at_once_are_two_runs(parent: Uninterrupted, store: Path, tmp_path: Path):
    processes = [
        subprocess.Popen(
            command_line(
                *("fork", parent.run_id, "--store", store, "--out-dir", tmp_path / str(calls)),
                *("--set", f"{CALLS}={calls}", "--json"),
            ),
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for calls in (5, 6)
    ]
    for process in processes:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
    _, *children = Store.at(store).run_ids()
    assert len(children) == 2
    for child in children:
        assert verify(store, child).ok
    spent = {EventLog.open(store, child).state().spent.perf_calls for child in children}
    assert spent == {5, 6}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"nodes": 8}, {"cluster": 8}),
        ({"overrides": {"micro_batch_size": 1}}, {"mbs": 1}),
        ({"optimization": {"budget": {"max_perf_calls": 5}}}, {"calls": 5}),
    ],
)
def test_the_fork_that_a_refused_resume_prints_works_as_it_stands(
    parent: Uninterrupted,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    expected: dict[str, int],
):
    store, folder = tmp_path / "a store", tmp_path / "it's here"
    cut(parent, 20, store)
    folder.mkdir()
    optimization = {"budget": {"max_perf_calls": 4, "seed_budget": 7}}
    workload, cluster = write_inputs(folder, **{"optimization": optimization, **change})
    options = ("--workload", workload, "--target-cluster", cluster, "--store", store)
    wanted = ("--mode", "memory-real", "--seed-budget", 3, "--gemm-backend", "tile")
    ended = refold_inline(
        capsys, "tune", *options, *wanted, "--resume", "--out-dir", tmp_path / "o"
    )
    assert ended.code == 2
    assert "search.mode: dry → memory-real" in ended.err
    (command,) = [line for line in ended.err.splitlines() if "refold fork" in line]
    arguments = shlex.split(command[command.index("refold fork") :])[1:]
    ended = refold_inline(capsys, *arguments, "--out-dir", tmp_path / "fork", "--json")
    assert ended.code == 0, ended.err
    child = Store.at(store).find_run("latest")
    spec = EventLog.open(store, child).state().spec
    assert spec.search.mode == "memory-real"
    assert spec.search.budget.seed_budget == 3
    log = EventLog.open(store, child)
    if "cluster" in expected:
        assert f'"num_nodes":{expected["cluster"]}'.encode() in log.get_blob(spec.cluster_blob)
    if "mbs" in expected:
        assert b'"mbs":1' in log.get_blob(spec.workload_blob)
    if "calls" in expected:
        assert spec.search.budget.max_perf_calls == expected["calls"]
    assert (tmp_path / "fork" / "summary.json").is_file()


def test_a_resume_that_is_refused_for_refold_itself_is_a_fork_away(
    parent: Uninterrupted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store = tmp_path / "store"
    cut(parent, 20, store)
    monkeypatch.setattr("projection.signature.PROJECTION_VERSION", "another")
    with pytest.raises(SpecChanged, match=r"stack\.projection: .* → another") as refused:
        resume(ResumeRequest(run=parent.run_id, store=str(store)), stage=but_export)
    assert f"refold fork {parent.run_id} --store {store}" in str(refused.value.hint)
    state = forked(store, parent.run_id)
    assert not state.forks[-1].event.inherits
    (changed,) = state.forks[-1].event.changed
    assert changed.startswith("stack.projection: ")
