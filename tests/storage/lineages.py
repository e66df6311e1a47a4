"""Forks for the tests of the log: runs that continue `RUN`, or one another."""

from pathlib import Path

from schemas.events import LLMCalled, NoteTaken, RunForked, RunStarted, TrialInvalidated
from storage import Entry, EventLog, Store
from storage.backends.local import LocalDisk
from storage.canonical import sha256_hex
from storage.extent import Origin
from tests.storage.builders import RUN, Clock, started, trial_number, whole_run, write

CHILD = "20260305t000000-000000-cccccccc"
GRANDCHILD = "20260306t000000-000000-dddddddd"


def unflushed(root: Path) -> Store:
    """The store in `root`, writing without a flush: much faster, where no crash is the matter."""
    return Store(root, LocalDisk(root, fsync=lambda _: None))


INPUTS = b"what a run was started with"


def spec(**changes: object) -> RunStarted:
    """A spec whose blobs are `INPUTS`."""
    digest = sha256_hex(INPUTS)
    return started(workload_blob=digest, cluster_blob=digest, **changes)


def parent_in(root: Path, trials: int = 4) -> Path:
    """A store with `RUN`, finished and anchored, blobs and all."""
    with EventLog.create(unflushed(root), RUN, clock=Clock()) as log:
        log.put_blob(INPUTS)
        _, *batches = whole_run(trials)
        write(log, [[Entry(spec())], *batches])
        log.anchor_head()
    return root


def note(text: str) -> Entry:
    return Entry(NoteTaken(text=text, author="test"))


def origin_in(root: Path, run_id: str, seq: int) -> Origin:
    """Event `seq` of a run, in whichever run of its lineage it lies."""
    envelope = EventLog.open(root, run_id).read()[seq]
    return Origin(envelope.run_id, envelope.seq, envelope.hash)


def forked(origin: Origin, *, inherits: bool = True, reopened: tuple[int, ...] = ()) -> RunForked:
    return RunForked(
        parent=origin.run_id,
        parent_seq=origin.seq,
        parent_hash=origin.hash,
        asked=f"after event {origin.seq} of {origin.run_id}",
        spec=spec(cluster_name="mi355x_8nodes"),
        changed=("cluster.num_nodes: 4 → 8",),
        inherits=inherits,
        reopened=reopened,
    )


def fork(
    root: Path,
    parent: str,
    seq: int,
    run_id: str,
    entries: list[Entry],
    *,
    inherits: bool = True,
    anchor: bool = True,
) -> EventLog:
    """`run_id`, begun from event `seq` of `parent` with `entries`, each a segment; its lease given
    back."""
    origin = origin_in(root, parent, seq)
    with EventLog.create(unflushed(root), run_id, parent=origin, clock=Clock()) as log:
        log.put_blob(INPUTS)
        for entry in (Entry(forked(origin, inherits=inherits)), *entries):
            log.append([entry], log.next_seq)
        if anchor:
            log.anchor_head()
    return EventLog.open(root, run_id)


def llm_called(call: int, **changes: object) -> LLMCalled:
    values: dict[str, object] = {
        "call": call,
        "role": "proposer",
        "model": "a/model",
        "prompt_hash": "a" * 16,
        "request_key": "b" * 16,
        "request_blob": "c" * 64,
        "answer_blob": "d" * 64,
        "input_tokens": 100 + call,
        "output_tokens": 10,
        "cost_usd": 0.1,
        "latency_ms": 12.5,
    }
    return LLMCalled.model_validate(values | changes)


def invalidated(number: int, best: int | None, score: float | None) -> TrialInvalidated:
    """Trial `number` found wrong; `best` is then the best, with `score`."""
    return TrialInvalidated(
        trial_id=trial_number(number).trial_id,
        why="the clock was wrong",
        author="test",
        incumbent=best,
        incumbent_trial_id=None if best is None else trial_number(best).trial_id,
        incumbent_tokens_per_s_per_gpu=score,
    )
