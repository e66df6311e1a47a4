"""Rounds of a language model: plan, propose, filter, score, until a budget or ideas are spent."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from flows.budgets import what_stops
from flows.code_tape import RunCode
from flows.deciding import (
    decide,
    entry,
    finish_round,
    give_up,
    proposal,
    reject_in_flight,
)
from flows.desk import INVESTIGATOR, NOT_SIMULATED, Desk
from flows.ledger import Recorder
from flows.llm_access import Models, export_keys
from flows.llm_tape import ModelBudgetSpent, ModelGone, RunTape
from flows.stages import Stage
from projection.legality import normalise
from schemas.events import (
    NEXT_STEPS_AUTHOR,
    SUMMARY_AUTHOR,
    NoteTaken,
    RoundFinished,
    RoundStarted,
)
from schemas.search import LlmPlan
from storage import Entry, State
from storage.canonical import canonical
from storage.evaluation_cache import EvaluationCache
from tasks.inputs import Inputs
from tasks.llm.engine import TapedEngine, live_model
from tasks.llm.halt import Halt
from tasks.llm.investigator import Belt, ask_expert, investigate
from tasks.llm.planner import PLANNER, Plan, Unreadable, ask_planner
from tasks.llm.proposals import read_candidates
from tasks.llm.situation import CHECK, notes_text, situation
from tasks.scoring import Scorer
from tasks.seed_batch import NumberedTrial

if TYPE_CHECKING:
    from dspy.lm15 import Request, Response

LLM = "llm"
"""Proposer of these rounds."""
EMPTY_ROUNDS = 2
"""Rounds in a row that propose nothing, or nothing that can be read, after which none follows."""
NO_IDEAS = "the planner has nothing new"


def llm_rounds(
    recorder: Recorder,
    inputs: Inputs,
    cache: EvaluationCache,
    stage: Stage,
    models: Models,
    scorer: Scorer,
) -> None:
    """Rounds until one of them ends the search; continues one that is open.

    Raises:
        EnvironmentMissing: dspy or litellm is not installed.
        LogError: the log cannot be written.
    """
    if recorder.state.open_round is not None:
        again = recorder if models.again is None else models.again()
        _round(again, inputs, cache, stage, models, scorer)
    while ended(recorder.state) is None:
        state = recorder.state
        started = RoundStarted(proposer=LLM, planned=0, budget=state.spec.search.budget)
        recorder.record(Entry(started, state.next_round))
        _round(recorder, inputs, cache, stage, models, scorer)


def ended(state: State) -> str | None:
    """Why no further round begins, in words; None: one does. Known from the events alone."""
    if (stop := _stopped(state)) is not None:
        return stop
    own = [known for known in state.own_rounds if known.started.proposer == LLM]
    if own and own[-1].finished is not None and own[-1].finished.final:
        return own[-1].finished.why
    if (spent := _rounds_spent(state)) is not None:
        return spent
    if _since_improvement(state) >= state.spec.search.budget.patience:
        return f"the last {_since_improvement(state)} scored trials did not improve"
    return None


def nothing_left(state: State) -> str | None:
    """The budget that leaves nothing for another round of a model, in words."""
    return _stopped(state) or _rounds_spent(state)


def _stopped(state: State) -> str | None:
    if not state.spec.search.budget.max_perf_calls:
        return "max_perf_calls is 0: no performance call is left for a model"
    return what_stops(state)


def _rounds_spent(state: State) -> str | None:
    budget = state.spec.search.budget
    if state.spent.rounds >= budget.max_rounds:
        return f"max_rounds: all {budget.max_rounds} rounds are spent"
    if state.spent.proposals >= budget.max_proposals:
        return f"max_proposals: all {budget.max_proposals} proposals are spent"
    return None


def _round(
    recorder: Recorder,
    inputs: Inputs,
    cache: EvaluationCache,
    stage: Stage,
    models: Models,
    scorer: Scorer,
) -> None:
    why: str | None = None
    final = False
    turn = _Turn(recorder, inputs, cache, models)
    try:
        plan = stage("llm_round", turn.plan)
        if turn.llm.driver == "planner":
            batch = _propose(recorder, inputs, plan)
            decide(recorder, inputs, cache, stage, scorer, batch)
        else:
            stage("investigate", turn.investigate, plan)
        final = not plan.candidates
    except (ModelGone, ModelBudgetSpent) as error:
        why, final = str(error), True
    except Unreadable as error:
        recorder.record(entry(recorder, NoteTaken(text=str(error), author=CHECK)))
    _leave(recorder)
    give_up(recorder)
    state = recorder.state
    decided = len(state.open_round.trials) if state.open_round else 0
    if not decided and _empty_rounds(state) + 1 >= EMPTY_ROUNDS:
        final = True
    if why is None:
        why = NO_IDEAS if final else f"{decided} candidates decided"
    finish_round(recorder, why, final=final)


class _Turn:
    """What models do in one round."""

    def __init__(
        self, recorder: Recorder, inputs: Inputs, cache: EvaluationCache, models: Models
    ) -> None:
        llm = recorder.state.spec.search.llm
        assert llm is not None, "a round of a model has one"
        self.llm = llm
        self._recorder, self._inputs, self._cache = recorder, inputs, cache
        self._tape = RunTape(recorder, models.secrets)
        self._halt = Halt()
        self._live = _live(llm, models)

    def plan(self) -> Plan:
        """What the planner answers, its words noted."""
        state = self._recorder.state
        plan = ask_planner(
            self._engine(PLANNER),
            self.llm,
            situation(state, self._inputs.workload, self._inputs.cluster),
            self._guidance,
            notes_text(state),
        )
        words = [plan.rationale, *(f"hypothesis: {line}" for line in plan.hypotheses), plan.polish]
        self._note(PLANNER, words)
        return plan

    def investigate(self, plan: Plan) -> None:
        """What the investigator finds out, its words noted; its evaluations are events already."""
        state = self._recorder.state
        desk = Desk(self._recorder, self._inputs, self._cache, self._tape, self._halt, self._expert)
        belt = Belt(
            engine=self._engine(INVESTIGATOR),
            expert=self._engine("expert:code"),
            tools=desk.tools(),
            code=RunCode(self._recorder),
        )
        found = investigate(
            belt,
            self.llm,
            situation(state, self._inputs.workload, self._inputs.cluster),
            _words(plan),
            self._guidance,
            max_iterations=state.spec.search.budget.max_rlm_iterations,
        )
        known = {f"#{number}" for number in self._recorder.state.trials}
        invented = [name for name in found.trial_ids if name not in known]
        if invented:
            self._note(CHECK, [f"the investigator named trials that do not exist: {invented}"])
        named = [name for name in found.trial_ids if name in known]
        best = [f"best trials, by its own account: {' '.join(named)}"] if named else []
        self._note(INVESTIGATOR, best)
        self._note(SUMMARY_AUTHOR, [found.summary])
        self._note(NEXT_STEPS_AUTHOR, [found.next_steps])

    @property
    def _guidance(self) -> str:
        return "\n".join(self._inputs.search.prompt_extras)

    def _engine(self, role: str) -> TapedEngine:
        return TapedEngine(self._tape, role, self._halt, self._live)

    def _expert(self, expert: str, question: str) -> str:
        return ask_expert(self._engine(f"expert:{expert}"), self.llm, expert, question)

    def _note(self, author: str, words: Sequence[str]) -> None:
        notes = [NoteTaken(text=text, author=author) for text in words if text]
        self._recorder.record(*(entry(self._recorder, note) for note in notes))


def _words(plan: Plan) -> str:
    candidates = "\n".join(canonical(candidate) for candidate in plan.candidates)
    return f"{plan.rationale}\n{candidates}\n{plan.polish}"


def _leave(recorder: Recorder) -> None:
    """What a model only asked the memory of ends as a rejection that says so."""
    if what_stops(recorder.state) is None:
        reject_in_flight(recorder, NOT_SIMULATED, "it fits; no performance call was asked for")


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
    batch: list[NumberedTrial] = []
    reasons = [f"{item.sent}: {item.why}" for item in refused]
    for candidate in candidates:
        trial = normalise(candidate.config, inputs.workload)
        if (same := known.get(trial.trial_id)) is not None:
            reasons.append(f"{candidate.tag or 'the workload as it is'}: is trial {same}")
        elif len(batch) >= left:
            reasons.append(f"{candidate.tag}: max_proposals is spent")
        else:
            number = state.next_trial + len(batch)
            known[trial.trial_id] = number
            batch.append(NumberedTrial(number, candidate, trial))
    call = len(state.calls) - 1
    recorder.record(
        *(entry(recorder, NoteTaken(text=reason, author=CHECK)) for reason in reasons),
        *(proposal(recorder, numbered, call) for numbered in batch),
    )
    return batch


def _since_improvement(state: State) -> int:
    """Trials of models scored in the rounds after the one that found the incumbent."""
    found_in = -1 if state.best is None else state.best.round
    rounds = [known for known in state.own_rounds if known.started.proposer == LLM]
    return sum(
        state.trials[number].status == "scored"
        for known in rounds
        if known.number > found_in
        for number in known.trials
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
