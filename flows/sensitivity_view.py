"""What one step on each axis does, for a person to read in at most 100 columns, and as JSON."""

from collections.abc import Sequence
from typing import Any

from flows.evaluation_view import configuration_line
from flows.terminal import print_table, wrapped
from schemas.evaluation import Evaluation
from storage.exports.knobs import in_words, knobs_apart
from tasks.sensitivity import CLOSE, Sensitivity, Step

LABEL = 12
"""Width of the first column of the lines above the table."""
FOLLOW_THE_KIND = ("recompute_method", "recompute_modules")
"""Knobs that go with another kind of recomputation, and say nothing more."""
MOST_NAMED = 4
LONGEST_VALUE = 20


def print_sensitivity(found: Sensitivity, where: str) -> None:
    """The configuration, what its surroundings are like, and a row per step."""
    start = found.start
    _say("around", where)
    _say("runs as", configuration_line(start.config))
    if start.provenance == "synthetic":
        _say("source", f"{start.source}: times are made up, and say nothing about the cluster")
    beside = start.expected_error.beside if start.expected_error else ""
    _say("speed", f"{start.tokens_per_s_per_gpu or 0.0:,.0f}{beside} tokens/s/GPU")
    if start.memory_per_gpu_gb is not None:
        fits = "" if start.fits else ": does not fit"
        _say("memory", f"{start.memory_per_gpu_gb:,.1f} of {start.cap_gb:,.1f} GB/GPU{fits}")
    _say("steps", _counts(found))
    for label, line in _conclusions(found):
        _say(label, line)
    if found.held:
        _say("held", f"{', '.join(found.held)}: not for the search to move")
    rows = [_row(found, step, e) for step in found.steps if (e := step.evaluation) is not None]
    if rows:
        columns = ("step", "tokens/s/GPU>", "change>", "GB/GPU>", "verdict|")
        print_table(columns, rows)
    for step in found.steps:
        if step.evaluation is None:
            _say("not legal", f"{_moved(found, step)}: {step.refused}")


def _counts(found: Sensitivity) -> str:
    refused = sum(step.evaluation is None for step in found.steps)
    fitting = sum(step.gain is not None for step in found.steps)
    rest = len(found.steps) - refused - fitting
    return f"{len(found.steps)}: {fitting} fit, {rest} do not fit, {refused} not legal"


def _conclusions(found: Sensitivity) -> list[tuple[str, str]]:
    """Peak or plain, in words."""
    fitting = [step for step in found.steps if step.gain is not None]
    steep = [step for step in fitting if (step.gain or 0.0) < -CLOSE]
    steep.sort(key=lambda step: step.gain or 0.0)
    said = [("peak", "no step is faster")]
    if not fitting:
        said = [("alone", "no step from here runs and fits: there is nothing to compare with")]
    if found.faster:
        said = [("faster", f"{_listed(found, found.faster)}: not everything was searched")]
    if found.close:
        share = f"{len(found.close)} of {len(fitting)} lose at most {CLOSE:.0%}"
        said.append(("plain", f"{share}: {_listed(found, found.close)}"))
    if steep:
        said.append(("steepest", _listed(found, steep[:MOST_NAMED])))
    return said


def _listed(found: Sensitivity, steps: Sequence[Step]) -> str:
    named = [f"{_whole(found, step)} ({step.gain:+.1%})" for step in steps[:MOST_NAMED]]
    if len(steps) > MOST_NAMED:
        named.append(f"{len(steps) - MOST_NAMED} more")
    return "; ".join(named)


def _moved(found: Sensitivity, step: Step) -> str:
    """`vpp 1 → 2`."""
    before, after = getattr(found.trial, step.axis), step.value
    return f"{step.axis} {_short(before)} → {_short(after)}"


def _row(found: Sensitivity, step: Step, e: Evaluation) -> tuple[object, ...]:
    speed = None if e.tokens_per_s_per_gpu is None else f"{e.tokens_per_s_per_gpu:,.0f}"
    memory = None if e.memory_per_gpu_gb is None else f"{e.memory_per_gpu_gb:,.1f}"
    change = None if step.gain is None else f"{step.gain:+.1%}"
    return (_whole(found, step), speed, change, memory, _verdict(step, e))


def _whole(found: Sensitivity, step: Step) -> str:
    """`vpp 1 → 2, with pp_schedule interleaved`: the step and what had to go with it."""
    changes = also_changed(found, step)
    shown = {knob: to for knob, (_, to) in changes.items() if knob not in FOLLOW_THE_KIND}
    with_it = ", ".join(f"{knob} {_short(value)}" for knob, value in shown.items())
    return _moved(found, step) + (f", with {with_it}" if with_it else "")


def _short(value: object) -> str:
    """A value in words, of which a layout or a list of layers may have many."""
    words = in_words(value)
    return words if len(words) <= LONGEST_VALUE else f"{words[: LONGEST_VALUE - 1]}…"


def _verdict(step: Step, e: Evaluation) -> str:
    if not e.legal:
        return "impossible"
    if step.gain is None:
        return f"{(e.memory_per_gpu_gb or 0.0) - e.cap_gb:,.1f} GB too large" if not e.fits else "-"
    if step.gain > 0:
        return "faster"
    return "close" if step.gain >= -CLOSE else "slower"


def also_changed(found: Sensitivity, step: Step) -> dict[str, tuple[Any, Any]]:
    """Knobs besides the step's own that are different after it: (before, after)."""
    if step.trial is None:
        return {}
    changes = knobs_apart(found.trial, step.trial)
    changes.pop(step.axis, None)
    return changes


def as_document(found: Sensitivity) -> dict[str, Any]:
    """All of it as JSON values; `change` is a fraction of the throughput."""
    return {
        "start": found.start,
        "close": CLOSE,
        "faster": len(found.faster),
        "held": found.held,
        "steps": [
            {
                "axis": step.axis,
                "from": getattr(found.trial, step.axis),
                "to": step.value,
                "also": also_changed(found, step),
                "trial_id": None if step.trial is None else step.trial.trial_id,
                "refused": step.refused,
                "change": step.gain,
                "evaluation": step.evaluation,
            }
            for step in found.steps
        ],
    }


def _say(label: str, text: str) -> None:
    for line in wrapped(text, indent=LABEL, label=label):
        print(line)
