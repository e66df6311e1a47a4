"""The best known recipe that a search may ask for, of all runs that asked its question."""

from dataclasses import dataclass

from projection.legality import LegalSpace, normalise, short_request
from projection.legality.check import judge
from schemas.events import RecipeRecalled
from schemas.trial import TrialConfig
from storage.exports.knobs import knobs_apart
from storage.recipes import Known, KnownRecipes, Question
from storage.store import Store
from tasks.inputs import Inputs
from tasks.seed_plan.pins import with_pins


@dataclass(frozen=True, slots=True)
class Refused:
    """A better trial that is not told as the recipe, and why."""

    known: Known
    why: str


@dataclass(frozen=True, slots=True)
class BestKnown:
    """The best trial of a question that this search may ask for."""

    known: Known
    requested: TrialConfig
    """As this workload has to be asked for it."""
    is_baseline: bool
    """It is the workload as its file says, but for pinned knobs: trial 0 of every search."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the store knows for a search."""

    best: BestKnown | None
    refused: tuple[Refused, ...]
    """Better ones that this search may not ask for, or that are not to be believed."""


def question_of(inputs: Inputs) -> Question:
    """What the scores of a search of `inputs` answer."""
    return Question(
        signature=inputs.signature.hashes,
        source=inputs.search.source,
        memory_regime=inputs.search.memory_regime,
    )


def best_known(recipes: KnownRecipes, inputs: Inputs) -> Answer:
    """The best of `recipes` that a search of `inputs` may ask for, and what is better than it.

    A recipe is judged as the search would: as a proposal, so within its pins, toggles and limits;
    the baseline as the user's file.
    """
    workload = inputs.workload
    space = LegalSpace(workload, inputs.cluster, inputs.search)
    baseline = normalise(with_pins(space), workload)
    refused: list[Refused] = []
    for known in recipes:
        config = known.trial.proposed.config
        requested = short_request(config, workload)
        why = _not_to_be_believed(known)
        if why is None and (had := normalise(requested, workload)) != config:
            apart = ", ".join(knobs_apart(config, had))
            why = f"this workload cannot be asked for it: its {apart} would differ"
        if why is None:
            verdict = judge(config, space.context, proposal=config != baseline)
            why = None if verdict.legal else verdict.violations[0].reason
        if why is None:
            best = BestKnown(known, requested, is_baseline=config == baseline)
            return Answer(best, tuple(refused))
        refused.append(Refused(known, why))
    return Answer(None, tuple(refused))


def _not_to_be_believed(known: Known) -> str | None:
    wrong = known.found_wrong
    return None if wrong is None else f"found wrong in run {wrong.run_id}"


def recall(store: Store, inputs: Inputs) -> tuple[RecipeRecalled | None, tuple[str, ...]]:
    """The best known recipe for a new run to begin with; and the runs that could not be asked.

    None: nothing is known, or nothing better than the baseline, which every run has anyway.

    Raises:
        LogError: the store cannot be listed.
    """
    recipes = KnownRecipes(store, question_of(inputs))
    best = best_known(recipes, inputs).best
    unread = tuple(recipes.passed_over)
    if best is None or best.is_baseline:
        return None, unread
    known = best.known
    evaluation = known.trial.evaluation
    assert evaluation is not None, "what is known was scored"
    return RecipeRecalled(
        run=known.run_id,
        trial=known.trial.number,
        trial_id=known.trial.proposed.trial_id,
        requested=best.requested,
        tokens_per_s_per_gpu=known.tokens_per_s_per_gpu,
        provenance=evaluation.provenance,
        scored_at=known.scored_at,
    ), unread
