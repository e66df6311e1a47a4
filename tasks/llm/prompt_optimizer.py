"""A better prompt for the planner, found by dspy's GEPA on recorded decisions.

The optimizer asks models and reads runs; it appends to none.
"""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout

from schemas.search import LlmPlan
from tasks.llm.engine import TapedEngine, language_model, load_dspy
from tasks.llm.planner import planner_module, speaking_as
from tasks.llm.planner_scores import Case, planner_metric


def better_prompt(
    engine: TapedEngine,
    reflection: TapedEngine,
    llm: LlmPlan,
    cases: Sequence[Case],
    instructions: str,
    *,
    metric_calls: int,
) -> str:
    """The best instructions GEPA found from `instructions` on; those themselves when none is.

    Where the cases are of several signatures, the last one's are held out to choose by: a prompt
    that only fits the jobs it was made on is not better.

    Args:
        engine: answers as the planner.
        reflection: answers when a new prompt is to be written.
        metric_calls: answers of the planner that may be scored, about.
    """
    dspy = load_dspy()
    learned, held_out = _split(cases)
    optimizer = dspy.GEPA(
        metric=planner_metric,
        max_metric_calls=metric_calls,
        reflection_lm=language_model(reflection, llm, llm.model),
        add_format_failure_as_feedback=True,
        num_threads=1,
        seed=0,
    )
    # Some of its progress bars go to stdout, which is for answers.
    with speaking_as(engine, llm), redirect_stdout(sys.stderr):
        found = optimizer.compile(
            planner_module(instructions), trainset=_examples(learned), valset=_examples(held_out)
        )
    engine.halt.check()
    reflection.halt.check()
    text: str = found.predictors()[0].signature.instructions
    return f"{text.strip()}\n"


def _split(cases: Sequence[Case]) -> tuple[list[Case], list[Case]]:
    """Cases to learn from, and cases to choose by."""
    last = cases[-1].decision.state.spec.signature
    learned = [case for case in cases if case.decision.state.spec.signature != last]
    held_out = [case for case in cases if case.decision.state.spec.signature == last]
    return learned or held_out, held_out


def _examples(cases: Sequence[Case]) -> list[object]:
    dspy = load_dspy()
    return [
        dspy.Example(
            case=case,
            situation=case.situation,
            guidance=case.guidance,
            scratchpad=case.scratchpad,
        ).with_inputs("situation", "guidance", "scratchpad")
        for case in cases
    ]
