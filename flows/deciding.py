"""What a round does with candidates, whoever proposed them: record, filter, score, give up."""

from collections.abc import Mapping, Sequence
from functools import partial

from flows.budgets import allowance, time_is_up, what_stops
from flows.ledger import Recorder
from flows.stages import Stage
from flows.terminal import say
from projection.legality import check
from schemas.events import (
    Event,
    NoteTaken,
    RoundFinished,
    TrialProposed,
    TrialRejected,
    TrialScored,
)
from schemas.legality import Verdict
from schemas.trial import NormalTrial
from storage import Entry, State
from storage.evaluation_cache import EvaluationCache
from tasks.finish import BUDGET_SPENT
from tasks.inputs import Inputs
from tasks.known_evaluations import known_evaluations
from tasks.memory_filter import DOES_NOT_FIT, Judge, Rejection, Survivor, memory_filter
from tasks.score import Scored, score
from tasks.scoring import Scorer
from tasks.seed_batch import NumberedTrial

CACHE = "evaluation cache"


def proposal(recorder: Recorder, numbered: NumberedTrial, call: int | None = None) -> Entry:
    """A candidate's entry into the ledger; `call` is the LLM call whose answer proposed it."""
    candidate = numbered.candidate
    event = TrialProposed(
        trial_id=numbered.trial_id,
        requested=candidate.config,
        config=numbered.trial,
        rule=candidate.rule,
        why=candidate.why,
        tag=candidate.tag,
        call=call,
    )
    return entry(recorder, event, numbered.number)


def decide(
    recorder: Recorder,
    inputs: Inputs,
    cache: EvaluationCache,
    stage: Stage,
    scorer: Scorer,
    batch: Sequence[NumberedTrial],
) -> None:
    """The batch's undecided trials end as rejections and scores, each on disk at once, as far as
    the budget goes.

    Raises:
        LogError: the log cannot be written.
    """
    open_trials = [trial for trial in batch if trial.number in recorder.state.in_flight]
    evaluator = inputs.evaluator()
    judge = judge_with(inputs)
    waiting: list[Survivor] = []
    for verdict in stage(
        "memory_filter", memory_filter, open_trials, judge, evaluator, too_big(recorder.state)
    ):
        if isinstance(verdict, Survivor):
            waiting.append(verdict)
        else:
            recorder.record(rejection_entry(recorder, verdict))
        if time_is_up(recorder):  # the baseline, if it is open, was the first
            break
    odd = partial(_odd, recorder)
    known = known_evaluations(cache, inputs, odd)
    while waiting and what_stops(recorder.state) is None:
        affordable = allowance(recorder.state).perf_calls
        now, waiting = waiting[:affordable], [] if affordable is None else waiting[affordable:]
        for answer in stage("score", score, now, known, scorer.score_many(evaluator, inputs)):
            if isinstance(answer, Rejection):
                recorder.record(rejection_entry(recorder, answer))
                continue
            recorder.record(_score(recorder, answer))
            if not answer.from_cache and (warning := cache.put(answer.answer)) is not None:
                odd(warning)
            if time_is_up(recorder) and what_stops(recorder.state) is not None:
                break


def give_up(recorder: Recorder) -> None:
    """If a budget is spent, what it left undecided is rejected, so that every candidate ends."""
    stop = what_stops(recorder.state)
    if stop is None:
        return
    reject_in_flight(recorder, BUDGET_SPENT, stop)


def reject_in_flight(recorder: Recorder, code: str, reason: str) -> None:
    """Every candidate that is undecided is rejected, for one reason."""
    trials = recorder.state.trials
    rejections = {
        number: TrialRejected(trial_id=trials[number].proposed.trial_id, code=code, reason=reason)
        for number in recorder.state.in_flight
    }
    recorder.record(*(entry(recorder, event, number) for number, event in rejections.items()))


def finish_round(recorder: Recorder, why: str, *, final: bool = False) -> None:
    """The open round ends, with the incumbent it leaves; its head is anchored."""
    state = recorder.state
    finished = RoundFinished(
        why=why,
        incumbent=state.incumbent,
        incumbent_tokens_per_s_per_gpu=state.best.score if state.best else None,
        final=final,
    )
    recorder.record(entry(recorder, finished))
    recorder.anchor()


def _odd(recorder: Recorder, what: str) -> None:
    """What the cache found odd, said and recorded: a search goes on without it."""
    say(f"warning: {what}")
    recorder.record(entry(recorder, NoteTaken(text=what, author=CACHE)))


def judge_with(inputs: Inputs) -> Judge:
    """The legality rules. The baseline is judged as the user's file, the rest as proposals."""

    def judge(trial: NumberedTrial) -> Verdict:
        return check(
            trial.trial,
            inputs.workload,
            inputs.cluster,
            inputs.search,
            proposal=trial.number != 0,
        )

    return judge


def too_big(state: State) -> Mapping[int, NormalTrial]:
    """Trials that are known not to fit."""
    return {
        number: trial.proposed.config
        for number, trial in state.trials.items()
        if (trial.rejected is not None and trial.rejected.code == DOES_NOT_FIT)
        or (trial.scored is not None and trial.scored.evaluation.fits is False)
    }


def rejection_entry(recorder: Recorder, rejection: Rejection) -> Entry:
    """The event of a rejection."""
    event = TrialRejected(
        trial_id=rejection.trial_id,
        code=rejection.code,
        reason=rejection.reason,
        numbers=dict(rejection.numbers),
        inferred_from=rejection.inferred_from,
        evaluation=rejection.evaluation,
    )
    return entry(recorder, event, rejection.number)


def _score(recorder: Recorder, scored: Scored) -> Entry:
    event = TrialScored(
        trial_id=scored.survivor.trial.trial_id,
        evaluation=scored.evaluation,
        from_cache=scored.from_cache,
    )
    return entry(recorder, event, scored.survivor.trial.number)


def entry(recorder: Recorder, event: Event, trial: int | None = None) -> Entry:
    """`event`, of the open round."""
    current = recorder.state.open_round
    return Entry(event, None if current is None else current.number, trial)
