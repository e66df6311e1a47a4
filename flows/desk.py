"""The tool belt of a model: what it may ask during a round, each evaluation an event of the run.

A tool never raises into the model: what is wrong with a question comes back as its answer. Answers
hold no time, path or hash, and numbers are rounded, so that a replay gives the same text.
"""

from collections.abc import Callable, Mapping
from typing import Any

from flows.budgets import time_is_up, what_stops
from flows.deciding import decide, entry, judge_with, proposal, rejection_entry, too_big
from flows.ledger import Recorder
from flows.llm_tape import RunTape
from flows.stages import in_process
from projection.legality import normalise
from schemas.errors import UserError
from schemas.evaluation import Evaluation
from schemas.events import NoteTaken
from schemas.trial import Candidate
from storage import State
from storage.evaluation_cache import EvaluationCache
from storage.state import Trial
from tasks.inputs import Inputs
from tasks.llm.halt import Halt
from tasks.llm.plain import plain_text
from tasks.llm.proposals import read_config
from tasks.llm.situation import budget_lines, history_lines, knobs_to_ask, notes_text, setting
from tasks.memory_filter import Rejection, memory_filter
from tasks.scoring import Scorer
from tasks.seed_batch import NumberedTrial

INVESTIGATOR = "investigator"
MOST_PER_ROUND = 25
"""Configurations a model may evaluate in a round."""
NOT_SIMULATED = "not_simulated"
MOST_NOTES = 20
MOST_QUESTIONS = 20
"""Notes a model may take in a round, and questions it may put to experts."""
EXPERTS = ("general", "moe", "memory", "pipeline", "communication")
_LONGEST_NOTE = 1000
_ROLES = frozenset(f"expert:{name}" for name in EXPERTS)
Answer = dict[str, Any]


class Desk:
    """Answers a model's questions about one run.

    Args:
        recorder: the run, with a round of a model open.
        halt: set when the turn must end.
        ask: answers a one-off question to an expert's model: (expert, question) → text.
    """

    def __init__(
        self,
        recorder: Recorder,
        inputs: Inputs,
        cache: EvaluationCache,
        tape: RunTape,
        halt: Halt,
        ask: Callable[[str, str], str],
    ) -> None:
        self._recorder, self._inputs, self._cache = recorder, inputs, cache
        self._tape, self._halt, self._ask = tape, halt, ask

    def tools(self) -> list[Callable[..., Any]]:
        """The tools, named and documented as a model sees them."""
        return [
            self.evaluate_memory_only,
            self.evaluate_simulate,
            self.get_history,
            self.get_best,
            self.get_legal_axes,
            self.get_architecture,
            self.get_cluster,
            self.get_budget_status,
            self.note_to_scratchpad,
            self.read_scratchpad,
            self.query_llm,
        ]

    def evaluate_memory_only(self, config: dict[str, Any]) -> dict[str, Any]:
        """Projected memory of a configuration (knobs by name; what is left out keeps the
        workload's value). Costs no performance call. Returns fits, GB, headroom, breakdown."""
        with self._halt.guarding():
            return self._evaluated(config, simulate=False)

    def evaluate_simulate(self, config: dict[str, Any]) -> dict[str, Any]:
        """Projected memory, then time, of a configuration. Costs one performance call if it fits.
        Returns trial, tokens/s/GPU, distance to the incumbent, time and memory breakdown."""
        with self._halt.guarding():
            return self._evaluated(config, simulate=True)

    def get_history(self, last: int = 20) -> list[str]:
        """The last trials, a line each: verdict, distances, knobs apart from the baseline."""
        with self._halt.guarding():
            count = last if isinstance(last, int) and 0 < last <= 200 else 20
            return history_lines(self._recorder.state, count)

    def get_best(self) -> dict[str, Any]:
        """The incumbent with its breakdown."""
        with self._halt.guarding():
            state = self._recorder.state
            return {"none": "nothing fits yet"} if state.best is None else self._shown(state.best)

    def get_legal_axes(self) -> dict[str, Any]:
        """Every knob's legal values."""
        with self._halt.guarding():
            axes = self._recorder.state.axes
            return {axis.name: list(axis.values) for axis in axes.axes} if axes else {}

    def get_architecture(self) -> dict[str, Any]:
        """The model that is trained, and its sequence length."""
        with self._halt.guarding():
            workload = self._inputs.workload
            known = workload.architecture.model_dump(mode="json", exclude_defaults=True)
            known.pop("moe_layers", None)
            return {**known, "seq_length": workload.seq_length}

    def get_cluster(self) -> dict[str, Any]:
        """GPUs, nodes, network and the memory cap."""
        with self._halt.guarding():
            cluster = self._inputs.cluster
            return {
                "gpu": cluster.gpu.name,
                "num_nodes": cluster.num_nodes,
                "gpus_per_node": cluster.gpus_per_node,
                "cap_gb": round(cluster.cap_gb, 1),
                "network": cluster.network.model_dump(mode="json"),
            }

    def get_budget_status(self) -> list[str]:
        """What is left of each budget."""
        with self._halt.guarding():
            state = self._recorder.state
            left = MOST_PER_ROUND - self._proposed(state)
            return [*budget_lines(state), f"evaluations in this round: {left} of {MOST_PER_ROUND}"]

    def note_to_scratchpad(self, text: str) -> str:
        """Keeps a finding for later rounds."""
        with self._halt.guarding():
            state, number = self._recorder.state, self._round
            taken = [n for n in state.notes if (n.author, n.round) == (INVESTIGATOR, number)]
            if len(taken) >= MOST_NOTES:
                return f"not noted: all {MOST_NOTES} notes of this round are taken"
            note = NoteTaken(text=plain_text(str(text))[:_LONGEST_NOTE], author=INVESTIGATOR)
            self._recorder.record(entry(self._recorder, note))
            return "noted"

    def read_scratchpad(self) -> str:
        """The notes of all rounds."""
        with self._halt.guarding():
            return notes_text(self._recorder.state)

    def query_llm(self, prompt: str, expert: str = "general") -> str:
        """Asks a fresh model a question; expert: moe, memory, pipeline, communication, general."""
        with self._halt.guarding():
            if expert not in EXPERTS:
                return f"not asked: expert is one of {', '.join(EXPERTS)}"
            state, number = self._recorder.state, self._round
            asked = [c for c in state.calls if c.round == number and c.event.role in _ROLES]
            if len(asked) >= MOST_QUESTIONS:
                return f"not asked: all {MOST_QUESTIONS} questions of this round are asked"
            return self._ask(expert, plain_text(str(prompt))[:8000])

    @property
    def _round(self) -> int | None:
        current = self._recorder.state.open_round
        return None if current is None else current.number

    def _evaluated(self, config: Any, *, simulate: bool) -> Answer:
        try:
            requested = read_config(config)
        except UserError as error:
            hint = f"; {error.hint}" if error.hint else ""
            return {"error": f"{error}{hint}"}
        trial = normalise(requested, self._inputs.workload)
        time_is_up(self._recorder)
        state = self._recorder.state
        known = next(
            (t for t in state.trials.values() if t.proposed.trial_id == trial.trial_id), None
        )
        if known is None:
            refusal = self._refusal(state)
            if refusal is not None:
                return {"error": refusal}
            candidate = Candidate(
                config=requested, rule=INVESTIGATOR, why="asked by the investigator",
                tag=setting(requested.model_dump(exclude_none=True), "-")[:80],
            )  # fmt: skip
            numbered = NumberedTrial(state.next_trial, candidate, trial)
            self._recorder.record(proposal(self._recorder, numbered, self._tape.last_call))
        else:
            numbered = NumberedTrial(
                known.number,
                Candidate(config=known.proposed.requested, rule=known.proposed.rule, why=""),
                trial,
            )
        if numbered.number in self._recorder.state.in_flight:
            self._decide(numbered, simulate=simulate)
        answer = self._answer(numbered)
        still_open = self._recorder.state.trials[numbered.number].status == "proposed"
        if simulate and still_open:
            answer["error"] = what_stops(self._recorder.state) or "not scored"
        return answer

    def _refusal(self, state: State) -> str | None:
        """Why nothing new may be evaluated, in words."""
        if (stop := what_stops(state)) is not None:
            return stop
        if state.spent.proposals >= state.spec.search.budget.max_proposals:
            return "max_proposals is spent: return what you have"
        if self._proposed(state) >= MOST_PER_ROUND:
            return f"all {MOST_PER_ROUND} evaluations of this round are spent: return what you have"
        return None

    def _proposed(self, state: State) -> int:
        return len(state.open_round.trials) if state.open_round else 0

    def _decide(self, numbered: NumberedTrial, *, simulate: bool) -> None:
        """A verdict: by legality and memory alone if that settles it, else by a score if asked."""
        if simulate:
            decide(self._recorder, self._inputs, self._cache, in_process, Scorer(), [numbered])
            return
        reject_if_it_cannot_be(self._recorder, self._inputs, numbered)

    def _answer(self, numbered: NumberedTrial) -> Answer:
        trial = self._recorder.state.trials[numbered.number]
        if trial.status == "proposed":
            evaluation = self._inputs.evaluator().memory(trial.proposed.config)
            return self._shown(trial) | _memory(evaluation) | {"fits": True}
        return self._shown(trial)

    def _shown(self, trial: Trial) -> Answer:
        state = self._recorder.state
        knobs = knobs_to_ask(trial.proposed.config, self._inputs.workload.baseline)
        shown: Answer = {"trial": f"#{trial.number}", "knobs": knobs}
        if trial.rejected is not None:
            shown |= {"rejected": trial.rejected.code, "reason": trial.rejected.reason}
        evaluation = trial.evaluation
        if evaluation is None:
            return shown
        shown |= _memory(evaluation)
        if trial.scored is not None:
            shown |= _time(evaluation)
            if state.best is not None and state.best.score and trial.score:
                apart = 100 * (trial.score / state.best.score - 1)
                shown["percent_to_incumbent"] = round(apart, 2)
        return shown


def reject_if_it_cannot_be(recorder: Recorder, inputs: Inputs, numbered: NumberedTrial) -> None:
    """Records the rejection of an illegal or too large candidate; one that may run stays open."""
    verdicts = memory_filter(
        [numbered], judge_with(inputs), inputs.evaluator(), too_big(recorder.state)
    )
    for verdict in verdicts:
        if isinstance(verdict, Rejection):
            recorder.record(rejection_entry(recorder, verdict))


def _memory(evaluation: Evaluation) -> Answer:
    if evaluation.memory_per_gpu_gb is None:
        return {}
    return {
        "fits": bool(evaluation.fits),
        "memory_per_gpu_gb": round(evaluation.memory_per_gpu_gb, 1),
        "headroom_gb": round(evaluation.cap_gb - evaluation.memory_per_gpu_gb, 1),
        "memory_breakdown_gb": _rounded(evaluation.memory_breakdown_gb),
    }


def _time(evaluation: Evaluation) -> Answer:
    return {
        "tokens_per_s_per_gpu": round(evaluation.tokens_per_s_per_gpu or 0.0, 1),
        "iteration_ms": round(evaluation.iteration_ms or 0.0, 1),
        "bubble_ratio": round(evaluation.bubble_ratio or 0.0, 4),
        "time_breakdown_ms": _rounded(evaluation.time_breakdown_ms),
    }


def _rounded(breakdown: Mapping[str, float]) -> dict[str, float]:
    """The largest parts first, what rounds to nothing left out."""
    ranked = sorted(breakdown.items(), key=lambda item: (-item[1], item[0]))
    return {name: round(value, 1) for name, value in ranked if round(value, 1) > 0}
