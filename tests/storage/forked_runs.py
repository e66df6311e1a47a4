"""Small stores for the tests of lineages: runs with blobs, forks, an LLM call and corrections."""

from collections.abc import Sequence
from pathlib import Path

from schemas.evaluation import SignatureHashes
from schemas.events import (
    AxesDerived,
    Event,
    LLMCalled,
    NoteTaken,
    RoundStarted,
    RunForked,
    RunStarted,
    TrialInvalidated,
    TrialProposed,
)
from schemas.search import Budget
from schemas.signature import content_hash
from schemas.trial import TrialConfig
from storage import Entry, EventLog
from storage.canonical import canonical
from storage.extent import Origin
from tests.builders import cluster
from tests.storage.builders import (
    Clock,
    axes,
    finished,
    proposed,
    rejected,
    round_finished,
    round_started,
    scored,
    started,
    trial_number,
    write,
)
from tests.storage.workloads import workload

PARENT = "20260304t050607-000000-aaaaaaaa"
CHILD = "20260304t060607-000000-bbbbbbbb"
OTHER = "20260304t070607-000000-cccccccc"
REQUEST, ANSWER = "which trial next?\n" * 20, '{"mbs": 1}'
PARTS = {"model": {"layers": 56}, "cluster": {"nodes": 4}, "stack": {"rocm": "7.0"}}
SIGNATURE = SignatureHashes(**{part: content_hash(made_of) for part, made_of in PARTS.items()})


def spec(log: EventLog, **changes: object) -> RunStarted:
    """What a run of `log` starts with, its blobs beside it."""

    def put(model: object) -> str:
        return log.put_blob(canonical(model.model_dump(mode="json")).encode())  # type: ignore[attr-defined]

    job = workload().model_copy(update={"files": {"w.yaml": "f" * 64, "refold:a.yaml": "e" * 64}})
    values: dict[str, object] = {
        "workload_blob": put(job),
        "cluster_blob": put(cluster()),
        "input_blobs": {"w.yaml": log.put_blob(b"work: 1\n"), "c.yaml": log.put_blob(b"c: 1\n")},
        "signature": SIGNATURE,
        "signature_parts": {**PARTS, "origin": {"rocm": "declared"}},
    }
    return started(**(values | changes))


def call(log: EventLog, number: int = 0) -> LLMCalled:
    return LLMCalled(
        call=number,
        role="planner",
        model="a/model",
        prompt_hash="a" * 16,
        request_key="b" * 16,
        request_blob=log.put_blob(REQUEST.encode()),
        answer_blob=log.put_blob(ANSWER.encode()),
        input_tokens=100,
        output_tokens=20,
        cost_usd=0.01,
        latency_ms=1500.0,
    )


def of_call(number: int) -> TrialProposed:
    """Trial `number`, as the first LLM call proposed it."""
    return proposed(number, rule="planner", tag="smaller").model_copy(update={"call": 0})


def carried(number: int, of: TrialProposed) -> TrialProposed:
    """Trial `number` of a fork: what `of` was in its parent."""
    return of.model_copy(update={"rule": "carried", "why": f"trial {number}", "call": None})


def invalidated(number: int, incumbent: int) -> TrialInvalidated:
    """Trial `number` of the parent is wrong; `incumbent` is then the best."""
    return TrialInvalidated(
        trial_id=trial_number(number).trial_id,
        why="a wrong driver",
        author="a test",
        incumbent=incumbent,
        incumbent_trial_id=trial_number(incumbent).trial_id,
        incumbent_tokens_per_s_per_gpu=scored(incumbent).evaluation.tokens_per_s_per_gpu,
    )


def parent_run(root: Path) -> None:
    """Seeds 0 and 1 (rejected) and 2; then a call proposes 3, the best; notes name it."""
    notes = ("#3 looks good", "trial 3!", "see #30", "it is smaller", "smaller-still")
    with EventLog.create(root, PARENT, clock=Clock()) as log:
        seeds = [Entry(spec(log)), Entry(AxesDerived(axes=axes())), Entry(round_started(3), 0)]
        for number, verdict in enumerate((scored(0), rejected(1), scored(2))):
            seeds += [Entry(proposed(number), 0, number), Entry(verdict, 0, number)]
        asked = RoundStarted(proposer="llm", planned=1, budget=Budget())
        later = [Entry(asked, 1), Entry(call(log), 1)]
        later += [Entry(of_call(3), 1, 3), Entry(scored(3), 1, 3)]
        later += [Entry(NoteTaken(text=text, author="planner"), 1) for text in notes]
        closing = [Entry(round_finished(3), 1), Entry(finished(3))]
        write(log, [[*seeds, Entry(round_finished(2), 0)], later, closing])
        log.anchor_head()


def forked(
    root: Path, run_id: str, parent: str, seq: int, *, inherits: bool, begin: int = 0
) -> EventLog:
    """A fork of `parent` from event `seq` on, its first event written; to be closed."""
    there = next(r for r in EventLog.open(root, parent).iterate() if r.envelope.seq == seq)
    origin = Origin(there.envelope.run_id, seq, there.envelope.hash)
    clock = Clock()
    for _ in range(1000 + begin):
        clock()
    log = EventLog.create(root, run_id, parent=origin, clock=clock)
    event = RunForked(
        parent=origin.run_id,
        parent_seq=seq,
        parent_hash=origin.hash,
        asked=f"after event {seq} of {parent}",
        spec=spec(log),
        changed=("cluster.memory_safety_margin: 0.1 → 0.05",),
        inherits=inherits,
    )
    write(log, [[Entry(event)]])
    return log


def search(log: EventLog, trials: Sequence[tuple[TrialProposed, Event]], best: int | None) -> None:
    """A round of these candidates, to the run's end."""
    entries = [Entry(AxesDerived(axes=axes())), Entry(round_started(len(trials)), 0)]
    for number, (proposal, verdict) in enumerate(trials):
        entries += [Entry(proposal, 0, number), Entry(verdict, 0, number)]
    write(log, [[*entries, Entry(round_finished(best), 0)], [Entry(finished(best))]])
    log.anchor_head()


def child_run(root: Path) -> None:
    """A fork whose scores do not survive; it proposes the parent's trial 3 again, as trial 1."""
    last = max(r.envelope.seq for r in EventLog.open(root, PARENT).iterate())
    again = carried(1, of_call(3))
    verdict = scored(3, tokens_per_s_per_gpu=3500.0, cap_gb=273.6)
    with forked(root, CHILD, PARENT, last, inherits=False) as log:
        search(log, [(proposed(0), scored(0)), (again, verdict)], 1)


def other_run(root: Path) -> None:
    """An unrelated run, later, that scored the same configuration."""
    clock = Clock()
    for _ in range(5000):
        clock()
    with EventLog.create(root, OTHER, clock=clock) as log:
        write(log, [[Entry(spec(log))]])
        same = proposed(3).model_copy(update={"requested": TrialConfig()})
        search(log, [(proposed(0), scored(0)), (same, scored(3))], 1)
