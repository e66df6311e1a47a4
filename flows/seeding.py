"""Round 0: the seed plan, proposed, filtered and scored until it is done or a budget is spent."""

from collections.abc import Mapping, Sequence
from functools import partial

from flows.budgets import allowance, recorded_stop, time_is_up, what_stops
from flows.ledger import Recorder
from flows.stages import Stage
from flows.terminal import say
from projection.legality import check
from schemas.errors import SpecChanged
from schemas.events import (
    Event,
    NoteTaken,
    RoundFinished,
    RoundStarted,
    TrialProposed,
    TrialRejected,
    TrialScored,
)
from schemas.legality import Verdict
from schemas.trial import NormalTrial
from storage import Entry, State
from storage.evaluation_cache import EvaluationCache
from storage.state import Trial
from tasks.carry import CARRIED, with_carried
from tasks.finish import BUDGET_SPENT, PLAN_DONE
from tasks.inputs import Inputs
from tasks.known_evaluations import known_evaluations
from tasks.memory_filter import DOES_NOT_FIT, Rejection, Survivor, memory_filter
from tasks.score import Scored, score
from tasks.score_pool import best_way_to_score
from tasks.seed_batch import NumberedTrial, seed_batch
from tasks.seed_plan import order_for_budget, plan_seeds, skipped_notes

SEED = "seed"
PLANNER = "seed plan"
CACHE = "evaluation cache"


def seeds_are_due(state: State) -> bool:
    """Whether the seed plan may have something to propose or to decide.

    A fork goes on with its parent's plan: its budget may reach further, and what the parent gave up
    may be in flight again. The round that finds nothing to do records nothing.
    """
    if state.open_round is not None:
        return state.open_round.started.proposer == SEED
    return not state.own_rounds


def seed_round(ledger: Recorder, inputs: Inputs, cache: EvaluationCache, stage: Stage) -> None:
    """Takes the seed round from wherever the log says it stands to its end.

    Raises:
        SpecChanged: what the seed rounds have proposed is not the beginning of this plan.
        LogError: the log cannot be written.
    """
    state = ledger.state
    plan, notes = stage("seed_batch", _plan_seeds, inputs, state.carried)
    if state.open_round is None and state.rounds and not _has_work(state, plan):
        return
    _open_round(ledger, plan, notes)
    while True:
        state = ledger.state
        stop = what_stops(state)
        whole = _affordable(state, plan)
        if not state.in_flight and (stop is not None or not _missing(state, whole)):
            break
        if stop is None:
            _propose(ledger, whole)
            _decide(ledger, inputs, cache, stage, whole)
        _give_up(ledger)
    complete = not _missing(state, whole) and recorded_stop(state) is None
    best = state.best
    finished = RoundFinished(
        why=PLAN_DONE if complete or stop is None else stop,
        incumbent=state.incumbent,
        incumbent_tokens_per_s_per_gpu=best.score if best else None,
    )
    ledger.record(_entry(ledger, finished))
    ledger.anchor()


def _open_round(ledger: Recorder, plan: Sequence[NumberedTrial], notes: Sequence[str]) -> None:
    state = ledger.state
    taken = {note.text for note in state.notes}
    entries: list[Event] = [
        NoteTaken(text=note, author=PLANNER) for note in notes if note not in taken
    ]
    if state.open_round is not None:
        ledger.record(*(_entry(ledger, note) for note in entries))
        return
    number = state.rounds[-1].number + 1 if state.rounds else 0
    planned = len(state.in_flight) + len(_missing(state, _affordable(state, plan)))
    budget = state.spec.search.budget
    entries.insert(0, RoundStarted(proposer=SEED, planned=planned, budget=budget))
    ledger.record(*(Entry(event, number) for event in entries))


def _affordable(state: State, plan: Sequence[NumberedTrial]) -> Sequence[NumberedTrial]:
    """The seeds the budget reaches to, and those a fork's parent proposed beyond it. What a fork
    carries over, and what another's verdict settled unasked, count for none."""
    seeds = state.spec.search.budget.seed_budget
    carried = sum(seed.candidate.rule == CARRIED for seed in plan)
    return plan[: max(seeds + carried + _implied(state), len(_proposed(state)))]


def _proposed(state: State) -> list[int]:
    """Numbers of the trials that seed rounds proposed."""
    return [n for known in state.rounds if known.started.proposer == SEED for n in known.trials]


def _missing(state: State, batch: Sequence[NumberedTrial]) -> list[NumberedTrial]:
    """Seeds not proposed yet; none once somebody else has proposed: their numbers are taken."""
    if any(known.started.proposer != SEED for known in state.rounds):
        return []
    return [seed for seed in batch if seed.number not in state.trials]


def _has_work(state: State, plan: Sequence[NumberedTrial]) -> bool:
    if state.in_flight:
        return True
    return what_stops(state) is None and bool(_missing(state, _affordable(state, plan)))


def _entry(ledger: Recorder, event: Event, trial: int | None = None) -> Entry:
    """`event`, of the open round."""
    current = ledger.state.open_round
    return Entry(event, None if current is None else current.number, trial)


def _plan_seeds(
    inputs: Inputs, carried: Sequence[Trial]
) -> tuple[tuple[NumberedTrial, ...], tuple[str, ...]]:
    """The seeds in the order of the budget, after what a fork carries over; and what is to be noted
    of those that were refused."""
    plan = plan_seeds(inputs.workload, inputs.cluster, inputs.search)
    seeds = with_carried(order_for_budget(plan.candidates), carried, inputs.workload)
    return seed_batch(seeds, inputs.workload), skipped_notes(plan)


def _implied(state: State) -> int:
    """Seeds another's verdict settled unasked: they teach nothing, so the budget has them back."""
    return sum(
        trial.rejected is not None and trial.rejected.inferred_from is not None
        for trial in state.trials.values()
    )


def _propose(ledger: Recorder, batch: Sequence[NumberedTrial]) -> None:
    """Proposes what the round has not proposed yet, as one batch.

    Raises:
        SpecChanged: what it has proposed is not the beginning of this plan.
    """
    state = ledger.state
    for number in _proposed(state):
        trial_id = state.trials[number].proposed.trial_id
        if number >= len(batch) or batch[number].trial_id != trial_id:
            raise SpecChanged(
                f"run {state.run_id}: trial {number} is not what the seed plan proposes now",
                hint=f"resume it with the Refold that started it, or: refold fork {state.run_id}",
            )
    ledger.record(*(_proposal(ledger, seed) for seed in _missing(state, batch)))


def _proposal(ledger: Recorder, numbered: NumberedTrial) -> Entry:
    candidate = numbered.candidate
    event = TrialProposed(
        trial_id=numbered.trial_id,
        requested=candidate.config,
        config=numbered.trial,
        rule=candidate.rule,
        why=candidate.why,
        tag=candidate.tag,
        call=None,
    )
    return _entry(ledger, event, numbered.number)


def _decide(
    ledger: Recorder,
    inputs: Inputs,
    cache: EvaluationCache,
    stage: Stage,
    batch: Sequence[NumberedTrial],
) -> None:
    """The batch's undecided trials end as rejections and scores, each on disk at once, as far as
    the budget goes."""
    open_trials = [trial for trial in batch if trial.number in ledger.state.in_flight]
    evaluator = inputs.evaluator()
    judge = partial(_judge, inputs)
    waiting: list[Survivor] = []
    for verdict in stage(
        "memory_filter", memory_filter, open_trials, judge, evaluator, _too_big(ledger.state)
    ):
        if isinstance(verdict, Survivor):
            waiting.append(verdict)
        else:
            ledger.record(_rejection(ledger, verdict))
        if time_is_up(ledger):  # the baseline, if it is open, was the first
            break
    odd = partial(_odd, ledger)
    known = known_evaluations(cache, inputs, odd)
    while waiting and what_stops(ledger.state) is None:
        affordable = allowance(ledger.state).perf_calls
        now, waiting = waiting[:affordable], [] if affordable is None else waiting[affordable:]
        score_many = best_way_to_score(evaluator, inputs.fresh_evaluator(), len(now))
        for answer in stage("score", score, now, known, score_many):
            if isinstance(answer, Rejection):
                ledger.record(_rejection(ledger, answer))
                continue
            ledger.record(_score(ledger, answer))
            if not answer.from_cache and (warning := cache.put(answer.answer)) is not None:
                odd(warning)
            if time_is_up(ledger) and what_stops(ledger.state) is not None:
                break


def _give_up(ledger: Recorder) -> None:
    """If a budget is spent, what it left undecided is rejected, so that every candidate ends."""
    state = ledger.state
    stop = what_stops(state)
    if stop is None:
        return
    ledger.record(
        *(
            _entry(
                ledger,
                TrialRejected(
                    trial_id=state.trials[number].proposed.trial_id,
                    code=BUDGET_SPENT,
                    reason=stop,
                ),
                number,
            )
            for number in state.in_flight
        )
    )


def _odd(ledger: Recorder, what: str) -> None:
    """What the cache found odd, said and recorded: a search goes on without it."""
    say(f"warning: {what}")
    ledger.record(_entry(ledger, NoteTaken(text=what, author=CACHE)))


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


def _rejection(ledger: Recorder, rejection: Rejection) -> Entry:
    event = TrialRejected(
        trial_id=rejection.trial_id,
        code=rejection.code,
        reason=rejection.reason,
        numbers=dict(rejection.numbers),
        inferred_from=rejection.inferred_from,
        evaluation=rejection.evaluation,
    )
    return _entry(ledger, event, rejection.number)


def _score(ledger: Recorder, scored: Scored) -> Entry:
    event = TrialScored(
        trial_id=scored.survivor.trial.trial_id,
        evaluation=scored.evaluation,
        from_cache=scored.from_cache,
    )
    return _entry(ledger, event, scored.survivor.trial.number)
