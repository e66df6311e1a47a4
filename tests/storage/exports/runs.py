"""Finished runs over chosen configurations, for the tests of the exports."""

from typing import Any

from schemas.events import (
    ZERO_HASH,
    AxesDerived,
    NoteTaken,
    RoundFinished,
    RoundStarted,
    RunFinished,
    TrialProposed,
    TrialRejected,
    TrialScored,
)
from schemas.search import Budget
from schemas.trial import TrialConfig
from storage import Entry, State, fold
from storage.chain import seal
from tests.storage.builders import RUN, Clock, axes, evaluation, normal_trial, started


def folded(entries: list[Entry]) -> State:
    envelopes, prev_hash, clock = [], ZERO_HASH, Clock()
    for seq, (event, round_number, trial) in enumerate(entries):
        envelopes.append(
            seal(
                event,
                run_id=RUN,
                seq=seq,
                prev_hash=prev_hash,
                at=clock(),
                round=round_number,
                trial=trial,
            )
        )
        prev_hash = envelopes[-1].hash
    return fold(envelopes)


def trial_entries(number: int, changes: dict[str, Any], verdict: dict[str, Any]) -> list[Entry]:
    """A candidate that differs from the baseline by `changes`, and what the oracle says of it.

    `verdict` changes the evaluation; a `code` in it makes it a rejection.
    """
    config = normal_trial(**changes)
    code = verdict.pop("code", None)
    proposal = TrialProposed(
        trial_id=config.trial_id,
        requested=TrialConfig(),
        config=config,
        rule="baseline" if number == 0 else "neighbour",
        why=f"candidate {number}",
        tag=f"tp{config.tp}_pp{config.pp}",
        call=None,
    )
    result = evaluation(config, **verdict)
    if code is None:
        scored = TrialScored(trial_id=config.trial_id, evaluation=result)
        return [Entry(proposal, 0, number), Entry(scored, 0, number)]
    rejected = TrialRejected(
        trial_id=config.trial_id,
        code=code,
        reason=f"{result.memory_per_gpu_gb} GB, the cap is {result.cap_gb} GB",
        evaluation=result,
    )
    return [Entry(proposal, 0, number), Entry(rejected, 0, number)]


def run_of(
    candidates: list[tuple[dict[str, Any], dict[str, Any]]],
    *,
    finish: bool = True,
    constraints: tuple[str, ...] = (),
    **spec: Any,
) -> State:
    """A seed-only run over `candidates`: (changes of the baseline, verdict) each."""
    entries = [
        Entry(started(**spec)),
        Entry(AxesDerived(axes=axes())),
        Entry(RoundStarted(proposer="seed", planned=len(candidates), budget=Budget()), 0),
    ]
    for number, (changes, verdict) in enumerate(candidates):
        entries += trial_entries(number, changes, dict(verdict))
    entries.append(Entry(NoteTaken(text="a\nnote", author="planner"), 0, 1))
    if finish:
        best = folded(entries).incumbent
        closing = RoundFinished(why="done", incumbent=best, incumbent_tokens_per_s_per_gpu=None)
        finished = RunFinished(
            why="the plan is done",
            recipe_trial=best,
            recipe_trial_id=None,
            binding_constraints=constraints,
        )
        entries += [Entry(closing, 0), Entry(finished)]
    return folded(entries)


def run_with(changes: dict[str, Any], **verdict: Any) -> State:
    """A run of the baseline and one better trial, which differs from it by `changes`."""
    return run_of([({}, {"tokens_per_s_per_gpu": 2900.0}), (changes, verdict)])
