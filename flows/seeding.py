"""Round 0: the seed plan, proposed, filtered and scored until it is done or a budget is spent."""

from collections.abc import Mapping, Sequence
from functools import partial

from flows.budgets import allowance, recorded_stop, what_stops
from flows.ledger import Ledger
from flows.stages import Stage
from flows.terminal import say
from projection.legality import check
from schemas.errors import SpecChanged
from schemas.events import (
    NoteTaken,
    RoundFinished,
    RoundStarted,
    TrialProposed,
    TrialRejected,
    TrialScored,
)
from schemas.legality import Verdict
from schemas.trial import NormalTrial
from storage import Entry, State, remaining_plan
from storage.evaluation_cache import EvaluationCache
from tasks.finish import BUDGET_SPENT, PLAN_DONE
from tasks.inputs import Inputs
from tasks.known_evaluations import known_evaluations
from tasks.memory_filter import DOES_NOT_FIT, Rejection, Survivor, memory_filter
from tasks.score import Scored, score
from tasks.score_pool import best_way_to_score
from tasks.seed_batch import NumberedTrial, seed_batch
from tasks.seed_plan import order_for_budget, plan_seeds, skipped_notes

SEED = "seed"
SEED_ROUND = 0
PLANNER = "seed plan"
CACHE = "evaluation cache"


def seed_round(ledger: Ledger, inputs: Inputs, cache: EvaluationCache, stage: Stage) -> None:
    """Takes the seed round from wherever the log says it stands to its end.

    Raises:
        SpecChanged: what the round has proposed is not the beginning of this plan.
        LogError: the log cannot be written.
    """
    plan, notes = stage("seed_batch", _plan_seeds, inputs)
    budget = inputs.search.budget
    taken = {note.text for note in ledger.state.notes}
    entries = [
        Entry(NoteTaken(text=note, author=PLANNER), SEED_ROUND)
        for note in notes
        if note not in taken
    ]
    if ledger.state.open_round is None:
        planned = min(len(plan), budget.seed_budget)
        started = RoundStarted(proposer=SEED, planned=planned, budget=budget)
        entries.insert(0, Entry(started, SEED_ROUND))
    ledger.record(*entries)
    while True:
        state = ledger.state
        stop = what_stops(state)
        whole = plan[: budget.seed_budget + _implied(state)]
        if not state.in_flight and (stop is not None or len(whole) == len(state.trials)):
            break
        if stop is None:
            _propose(ledger, whole)
            _decide(ledger, inputs, cache, stage, whole)
        _give_up(ledger)
    complete = len(whole) == len(state.trials) and recorded_stop(state) is None
    best = state.best
    finished = RoundFinished(
        why=PLAN_DONE if complete or stop is None else stop,
        incumbent=state.incumbent,
        incumbent_tokens_per_s_per_gpu=best.score if best else None,
    )
    ledger.record(Entry(finished, SEED_ROUND))
    ledger.anchor()


def _plan_seeds(inputs: Inputs) -> tuple[tuple[NumberedTrial, ...], tuple[str, ...]]:
    """The seeds in the order of the budget, and what is to be noted of those that were refused."""
    plan = plan_seeds(inputs.workload, inputs.cluster, inputs.search)
    return seed_batch(order_for_budget(plan.candidates), inputs.workload), skipped_notes(plan)


def _implied(state: State) -> int:
    """Seeds another's verdict settled unasked: they teach nothing, so the budget has them back."""
    return sum(
        trial.rejected is not None and trial.rejected.inferred_from is not None
        for trial in state.trials.values()
    )


def _propose(ledger: Ledger, batch: Sequence[NumberedTrial]) -> None:
    """Proposes what the round has not proposed yet, as one batch.

    Raises:
        SpecChanged: what it has proposed is not the beginning of this plan.
    """
    state = ledger.state
    for number, trial in state.trials.items():
        if number >= len(batch) or batch[number].trial_id != trial.proposed.trial_id:
            raise SpecChanged(
                f"run {state.run_id}: trial {number} is not what the seed plan proposes now",
                hint="resume it with the Refold that started it, or start a new run",
            )
    missing = remaining_plan(state, [trial.trial_id for trial in batch])
    ledger.record(*(_proposal(batch[position]) for position in missing))


def _proposal(numbered: NumberedTrial) -> Entry:
    candidate = numbered.candidate
    event = TrialProposed(
        trial_id=numbered.trial_id,
        requested=candidate.config,
        config=numbered.trial,
        rule=candidate.rule,
        why=candidate.why,
        tag=candidate.tag,
    )
    return Entry(event, SEED_ROUND, numbered.number)


def _decide(
    ledger: Ledger,
    inputs: Inputs,
    cache: EvaluationCache,
    stage: Stage,
    batch: Sequence[NumberedTrial],
) -> None:
    """The batch's undecided trials end as rejections and scores, each on disk at once, as far as
    the budget goes."""
    open_trials = [trial for trial in batch if trial.number in ledger.state.in_flight]
    left = allowance(ledger.state)
    evaluator = inputs.evaluator()
    judge = partial(_judge, inputs)
    waiting: list[Survivor] = []
    for verdict in stage(
        "memory_filter", memory_filter, open_trials, judge, evaluator, _too_big(ledger.state)
    ):
        if isinstance(verdict, Survivor):
            waiting.append(verdict)
        else:
            ledger.record(_rejection(verdict))
        if left.out_of_time():  # the baseline, if it is open, was the first
            break
    odd = partial(_odd, ledger)
    known = known_evaluations(cache, inputs, odd)
    while waiting and what_stops(ledger.state) is None:
        affordable = allowance(ledger.state).perf_calls
        now, waiting = waiting[:affordable], [] if affordable is None else waiting[affordable:]
        score_many = best_way_to_score(evaluator, inputs.fresh_evaluator(), len(now))
        for answer in stage("score", score, now, known, score_many):
            if isinstance(answer, Rejection):
                ledger.record(_rejection(answer))
                continue
            ledger.record(_score(answer))
            if not answer.from_cache and (warning := cache.put(answer.answer)) is not None:
                odd(warning)
            if left.out_of_time() and what_stops(ledger.state) is not None:
                break


def _give_up(ledger: Ledger) -> None:
    """If a budget is spent, what it left undecided is rejected, so that every candidate ends."""
    state = ledger.state
    stop = what_stops(state)
    if stop is None:
        return
    ledger.record(
        *(
            Entry(
                TrialRejected(
                    trial_id=state.trials[number].proposed.trial_id,
                    code=BUDGET_SPENT,
                    reason=stop,
                ),
                SEED_ROUND,
                number,
            )
            for number in state.in_flight
        )
    )


def _odd(ledger: Ledger, what: str) -> None:
    """What the cache found odd, said and recorded: a search goes on without it."""
    say(f"warning: {what}")
    ledger.record(Entry(NoteTaken(text=what, author=CACHE), SEED_ROUND))


def _judge(inputs: Inputs, trial: NumberedTrial) -> Verdict:
    """The baseline is judged as the user's file, everything else as a proposal of ours."""
    return check(
        trial.trial,
        inputs.workload,
        inputs.cluster,
        inputs.search,
        proposal=trial.number != 0,
    )


def _too_big(state: State) -> Mapping[int, NormalTrial]:
    """Trials that are known not to fit."""
    return {
        number: trial.proposed.config
        for number, trial in state.trials.items()
        if (trial.rejected is not None and trial.rejected.code == DOES_NOT_FIT)
        or (trial.scored is not None and trial.scored.evaluation.fits is False)
    }


def _rejection(rejection: Rejection) -> Entry:
    event = TrialRejected(
        trial_id=rejection.trial_id,
        code=rejection.code,
        reason=rejection.reason,
        numbers=dict(rejection.numbers),
        inferred_from=rejection.inferred_from,
        evaluation=rejection.evaluation,
    )
    return Entry(event, SEED_ROUND, rejection.number)


def _score(scored: Scored) -> Entry:
    event = TrialScored(
        trial_id=scored.survivor.trial.trial_id,
        evaluation=scored.evaluation,
        from_cache=scored.from_cache,
    )
    return Entry(event, SEED_ROUND, scored.survivor.trial.number)
