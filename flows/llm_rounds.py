"""Rounds of a language model: plan, propose, filter, score, until a budget or ideas are spent."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from flows.budgets import what_stops
from flows.deciding import decide, entry, give_up, proposal
from flows.ledger import Recorder
from flows.llm_access import Models, export_keys
from flows.llm_tape import ModelBudgetSpent, ModelGone, RunTape, calls_stop
from flows.stages import Stage
from projection.legality import normalise
from schemas.events import NoteTaken, RoundFinished, RoundStarted
from schemas.search import LlmPlan
from schemas.trial import Candidate
from storage import Entry, State
from storage.evaluation_cache import EvaluationCache
from tasks.inputs import Inputs
from tasks.llm.engine import TapedEngine, live_model
from tasks.llm.planner import Plan, Unreadable, ask_planner
from tasks.llm.proposals import read_candidates
from tasks.llm.situation import CHECK, notes_text, situation
from tasks.seed_batch import NumberedTrial

if TYPE_CHECKING:
    from dspy.lm15 import Request, Response

PLANNER = "planner"
LLM = "llm"
"""Proposer of these rounds."""
UNREADABLE_ROUNDS = 2
"""Rounds in a row whose plan cannot be read, after which no other is asked for."""
NO_IDEAS = "the planner has nothing new"
NO_CANDIDATE = "no candidate"


def llm_rounds(
    recorder: Recorder,
    inputs: Inputs,
    cache: EvaluationCache,
    stage: Stage,
    models: Models,
) -> None:
    """Rounds until one of them ends the search; continues one that is open.

    Raises:
        EnvironmentMissing: dspy or litellm is not installed.
        LogError: the log cannot be written.
    """
    if recorder.state.open_round is not None:
        again = recorder if models.again is None else models.again()
        _round(again, inputs, cache, stage, models)
    while ended(recorder.state) is None:
        state = recorder.state
        number = state.rounds[-1].number + 1 if state.rounds else 0
        started = RoundStarted(proposer=LLM, planned=0, budget=state.spec.search.budget)
        recorder.record(Entry(started, number))
        _round(recorder, inputs, cache, stage, models)


def ended(state: State) -> str | None:
    """Why no further round begins, in words; None: one does. Known from the events alone."""
    budget = state.spec.search.budget
    if not budget.max_perf_calls:
        return "max_perf_calls is 0: no performance call is left for a model"
    if (stop := what_stops(state)) is not None:
        return stop
    own = [known for known in state.own_rounds if known.started.proposer == LLM]
    if own and own[-1].finished is not None and own[-1].finished.final:
        return own[-1].finished.why
    if state.spent.rounds >= budget.max_rounds:
        return f"max_rounds: all {budget.max_rounds} rounds are spent"
    if state.spent.proposals >= budget.max_proposals:
        return f"max_proposals: all {budget.max_proposals} proposals are spent"
    if _since_improvement(state) >= budget.patience:
        return f"the last {_since_improvement(state)} trials did not improve"
    return None


def _round(
    recorder: Recorder,
    inputs: Inputs,
    cache: EvaluationCache,
    stage: Stage,
    models: Models,
) -> None:
    final = False
    try:
        plan = stage("llm_round", _plan, recorder, inputs, models)
        proposed = _propose(recorder, inputs, plan)
        decide(recorder, inputs, cache, stage, proposed)
        why = f"{len(proposed)} candidates decided" if proposed else NO_CANDIDATE
        if not plan.candidates:
            final, why = True, NO_IDEAS
    except (ModelGone, ModelBudgetSpent) as error:
        final, why = True, str(error)
    except Unreadable as error:
        recorder.record(entry(recorder, NoteTaken(text=str(error), author=CHECK)))
        why = NO_CANDIDATE
    give_up(recorder)
    if why == NO_CANDIDATE and _empty_rounds(recorder.state) + 1 >= UNREADABLE_ROUNDS:
        final, why = True, NO_IDEAS
    state = recorder.state
    best = state.best
    finished = RoundFinished(
        why=why,
        incumbent=state.incumbent,
        incumbent_tokens_per_s_per_gpu=best.score if best else None,
        final=final,
    )
    recorder.record(entry(recorder, finished))
    recorder.anchor()


def _plan(recorder: Recorder, inputs: Inputs, models: Models) -> Plan:
    """What the planner answers, its words noted."""
    state = recorder.state
    llm = state.spec.search.llm
    assert llm is not None, "a round of a model has one"
    if (spent := calls_stop(recorder)) is not None:
        raise ModelBudgetSpent(spent)
    engine = TapedEngine(RunTape(recorder, models.secrets), PLANNER, _live(llm, models))
    plan = ask_planner(
        engine,
        llm,
        situation(state, inputs.workload, inputs.cluster),
        "\n".join(inputs.search.prompt_extras),
        notes_text(state),
    )
    words = [plan.rationale, *(f"hypothesis: {line}" for line in plan.hypotheses), plan.polish]
    recorder.record(
        *(entry(recorder, NoteTaken(text=text, author=PLANNER)) for text in words if text)
    )
    return plan


def _live(llm: LlmPlan, models: Models) -> "Callable[[Request], Response] | None":
    """Makes live calls. LiteLLM, which takes seconds to import, is loaded by the first of them."""
    if not models.live:
        return None
    opened: list[Callable[[Request], Response]] = []

    def complete(request: "Request") -> "Response":
        if not opened:
            export_keys()
            opened.append(live_model(llm, models.api_key))
        return opened[0](request)

    return complete


def _propose(recorder: Recorder, inputs: Inputs, plan: Plan) -> list[NumberedTrial]:
    """The plan's candidates that are new, recorded; what is none is noted, with its reason."""
    state = recorder.state
    candidates, refused = read_candidates(plan.candidates, LLM)
    known = {trial.proposed.trial_id: number for number, trial in state.trials.items()}
    left = state.spec.search.budget.max_proposals - state.spent.proposals
    fresh: list[Candidate] = []
    reasons = [f"{item.sent}: {item.why}" for item in refused]
    for candidate in candidates:
        trial_id = normalise(candidate.config, inputs.workload).trial_id
        if trial_id in known:
            reasons.append(
                f"{candidate.tag or 'the workload as it is'}: is trial {known[trial_id]}"
            )
        elif len(fresh) >= left:
            reasons.append(f"{candidate.tag}: max_proposals is spent")
        else:
            known[trial_id] = len(state.trials) + len(fresh)
            fresh.append(candidate)
    first = max(state.trials, default=-1) + 1
    batch = [
        NumberedTrial(first + offset, candidate, normalise(candidate.config, inputs.workload))
        for offset, candidate in enumerate(fresh)
    ]
    call = len(state.calls) - 1
    recorder.record(
        *(entry(recorder, NoteTaken(text=reason, author=CHECK)) for reason in reasons),
        *(proposal(recorder, numbered, call) for numbered in batch),
    )
    return batch


def _since_improvement(state: State) -> int:
    """Trials of models decided since the incumbent was found."""
    rounds = [known for known in state.own_rounds if known.started.proposer == LLM]
    numbers = [number for known in rounds for number in known.trials]
    return sum(
        number > (state.incumbent if state.incumbent is not None else -1) for number in numbers
    )


def _empty_rounds(state: State) -> int:
    """Rounds of models in a row, up to the last finished one, that proposed nothing."""
    count = 0
    for known in reversed(state.own_rounds):
        if known.finished is None:
            continue
        if known.started.proposer != LLM or known.trials:
            break
        count += 1
    return count


def llm_is_gone(state: State) -> bool:
    """Whether the last round ended because a model could not be had."""
    finished: Sequence[RoundFinished] = [r.finished for r in state.rounds if r.finished]
    return bool(finished) and finished[-1].final and "Error" in finished[-1].why
