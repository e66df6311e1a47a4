"""`--agent-only`: no seed plan; a language model goes on with what was found before."""

from collections.abc import Sequence
from dataclasses import replace

from flows.differences import Difference, scores_survive, spec_differences
from flows.llm_rounds import nothing_left
from flows.seeding import seeds_are_due
from flows.terminal import say
from schemas.errors import LogError, UserError
from storage import EventLog, State, Store, list_runs
from tasks.inputs import Inputs

NOT_THE_RUNS_OWN = ("search.llm", "search.budget.seed_budget")
"""What the command says, or what no seed plan needs."""


def run_for_an_agent(store: Store, inputs: Inputs) -> str | None:
    """The newest run whose trials and scores stand for `inputs` and whose seeds are done, finished
    or not. Its own budget and prompt stand: where the files say otherwise, that is said.

    Raises:
        UserError: there is none, but one whose seeds are not done; or that one's rounds are spent.
    """
    unready: str | None = None
    for run in reversed(list_runs(store)):
        if run.problem is not None or run.signature != inputs.signature.hashes:
            continue
        try:
            log = EventLog.open(store, run.run_id)
            state = log.state()
            differences = spec_differences(log, state.spec, inputs)
        except LogError as error:
            say(f"warning: --agent-only passes over run {run.run_id}: {error}")
            continue
        if not scores_survive(differences):
            continue
        if seeds_are_due(state):
            unready = unready or run.run_id
            continue
        _refuse_spent(state)
        _say_what_stands(state, differences)
        return run.run_id
    if unready is not None:
        raise UserError(
            f"--agent-only: the seeds of run {unready}, which asked this, are not done",
            hint=f"refold resume {unready} --llm MODEL does them and asks the model",
        )
    say("no run has asked this yet: the baseline is scored, and the model goes on from there")
    return None


def _refuse_spent(state: State) -> None:
    if (spent := nothing_left(state)) is not None:
        raise UserError(
            f"--agent-only: run {state.run_id} has nothing left for a model: {spent}",
            hint=f"refold fork {state.run_id} --target-cluster FILE --llm MODEL goes on with a"
            " larger budget",
        )


def _say_what_stands(state: State, differences: Sequence[Difference]) -> None:
    say(f"the model goes on with run {state.run_id}")
    other = [d.words for d in differences if not d.is_in(NOT_THE_RUNS_OWN)]
    if other:
        say(
            f"the run's own search stands, and not the file's: {'; '.join(other[:4])}"
            f" (to change it: refold fork {state.run_id} --target-cluster FILE --llm MODEL)"
        )


def baseline_alone(inputs: Inputs) -> Inputs:
    """`inputs` with a seed plan of the baseline only."""
    budget = inputs.search.budget.model_copy(update={"seed_budget": 1})
    return replace(inputs, search=inputs.search.model_copy(update={"budget": budget}))
