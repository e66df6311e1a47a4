"""One target of a night, searched again: which run is made for it, and what that came to."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.differences import all_differences, not_said
from flows.forking import fork
from flows.ledger import Listener
from flows.opening import inputs_of_run
from flows.requests import ForkRequest, ResumeRequest, TuneRequest
from flows.stages import Stage
from flows.tune import resume, tune
from schemas.errors import LogError, RunNotFound
from schemas.night import Moved, Standing, TargetDecided, TargetTaken
from schemas.scoring import Scoring
from storage import EventLog, Store, fresh_run_id
from storage.extent import has_begun
from tasks.nightly.judge import Due
from tasks.nightly.standing import fixed_hash, recipe_of, scored_again
from tasks.nightly.targets import folder_of

_MOST_MOVED = 60
"""Changed values that a night records of a target; the run that was made for it has them all."""
_VERSIONS = ("cluster.stack.", "stack.")


@dataclass(frozen=True, slots=True)
class Retuning:
    """How targets are searched."""

    store: Store
    out_dir: Path
    """Each target's artefacts go to a folder below."""
    stage: Stage
    listeners: Sequence[Listener]
    scoring: Scoring | None

    def begun(self, taken: TargetTaken | None) -> bool:
        """Whether the run of an earlier attempt is there to be taken up."""
        return taken is not None and has_begun(self.store.backend, taken.run)

    def taken(self, due: Due) -> TargetTaken:
        """The run that is to be made: it continues the one of the recipe so far, if that is whole.

        Raises:
            LogError: the store cannot be read.
        """
        parent = None if due.before is None else due.before.run_id
        if parent is not None and _problem_with(self.store, parent) is not None:
            parent = None
        return TargetTaken(target=due.target.name, run=fresh_run_id(), parent=parent)

    def search(self, due: Due, taken: TargetTaken) -> TargetDecided:
        """Makes the run, or takes it up, and says what it came to.

        Raises:
            RefoldError: as `tune`, `fork` and `resume`.
            Interrupted: it was asked to stop; the run can be taken up.
        """
        out_dir, store = self.out_dir / folder_of(due.target.name), str(self.store.root)
        if self.begun(taken):
            asked = ResumeRequest(run=taken.run, store=store, out_dir=out_dir, scoring=self.scoring)
            resume(asked, stage=self.stage, listeners=self.listeners)
        elif taken.parent is None:
            start = _search_of_its_own(due, taken, store, out_dir)
            start = start.model_copy(update={"scoring": self.scoring})
            tune(start, stage=self.stage, listeners=self.listeners)
        else:
            again = _continuation(due, taken, taken.parent, store, out_dir)
            again = again.model_copy(update={"scoring": self.scoring})
            fork(again, stage=self.stage, listeners=self.listeners)
        return self._decision(due, taken)

    def _decision(self, due: Due, taken: TargetTaken) -> TargetDecided:
        """What a run came to, beside the recipe so far."""
        state = EventLog.open(self.store, taken.run).state()
        after = recipe_of(state)
        again, why = None, None
        moved: tuple[Moved, ...] = ()
        notes = [] if state.finished is None else list(state.finished.binding_constraints)
        inputs = inputs_of_run(self.store, taken.run)
        if due.before is not None:
            again, why = scored_again(inputs, due.before)
            problem = _problem_with(self.store, due.before.run_id)
            if problem is None:
                moved = _moved(self.store, due.before, taken.run)
            else:
                notes.append(f"searched anew: run {due.before.run_id} {problem}")
        return TargetDecided(
            target=due.target.name,
            outcome="first" if due.before is None else "re-tuned",
            run=taken.run,
            signature=state.spec.signature,
            search=fixed_hash(inputs),
            before=due.before,
            again=again,
            again_why=why,
            after=after,
            moved=moved,
            notes=tuple(notes),
        )


def _problem_with(store: Store, run_id: str) -> str | None:
    """Why a run cannot be continued; None: it can."""
    try:
        EventLog.open(store, run_id).state()
    except RunNotFound:
        return "is gone"
    except LogError as error:
        return f"cannot be read: {error}"
    return None


def _search_of_its_own(due: Due, taken: TargetTaken, store: str, out_dir: Path) -> TuneRequest:
    target = due.target
    return TuneRequest(
        workload=target.workload,
        target_cluster=target.target_cluster,
        out_dir=out_dir,
        store=store,
        model_path=target.model_path,
        mode=target.mode,
        gemm_backend=target.gemm_backend,
        memory_regime=target.memory_regime,
        seed_budget=target.seed_budget,
        seed_only=target.seed_only,
        llm=target.llm,
        recall=False,  # the night has asked all runs: nothing is known
        run_id=taken.run,
    )


def _continuation(
    due: Due, taken: TargetTaken, parent: str, store: str, out_dir: Path
) -> ForkRequest:
    """The last run under what is true now: its best trials first, then the search."""
    target = due.target
    asked = ("mode", "gemm_backend", "memory_regime")
    return ForkRequest(
        run=parent,
        store=store,
        out_dir=out_dir,
        workload=target.workload,
        target_cluster=target.target_cluster,
        model_path=target.model_path,
        settings=tuple(f"search.{name}={getattr(target, name)}" for name in asked),
        seed_budget=target.seed_budget,
        seed_only=target.seed_only,
        llm=target.llm,
        ask_configured=not target.seed_only,
        carry=target.top_k,
        run_id=taken.run,
    )


def _moved(store: Store, before: Standing, run: str) -> tuple[Moved, ...]:
    """What changed between the run of the recipe so far and the new one, versions first."""
    specs = [EventLog.open(store, run_id).state().spec for run_id in (before.run_id, run)]
    said = all_differences(inputs_of_run(store, before.run_id), inputs_of_run(store, run))
    differences = [*said, *not_said(said, *specs)]
    differences.sort(key=lambda difference: not difference.path.startswith(_VERSIONS))
    return tuple(
        Moved(path=difference.path, before=difference.before, after=difference.after)
        for difference in differences[:_MOST_MOVED]
    )
