"""The search: resolve → derive_axes → seed_batch → memory_filter → score → finish → export.

A step is a function of its inputs, run by a `Stage`; only the flow appends what it answers. The
same code runs a fresh search and a resumed one: whatever the log's prefix already holds is not
asked again, and trials that were in flight are.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from flows.agent_only import baseline_alone, run_for_an_agent
from flows.artefacts import (
    keep_caches_under,
    out_dir_of_run,
    warn_if_unanchored,
    write_artefacts,
)
from flows.continuation import continue_round
from flows.interrupts import Interrupted, shielded
from flows.ledger import Ledger, Listener, Recorder
from flows.llm_access import Models, key_from, with_agent, with_model
from flows.llm_rounds import ended, llm_rounds
from flows.opening import (
    Watch,
    inputs_of_run,
    out_dir_of,
    record_resumption,
    reopen_run,
    run_to_resume,
    start_run,
    store_of,
)
from flows.out_dir import held
from flows.requests import ResumeRequest, TuneRequest
from flows.scoring import scoring_in
from flows.seeding import seed_round, seeds_are_due
from flows.stages import Stage, in_process
from flows.terminal import say, warn
from projection.legality import LegalSpace
from schemas.errors import LogError
from schemas.events import AxesDerived, RecipeRecalled, RunFinished, RunInterrupted
from schemas.search import LlmPlan
from storage import Entry, State, Store
from storage.evaluation_cache import EvaluationCache
from storage.kept_answers import KeptAnswers
from tasks.finish import PLAN_DONE, Outcome, finish
from tasks.inputs import Inputs, resolve_pair
from tasks.kept_steps import axes_of
from tasks.recall import recall
from tasks.scoring import Scorer
from tasks.seed_plan.pins import refuse_impossible_pins


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
        warn(warning)
    store = store_of(request.store)
    keep_caches_under(store)
    out_dir = out_dir_of(request, inputs)
    with shielded() as shield, scoring_in(store, request.scoring) as scorer:
        watch = Watch(shield, listeners)
        if request.resume:
            run_id = run_to_resume(store, inputs, out_dir, request)
            warn_if_unanchored(store, run_id)
            # The same job, but perhaps from another path: a run's exports are of its own files.
            inputs = replace(inputs, workload=inputs_of_run(store, run_id).workload)
            _take_up(store, run_id, inputs, out_dir, watch, stage, scorer)
            return run_id
        if request.agent_only:
            found = run_for_an_agent(store, inputs)
            if found is not None:
                theirs = inputs_of_run(store, found)
                llm = inputs.search.llm
                _take_up(store, found, theirs, request.out_dir, watch, stage, scorer, llm)
                return found
            inputs = baseline_alone(inputs)
        with held(out_dir):
            # Before there is a run: one that can never go on is not to be resumed.
            refuse_impossible_pins(LegalSpace(inputs.workload, inputs.cluster, inputs.search))
            recalled = _recalled(store, inputs) if request.recall else None
            begun = start_run(
                store, inputs, out_dir, watch, run_id=request.run_id, recalled=recalled
            )
            with begun as ledger:
                search_to_the_end(ledger, inputs, store, out_dir, stage, scorer)
            return ledger.run_id


def _recalled(store: Store, inputs: Inputs) -> RecipeRecalled | None:
    """The best known recipe, looked up and said. After this the run's own record has it."""
    recalled, unread = recall(store, inputs)
    for line in unread:
        warn(f"the best known recipe is looked for without what cannot be read: {line}")
    if recalled is not None:
        say(
            f"known best: {recalled.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, trial"
            f" {recalled.trial} of run {recalled.run}; seeded first"
        )
    return recalled


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
    asked = None if request.llm is None else with_model(inputs, request.llm).search.llm
    with shielded() as shield, scoring_in(store, request.scoring) as scorer:
        watch = Watch(shield, listeners)
        _take_up(store, run_id, inputs, request.out_dir, watch, stage, scorer, asked)
    return run_id


def _take_up(
    store: Store,
    run_id: str,
    inputs: Inputs,
    out_dir: Path | None,
    watch: Watch,
    stage: Stage,
    scorer: Scorer,
    llm: LlmPlan | None = None,
) -> None:
    """A run's rest. Its lease comes before its out-dir: who holds both is named by the lease."""
    with reopen_run(store, run_id, inputs, watch) as ledger:
        folder = out_dir_of_run(ledger.state, out_dir)
        with held(folder):
            record_resumption(ledger, llm)
            search_to_the_end(ledger, inputs, store, folder, stage, scorer)


def search_to_the_end(
    ledger: Ledger, inputs: Inputs, store: Store, out_dir: Path, stage: Stage, scorer: Scorer
) -> None:
    """Takes an open run to its end, or records why it stopped; then writes its artefacts, while its
    lease is still held.

    Raises:
        Interrupted: it was asked to stop.
        LogError: the log failed.
    """
    with _interruptible(ledger):
        again = partial(continue_round, store, ledger)
        models = Models(key_from(inputs.llm), inputs.secrets(), again)
        search(ledger, inputs, store.evaluations, stage, models, scorer, store.answers)
        ledger.compact()
    stage("export", write_artefacts, ledger.state, inputs.workload, out_dir)


def _resolve(request: TuneRequest) -> Inputs:
    inputs = resolve_pair(
        request.workload,
        request.target_cluster,
        request.model_path,
        mode=request.mode,
        gemm_backend=request.gemm_backend,
        memory_regime=request.memory_regime,
        seed_budget=request.seed_budget,
    )
    if request.seed_only:
        return inputs
    if request.agent_only:
        return with_agent(inputs, request.llm)
    return with_model(inputs, request.llm)


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
        if _record_interruption(ledger, "interrupted by the user"):
            raise Interrupted(ledger.run_id) from error
        raise
    except BaseException as error:
        if _record_interruption(ledger, f"stopped by {type(error).__name__}"):
            error.add_note(f"refold resume {ledger.run_id} takes the run up again")
        raise


def _record_interruption(ledger: Ledger, why: str) -> bool:
    """Whether the run was still to go on; nothing can interrupt one that has finished."""
    if ledger.state.finished is not None:
        return False
    ledger.record(Entry(RunInterrupted(why=why)))
    ledger.anchor()
    return True


def search(
    ledger: Recorder,
    inputs: Inputs,
    cache: EvaluationCache,
    stage: Stage,
    models: Models,
    scorer: Scorer,
    answers: KeptAnswers | None = None,
) -> None:
    """The search itself, from wherever the run stands to its end; nothing for a finished run.

    `answers`: what other searches were answered by steps that are dear; None asks every step anew.

    Raises:
        LogError: the log cannot be written.
    """
    if ledger.state.finished is not None:
        ledger.anchor()  # its process may have died between the last event and the anchor
        return
    if ledger.state.axes is None:
        axes = stage("derive_axes", axes_of, inputs, answers, warn)
        ledger.record(Entry(AxesDerived(axes=axes)))
    if seeds_are_due(ledger.state):
        seed_round(ledger, inputs, cache, stage, scorer, answers)
    if ledger.state.spec.search.llm is not None:
        llm_rounds(ledger, inputs, cache, stage, models, scorer)
    outcome = stage("finish", finish, ledger.state, inputs.cluster, _stop(ledger.state))
    ledger.record(Entry(_run_finished(outcome)))
    ledger.anchor()


def _stop(state: State) -> str | None:
    """What ended the search before its plan was done."""
    if state.spec.search.llm is not None:
        return ended(state)
    rounds = [done.finished.why for done in state.rounds if done.finished is not None]
    return rounds[-1] if rounds and rounds[-1] != PLAN_DONE else None


def _run_finished(outcome: Outcome) -> RunFinished:
    return RunFinished(
        why=outcome.why,
        recipe_trial=outcome.recipe_trial,
        recipe_trial_id=outcome.recipe_trial_id,
        binding_constraints=outcome.binding_constraints,
    )
