"""Recipes of targets: what they are, where they come from, and what they score now."""

from collections.abc import Collection
from dataclasses import dataclass, field

from projection.legality import LegalSpace, check, normalise
from schemas.errors import LogError
from schemas.evaluation import Evaluation, SignatureHashes
from schemas.night import Standing
from schemas.search import SearchSpec
from schemas.signature import content_hash
from schemas.trial import NormalTrial
from storage import EventLog, RunSummary, State, Store, list_runs
from storage.ranking import eligible
from storage.recipes import KnownRecipes
from storage.state import Trial
from tasks.inputs import Inputs
from tasks.recall import best_known, question_of
from tasks.seed_plan.pins import with_pins

_NOT_OF_A_RECIPE = {"budget", "prompt_extras", "proposer", "llm"}
"""Parts of a search that bound how long is looked, not what may be found."""


def search_hash(search: SearchSpec) -> str:
    """What a search may find: with another hash, a recipe may not be allowed, or not be best."""
    return content_hash(search.model_dump(mode="json", exclude=_NOT_OF_A_RECIPE))


def recipe_of(state: State) -> Standing | None:
    """The recipe of a run; None: it has none."""
    best = state.best
    return None if best is None else standing_of(best, state.run_id, state.spec.search)


def standing_of(trial: Trial, run_id: str, search: SearchSpec) -> Standing | None:
    """The recipe that a trial of a run is; None: it cannot win."""
    if trial.score is None or trial.evaluation is None:
        return None
    return standing(
        trial.evaluation,
        run_id=run_id,
        trial=trial.number,
        config=trial.proposed.config,
        search=search,
    )


def standing(
    evaluation: Evaluation, *, run_id: str, trial: int, config: NormalTrial, search: SearchSpec
) -> Standing | None:
    """The recipe that `evaluation` is of; None: it cannot win."""
    score = eligible(evaluation)
    if score is None or evaluation.iteration_ms is None:
        return None
    return Standing(
        run_id=run_id,
        trial=trial,
        trial_id=evaluation.trial_id,
        config=config,
        tokens_per_s_per_gpu=score,
        iteration_ms=evaluation.iteration_ms,
        memory_per_gpu_gb=evaluation.memory_per_gpu_gb,
        cap_gb=evaluation.cap_gb,
        time_breakdown_ms=dict(evaluation.time_breakdown_ms),
        source=evaluation.source,
        provenance=evaluation.provenance,
        memory_regime=evaluation.memory_regime,
        signature=evaluation.signature,
        search=search_hash(search),
    )


def fixed_hash(inputs: Inputs) -> str:
    """What nothing could be found in: the search, and what the workload fixes of it, which is part
    neither of a signature nor of a search."""
    return content_hash(
        {
            "search": search_hash(inputs.search),
            "baseline": _baseline(inputs).model_dump(mode="json"),
        }
    )


def _baseline(inputs: Inputs) -> NormalTrial:
    space = LegalSpace(inputs.workload, inputs.cluster, inputs.search)
    return normalise(with_pins(space), inputs.workload)


def no_longer_legal(inputs: Inputs, known: Standing) -> str | None:
    """Why a search of `inputs` may not ask for the recipe of `known`; None: it may.

    As a proposal, unless it is the workload as its file says, whatever its number in a fork is.
    """
    proposal = known.config != _baseline(inputs)
    verdict = check(known.config, inputs.workload, inputs.cluster, inputs.search, proposal=proposal)
    if verdict.legal:
        return None
    first = verdict.violations[0]
    return f"{first.code}: {first.reason}"


def scored_again(inputs: Inputs, known: Standing) -> tuple[Standing | None, str | None]:
    """What the recipe of `known` scores under `inputs`, asked of the oracle and of no cache; and,
    where it no longer can win, why."""
    if (why := no_longer_legal(inputs, known)) is not None:
        return None, why
    evaluation = inputs.evaluator().score(known.config)
    again = standing(
        evaluation,
        run_id=known.run_id,
        trial=known.trial,
        config=known.config,
        search=inputs.search,
    )
    if again is not None:
        return again, None
    if evaluation.fits is False and evaluation.memory_per_gpu_gb is not None:
        return None, (f"needs {evaluation.memory_per_gpu_gb:.1f} GB of {evaluation.cap_gb:.1f} GB")
    return None, evaluation.reason or "it has no time"


@dataclass(slots=True)
class KnownRuns:
    """The runs of a store by what they are of; their logs are read when asked for."""

    store: Store
    by_signature: dict[SignatureHashes, list[RunSummary]] = field(default_factory=dict)
    by_name: dict[tuple[str, str], RunSummary] = field(default_factory=dict)
    """By names of workload and cluster, the newest that finished with a recipe."""
    withdrawn: set[tuple[SignatureHashes, str]] = field(default_factory=set)
    """Configurations, by trial id, whose score under a signature some run found wrong."""
    unread: list[str] = field(default_factory=list)
    """What could not be read, and why."""

    @classmethod
    def of(cls, store: Store, but: Collection[str] = ()) -> "KnownRuns":
        """Those of `store`, from their anchored summaries alone, without the runs `but`.

        Raises:
            LogError: the store cannot be listed.
        """
        known = cls(store)
        for run in list_runs(store):
            if run.run_id in but:
                continue
            if run.signature is not None:
                known.withdrawn |= {(run.signature, trial_id) for trial_id in run.found_wrong}
            if run.problem is not None:
                known.unread.append(f"run {run.run_id}: {run.problem}")
            elif run.signature is not None:
                known.by_signature.setdefault(run.signature, []).append(run)
                if run.status == "finished" and run.best_trial is not None:
                    known.by_name[run.workload_name, run.cluster_name] = run
        return known

    def stands(self, standing: Standing, inputs: Inputs) -> bool:
        """Whether a recipe of an earlier night may still be a target's: its score answers the same
        kind of question, for a made-up one is compared with none, and nobody withdrew it. Where it
        was scored anew after that, `best` tells it again."""
        withdrawn = (standing.signature, standing.trial_id) in self.withdrawn
        return standing.source == inputs.search.source and not withdrawn

    def best(self, inputs: Inputs, better_than: float = 0.0) -> Standing | None:
        """The best recipe on record that answers the question of `inputs` and that its search may
        ask for, if it has more than `better_than` tokens/s/GPU."""
        question = question_of(inputs)
        runs = self.by_signature.get(question.signature, [])
        if not any(
            question.is_asked_by(run) and (run.best_tokens_per_s_per_gpu or 0.0) > better_than
            for run in runs
        ):
            return None
        # All of them: a run with nothing better may have found wrong what another has.
        recipes = KnownRecipes(self.store, question, runs)
        best = best_known(recipes, inputs).best
        self.unread += recipes.passed_over
        if best is None or best.known.tokens_per_s_per_gpu <= better_than:
            return None
        known = best.known
        return standing_of(known.trial, known.run_id, known.spec.search)

    def last_of(self, inputs: Inputs) -> Standing | None:
        """The recipe of the newest finished run of the same workload and cluster, by their names,
        that was asked the same kind of question."""
        run = self.by_name.get((inputs.workload.name, inputs.cluster.name))
        if run is None or run.source != inputs.search.source:
            return None
        try:
            state = EventLog.open(self.store, run.run_id).state()
        except LogError as error:
            self.unread.append(str(error))
            return None
        return recipe_of(state)
