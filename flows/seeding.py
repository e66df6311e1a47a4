"""Round 0: the seed plan, proposed, filtered and scored until it is done or a budget is spent."""

from collections.abc import Sequence

from flows.budgets import recorded_stop, what_stops
from flows.deciding import decide, entry, finish_round, give_up, proposal
from flows.ledger import Recorder
from flows.stages import Stage
from flows.terminal import warn
from schemas.errors import SpecChanged
from schemas.events import Event, NoteTaken, RecipeRecalled, RoundStarted
from schemas.trial import Candidate
from storage import Entry, State
from storage.evaluation_cache import EvaluationCache
from storage.kept_answers import KeptAnswers
from storage.state import Trial
from tasks.carry import (
    BESIDE_THE_BUDGET,
    carried_candidates,
    recalled_candidates,
    with_known,
)
from tasks.finish import PLAN_DONE
from tasks.inputs import Inputs
from tasks.kept_steps import seeds_of
from tasks.scoring import Scorer
from tasks.seed_batch import NumberedTrial, seed_batch
from tasks.seed_plan import order_for_budget, skipped_notes

SEED = "seed"
PLANNER = "seed plan"


def seeds_are_due(state: State) -> bool:
    """Whether the seed plan may have something to propose or to decide.

    A fork goes on with its parent's plan: its budget may reach further, and what the parent gave up
    may be in flight again. The round that finds nothing to do records nothing.
    """
    if state.open_round is not None:
        return state.open_round.started.proposer == SEED
    return not state.own_rounds


def seed_round(
    ledger: Recorder,
    inputs: Inputs,
    cache: EvaluationCache,
    stage: Stage,
    scorer: Scorer,
    answers: KeptAnswers | None = None,
) -> None:
    """Takes the seed round from wherever the log says it stands to its end.

    `answers`: plans of other searches; None plans anew.

    Raises:
        SpecChanged: what the seed rounds have proposed is not the beginning of this plan.
        LogError: the log cannot be written.
    """
    state = ledger.state
    plan, notes = stage("seed_batch", _plan_seeds, inputs, state.carried, state.recalled, answers)
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
            decide(ledger, inputs, cache, stage, scorer, _in_flight(ledger.state))
        give_up(ledger)
    complete = not _missing(state, whole) and recorded_stop(state) is None
    finish_round(ledger, PLAN_DONE if complete or stop is None else stop)


def _open_round(ledger: Recorder, plan: Sequence[NumberedTrial], notes: Sequence[str]) -> None:
    state = ledger.state
    taken = {note.text for note in state.notes}
    entries: list[Event] = [
        NoteTaken(text=note, author=PLANNER) for note in notes if note not in taken
    ]
    if state.open_round is not None:
        ledger.record(*(entry(ledger, note) for note in entries))
        return
    planned = len(state.in_flight) + len(_missing(state, _affordable(state, plan)))
    budget = state.spec.search.budget
    entries.insert(0, RoundStarted(proposer=SEED, planned=planned, budget=budget))
    ledger.record(*(Entry(event, state.next_round) for event in entries))


def _affordable(state: State, plan: Sequence[NumberedTrial]) -> Sequence[NumberedTrial]:
    """The seeds the budget reaches to, and those a fork's parent proposed beyond it. The best known
    recipe, what a fork carries over, and what another's verdict settled unasked, count for none."""
    seeds = state.spec.search.budget.seed_budget
    beside = sum(seed.candidate.rule in BESIDE_THE_BUDGET for seed in plan)
    return plan[: max(seeds + beside + _implied(state), len(_proposed(state)))]


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


def _plan_seeds(
    inputs: Inputs,
    carried: Sequence[Trial],
    recalled: RecipeRecalled | None,
    answers: KeptAnswers | None,
) -> tuple[tuple[NumberedTrial, ...], tuple[str, ...]]:
    """The seeds in the order of the budget, after the best known recipe and what a fork carries
    over; and what is to be noted of those that were refused."""
    plan = seeds_of(inputs, answers, warn)
    known = [*recalled_candidates(recalled), *carried_candidates(carried)]
    seeds = with_known(order_for_budget(plan.candidates), known, inputs.workload)
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
                hint="resume it with the Refold that started it, or:"
                f" refold fork {state.run_id} --at-round 0",
            )
    ledger.record(*(proposal(ledger, seed) for seed in _missing(state, batch)))


def _in_flight(state: State) -> list[NumberedTrial]:
    """What is undecided, as proposed: candidates of others too, which a fork took up again."""
    return [_numbered(state.trials[number]) for number in sorted(state.in_flight)]


def _numbered(trial: Trial) -> NumberedTrial:
    proposed = trial.proposed
    candidate = Candidate(
        config=proposed.requested, rule=proposed.rule, why=proposed.why, tag=proposed.tag
    )
    return NumberedTrial(trial.number, candidate, proposed.config)
