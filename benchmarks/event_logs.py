"""Long event logs for the benchmarks, made of what a real seeded search recorded.

A shipped example is searched (its seed plan; no GPU, a few seconds). Its trials are then repeated
under new numbers and ids, each repetition with its floats scaled a little, until the log is as long
as asked: payloads are as large, floats as long and pages as hard to compress as a search's own.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from flows.requests import TuneRequest
from flows.tune import tune
from schemas.evaluation import Evaluation
from schemas.events import AxesDerived, RoundFinished, RunFinished
from storage import Entry, EventLog, State, fresh_run_id
from storage.blobs import blobs_of
from storage.state import Trial

ROOT = Path(__file__).resolve().parents[1]
WORKLOAD = ROOT / "examples/workloads/mixtral_8x22B.yaml"
CLUSTER = ROOT / "examples/clusters/mi355x_4nodes.yaml"
SEEDS = 200
SCALE_PER_COPY = 1e-7


def searched(folder: Path) -> EventLog:
    """The log of a seeded search of a shipped example, in a store below `folder`."""
    store = folder / "searched"
    request = TuneRequest(
        workload=WORKLOAD,
        target_cluster=CLUSTER,
        store=str(store),
        out_dir=folder / "out",
        seed_budget=SEEDS,
    )
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        return EventLog.open(store, tune(request))


def write_long_log(source: EventLog, root: Path, events: int, batch: int = 1000) -> str:
    """A finished run in the store `root`, of at most `events` events; returns its id."""
    run_id = fresh_run_id()
    with EventLog.create(root, run_id) as log:
        for digest in blobs_of(source.state().spec):
            log.put_blob(source.get_blob(digest))
        waiting: list[Entry] = []
        for entry in entries(source.state(), events):
            waiting.append(entry)
            if len(waiting) == batch:
                log.append(waiting, log.next_seq)
                waiting = []
        log.append(waiting, log.next_seq)
        log.anchor_head()
    return run_id


def entries(state: State, events: int) -> Iterator[Entry]:
    """The events of such a run: `state`'s opening, its trials over and over, and an end."""
    assert state.axes is not None
    yield Entry(state.spec)
    yield Entry(AxesDerived(axes=state.axes))
    yield Entry(state.rounds[0].started, 0)
    originals = list(state.trials.values())
    for number in range((events - 5) // 2):
        copy, position = divmod(number, len(originals))
        yield from repeated(originals[position], number, copy)
    why = "the plan is done"
    done = RoundFinished(why=why, incumbent=None, incumbent_tokens_per_s_per_gpu=None)
    yield Entry(done, 0)
    yield Entry(RunFinished(why=why, recipe_trial=None, recipe_trial_id=None))


def repeated(original: Trial, number: int, copy: int) -> tuple[Entry, Entry]:
    """Proposal and verdict of `original` as trial `number`, its `copy`-th repetition."""
    trial_id = hashlib.sha256(f"{original.proposed.trial_id} {copy}".encode()).hexdigest()[:16]
    proposal = original.proposed.model_copy(update={"trial_id": trial_id})
    verdict = original.scored or original.rejected
    assert verdict is not None
    changes: dict[str, Any] = {"trial_id": trial_id}
    if verdict.evaluation is not None:
        fields = scaled(verdict.evaluation.model_dump(mode="json"), 1 + copy * SCALE_PER_COPY)
        changes["evaluation"] = Evaluation.model_validate(fields | {"trial_id": trial_id})
    return Entry(proposal, 0, number), Entry(verdict.model_copy(update=changes), 0, number)


def scaled(value: Any, factor: float) -> Any:
    """`value`, made of JSON types, with every float in it times `factor`."""
    if isinstance(value, float):
        return value * factor
    if isinstance(value, dict):
        return {key: scaled(inner, factor) for key, inner in value.items()}
    if isinstance(value, list):
        return [scaled(inner, factor) for inner in value]
    return value


def mix(log: EventLog) -> str:
    """How many events of each kind a log holds, and the mean size of their payloads, in words."""
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for envelope, _ in log.iterate():
        counts[envelope.type] += 1
        sizes[envelope.type] += len(envelope.payload.encode())
    return ", ".join(
        f"{count:,} {kind} of {sizes[kind] / count / 1000:.1f} kB"
        for kind, count in counts.most_common(3)
    )
