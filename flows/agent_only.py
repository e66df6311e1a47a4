"""`--agent-only`: no seed plan; a language model goes on with what was found before."""

from dataclasses import replace

from flows.differences import scores_survive, spec_differences
from flows.opening import UNFINISHED
from flows.terminal import say
from schemas.errors import LogError, UserError
from storage import EventLog, Store, list_runs
from tasks.inputs import Inputs


def run_for_an_agent(store: Store, inputs: Inputs) -> str | None:
    """The newest run whose trials and scores stand for `inputs`, whatever its budget and model.

    Raises:
        UserError: that run has not finished: its seeds come first.
    """
    for run in reversed(list_runs(store)):
        if run.problem is not None or run.signature != inputs.signature.hashes:
            continue
        try:
            log = EventLog.open(store, run.run_id)
            fits = scores_survive(spec_differences(log, log.state().spec, inputs))
        except LogError as error:
            say(f"warning: --agent-only passes over run {run.run_id}: {error}")
            continue
        if fits and run.status in UNFINISHED:
            raise UserError(
                f"--agent-only: run {run.run_id}, the newest that asked this, is not finished",
                hint=f"refold resume {run.run_id} --llm MODEL finishes it and asks the model",
            )
        if fits:
            say(f"the model goes on with run {run.run_id}")
            return run.run_id
    say("no run has asked this yet: the baseline is scored, and the model goes on from there")
    return None


def baseline_alone(inputs: Inputs) -> Inputs:
    """`inputs` with a seed plan of the baseline only."""
    budget = inputs.search.budget.model_copy(update={"seed_budget": 1})
    return replace(inputs, search=inputs.search.model_copy(update={"budget": budget}))
