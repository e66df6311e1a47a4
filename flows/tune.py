"""The search: resolve → derive_axes → seed_batch → memory_filter → score → finish → export.

A step is a function of its inputs, run by a `Stage`; this module alone appends what it answers. The
same code runs a fresh search and a resumed one: whatever the log's prefix already holds is not
asked again, and trials that were in flight are.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from flows.artefacts import (
    keep_caches_under,
    out_dir_of_run,
    warn_if_unanchored,
    write_artefacts,
)
from flows.interrupts import Interrupted, shielded
from flows.ledger import Ledger, Listener
from flows.opening import (
    Watch,
    inputs_of_run,
    out_dir_of,
    reopen_run,
    run_to_resume,
    start_run,
    store_of,
)
from flows.out_dir import held
from flows.requests import ResumeRequest, TuneRequest
from flows.stages import Stage, in_process
from flows.terminal import say
from projection.legality import check, derive_axes
from schemas.errors import LogError, SpecChanged
from schemas.events import (
    AxesDerived,
    RoundFinished,
    RoundStarted,
    RunFinished,
    RunInterrupted,
    TrialProposed,
    TrialRejected,
    TrialScored,
)
from schemas.legality import Verdict
from schemas.trial import NormalTrial
from storage import Entry, EventLog, State, Store, remaining_plan
from storage.evaluation_cache import EvaluationCache
from tasks.finish import Outcome, finish
from tasks.inputs import Inputs, resolve_pair
from tasks.known_evaluations import known_evaluations
from tasks.memory_filter import DOES_NOT_FIT, Rejection, Survivor, memory_filter
from tasks.score import Scored, score
from tasks.score_pool import best_way_to_score
from tasks.seed_batch import NumberedTrial, seed_batch
from tasks.seed_plan import seed_plan

SEED = "seed"


def tune(
    request: TuneRequest, *, stage: Stage = in_process, listeners: Sequence[Listener] = ()
) -> str:
    """Runs a search to its end, or (`request.resume`) an unfinished one; returns its run id.

    Raises:
        UserError: the files, or what was asked of them.
        Interrupted: it was asked to stop; the run is resumable.
    """
    inputs = stage("resolve", _resolve, request)
    for warning in inputs.warnings:
        say(f"warning: {warning}")
    store = store_of(request.store)
    keep_caches_under(store)
    out_dir = out_dir_of(request, inputs)
    with held(out_dir), shielded() as shield:
        watch = Watch(shield, listeners)
        if request.resume:
            run_id = run_to_resume(store, inputs, out_dir)
            warn_if_unanchored(store, run_id)
            ledger = reopen_run(store, run_id, inputs, watch)
        else:
            ledger = start_run(store, inputs, out_dir, watch)
        _search_to_the_end(ledger, inputs, store, stage)
        stage("export", write_artefacts, ledger.state, inputs.workload, out_dir)
    return ledger.run_id


def resume(
    request: ResumeRequest, *, stage: Stage = in_process, listeners: Sequence[Listener] = ()
) -> str:
    """Takes up a run where its log ends; a finished one is left as it is. Returns its id.

    Raises:
        RunNotFound, RunLocked, DamagedLog: the log.
        SpecChanged: its scores depended on something that is different now.
        Interrupted: as `tune`.
    """
    store = store_of(request.store)
    keep_caches_under(store)
    run_id = store.find_run(request.run)
    warn_if_unanchored(store, run_id)
    inputs = stage("resolve", inputs_of_run, store, run_id)
    out_dir = out_dir_of_run(EventLog.open(store, run_id).state(), request.out_dir)
    with held(out_dir), shielded() as shield:
        ledger = reopen_run(store, run_id, inputs, Watch(shield, listeners))
        _search_to_the_end(ledger, inputs, store, stage)
        stage("export", write_artefacts, ledger.state, inputs.workload, out_dir)
    return ledger.run_id


def _search_to_the_end(ledger: Ledger, inputs: Inputs, store: Store, stage: Stage) -> None:
    with ledger, _interruptible(ledger):
        _search(ledger, inputs, store.evaluations, stage)


def _resolve(request: TuneRequest) -> Inputs:
    return resolve_pair(
        request.workload,
        request.target_cluster,
        request.model_path,
        mode=request.mode,
        gemm_backend=request.gemm_backend,
        memory_regime=request.memory_regime,
        seed_budget=request.seed_budget,
    )


@contextmanager
def _interruptible(ledger: Ledger) -> Iterator[None]:
    """Records why a run stopped early, unless it was the log that failed.

    The reason is a type, not a message: that may quote a user's file, and the log keeps no secrets.
    """
    try:
        yield
    except LogError:
        raise
    except KeyboardInterrupt as error:
        _record_interruption(ledger, "interrupted by the user")
        raise Interrupted(ledger.run_id) from error
    except BaseException as error:
        _record_interruption(ledger, f"stopped by {type(error).__name__}")
        error.add_note(f"refold resume {ledger.run_id} takes the run up again")
        raise


def _record_interruption(ledger: Ledger, why: str) -> None:
    ledger.record(Entry(RunInterrupted(why=why)))
    ledger.anchor()


def _search(ledger: Ledger, inputs: Inputs, cache: EvaluationCache, stage: Stage) -> None:
    if ledger.state.finished is not None:
        return
    if ledger.state.axes is None:
        axes = stage("derive_axes", derive_axes, inputs.workload, inputs.cluster, inputs.search)
        ledger.record(Entry(AxesDerived(axes=axes)))
    if not ledger.state.rounds or ledger.state.open_round is not None:
        _seed_round(ledger, inputs, cache, stage)
    outcome = stage("finish", finish, ledger.state, inputs.cluster)
    ledger.record(Entry(_run_finished(outcome)))
    ledger.anchor()


def _run_finished(outcome: Outcome) -> RunFinished:
    return RunFinished(
        why=outcome.why,
        recipe_trial=outcome.recipe_trial,
        recipe_trial_id=outcome.recipe_trial_id,
        binding_constraints=outcome.binding_constraints,
    )


def _seed_round(ledger: Ledger, inputs: Inputs, cache: EvaluationCache, stage: Stage) -> None:
    plan = stage("seed_batch", _plan_seeds, inputs)
    budget = inputs.search.budget
    round_number = 0
    if ledger.state.open_round is None:
        planned = min(len(plan), budget.seed_budget)
        ledger.record(
            Entry(RoundStarted(proposer=SEED, planned=planned, budget=budget), round_number)
        )
    reached = 0
    while reached < len(batch := plan[: budget.seed_budget + _implied(ledger.state)]):
        reached = len(batch)
        _propose(ledger, batch, round_number)
        _decide(ledger, inputs, cache, stage, batch, round_number)
    state = ledger.state
    best = state.best
    finished = RoundFinished(
        why="seed plan done",
        incumbent=state.incumbent,
        incumbent_tokens_per_s_per_gpu=best.score if best else None,
    )
    ledger.record(Entry(finished, round_number))
    ledger.anchor()


def _plan_seeds(inputs: Inputs) -> tuple[NumberedTrial, ...]:
    plan = seed_plan(inputs.workload, inputs.cluster, inputs.search)
    return seed_batch(plan, inputs.workload)


def _implied(state: State) -> int:
    """Seeds another's verdict settled unasked: they teach nothing, so the budget has them back."""
    return sum(
        trial.rejected is not None and trial.rejected.inferred_from is not None
        for trial in state.trials.values()
    )


def _propose(ledger: Ledger, batch: Sequence[NumberedTrial], round_number: int) -> None:
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
    ledger.record(*(_proposal(batch[position], round_number) for position in missing))


def _proposal(numbered: NumberedTrial, round_number: int) -> Entry:
    candidate = numbered.candidate
    event = TrialProposed(
        trial_id=numbered.trial_id,
        requested=candidate.config,
        config=numbered.trial,
        rule=candidate.rule,
        why=candidate.why,
        tag=candidate.tag,
    )
    return Entry(event, round_number, numbered.number)


def _decide(
    ledger: Ledger,
    inputs: Inputs,
    cache: EvaluationCache,
    stage: Stage,
    batch: Sequence[NumberedTrial],
    round_number: int,
) -> None:
    """Every undecided trial of the batch ends as a rejection or a score, each on disk at once."""
    open_trials = [trial for trial in batch if trial.number in ledger.state.in_flight]
    evaluator = inputs.evaluator()
    judge = partial(_judge, inputs)
    survivors: list[Survivor] = []
    for verdict in stage(
        "memory_filter", memory_filter, open_trials, judge, evaluator, _too_big(ledger.state)
    ):
        if isinstance(verdict, Survivor):
            survivors.append(verdict)
        else:
            ledger.record(_rejection(verdict, round_number))
    known = known_evaluations(cache, inputs)
    score_many = best_way_to_score(evaluator, inputs.fresh_evaluator(), len(survivors))
    for answer in stage("score", score, survivors, known, score_many):
        if isinstance(answer, Rejection):
            ledger.record(_rejection(answer, round_number))
            continue
        ledger.record(_score(answer, round_number))
        if not answer.from_cache:
            cache.put(answer.answer)


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


def _rejection(rejection: Rejection, round_number: int) -> Entry:
    event = TrialRejected(
        trial_id=rejection.trial_id,
        code=rejection.code,
        reason=rejection.reason,
        numbers=dict(rejection.numbers),
        inferred_from=rejection.inferred_from,
        evaluation=rejection.evaluation,
    )
    return Entry(event, round_number, rejection.number)


def _score(scored: Scored, round_number: int) -> Entry:
    event = TrialScored(
        trial_id=scored.survivor.trial.trial_id,
        evaluation=scored.evaluation,
        from_cache=scored.from_cache,
    )
    return Entry(event, round_number, scored.survivor.trial.number)
