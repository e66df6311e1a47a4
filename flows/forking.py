"""Fork: a new run that shares another's events up to a point and goes on differently."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flows.artefacts import keep_caches_under, warn_if_unanchored
from flows.differences import fork_differences
from flows.interrupts import shielded
from flows.ledger import Ledger, Listener
from flows.llm_access import with_model
from flows.opening import DEFAULT_OUT_DIR, Watch, inputs_of_spec, spec_of, store_of
from flows.out_dir import held
from flows.requests import ForkRequest
from flows.scoring import scoring_in
from flows.stages import Stage, in_process
from flows.terminal import say
from flows.tune import search_to_the_end
from projection.legality import LegalSpace
from schemas.errors import UserError
from schemas.events import RunForked
from storage import Entry, EventLog, State, Store, fold_records, fresh_run_id
from storage.cutting import Cut, cut_at
from storage.extent import Origin
from tasks.changed_inputs import with_cluster, with_settings, with_workload
from tasks.finish import BUDGET_SPENT
from tasks.inputs import Inputs
from tasks.seed_plan.pins import refuse_impossible_pins


def fork(
    request: ForkRequest, *, stage: Stage = in_process, listeners: Sequence[Listener] = ()
) -> str:
    """Begins a run from another's events, and searches to its end; returns the new run's id.

    The parent is only read, and may be running.

    Raises:
        UserError: there is no such run or place in it, or a change is wrong.
        DamagedLog: the parent does not verify.
        Interrupted: it was asked to stop; the new run is resumable.
    """
    store = store_of(request.store)
    keep_caches_under(store)
    parent = store.find_run(request.run)
    warn_if_unanchored(store, parent)
    cut = Cut(request.at_round, request.at_trial, request.at_event)
    log = EventLog.open(store, parent)
    kept = cut_at(log.iterate(), parent, cut)
    known = fold_records(kept)
    before = inputs_of_spec(log, known.spec)
    inputs = stage("resolve", _changed_inputs, before, request)
    refuse_impossible_pins(LegalSpace(inputs.workload, inputs.cluster, inputs.search))
    for warning in inputs.warnings:
        say(f"warning: {warning}")
    last = kept[-1].envelope
    origin = Origin(last.run_id, last.seq, last.hash)
    asked = f"{cut.words} of {parent}"
    run_id = request.run_id or fresh_run_id()
    out_dir = request.out_dir or DEFAULT_OUT_DIR / f"{inputs.cluster.name}-{run_id}"
    with held(out_dir), shielded() as shield, scoring_in(store, request.scoring) as scorer:
        watch = Watch(shield, listeners)
        start = _Start(run_id, origin, known, before, inputs, asked, request.carry)
        with _begin(store, start, out_dir, watch) as ledger:
            search_to_the_end(ledger, inputs, store, out_dir, stage, scorer)
    return run_id


def _changed_inputs(inputs: Inputs, request: ForkRequest) -> Inputs:
    if request.model_path and request.workload is None:
        raise UserError("--model-path is for the workload's presets: give --workload too")
    if request.workload is not None:
        inputs = with_workload(inputs, request.workload, request.model_path)
    if request.target_cluster is not None:
        inputs = with_cluster(inputs, request.target_cluster)
    inputs = with_settings(inputs, request.settings)
    if request.llm is not None:
        inputs = with_model(inputs, request.llm)
    elif request.ask_configured and inputs.search.llm is None:
        inputs = with_model(inputs, None)
    if request.seed_only:
        inputs = replace(inputs, search=inputs.search.model_copy(update={"llm": None}))
    if request.seed_budget is not None:
        budget = inputs.search.budget.model_copy(update={"seed_budget": request.seed_budget})
        inputs = replace(inputs, search=inputs.search.model_copy(update={"budget": budget}))
    return inputs


@dataclass(frozen=True, slots=True)
class _Start:
    """A fork that is about to begin."""

    run_id: str
    origin: Origin
    known: State
    """The state at the fork."""
    before: Inputs
    after: Inputs
    asked: str
    carry: int | None


def _begin(store: Store, start: _Start, out_dir: Path, watch: Watch) -> Ledger:
    """The new run's ledger, RunForked on disk."""
    run_id, origin, known = start.run_id, start.origin, start.known
    differences, inherits = fork_differences(known.spec, start.before, start.after)
    log = EventLog.create(store, run_id, parent=origin, secrets=start.after.secrets())
    try:
        forked = RunForked(
            parent=origin.run_id,
            parent_seq=origin.seq,
            parent_hash=origin.hash,
            asked=start.asked,
            spec=spec_of(log, start.after, out_dir),
            changed=tuple(difference.words for difference in differences),
            inherits=inherits,
            reopened=given_up(known) if inherits else (),
            carry=None if inherits else start.carry,
        )
        say(f"run {run_id} goes on from event {origin.seq} of run {origin.run_id} ({start.asked})")
        for line in forked.changed or ("nothing: the same search again from there",):
            say(f"  changed: {line}")
        if not inherits:
            which = "its candidates" if start.carry is None else f"its best {start.carry}"
            say(f"  its scores answer another question: {which} are evaluated again")
        ledger = Ledger(log, watch.shield, known, watch.listeners)
        ledger.record(Entry(forked))
        ledger.anchor()
    except BaseException:
        log.close()
        raise
    return ledger


def given_up(state: State) -> tuple[int, ...]:
    """Trials that were rejected for want of budget, which the fork may have."""
    return tuple(
        number
        for number, trial in state.trials.items()
        if trial.rejected is not None and trial.rejected.code == BUDGET_SPENT
    )
