"""The best known recipe for a person to read, in at most 100 columns, and as JSON values."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from flows.evaluation_view import configuration_line
from flows.nearest import Near
from flows.terminal import wrapped
from schemas.evaluation import Evaluation
from storage.exports.everything import trial_file_name
from storage.exports.knobs import changed_knobs, in_words
from storage.recipes import Known, KnownRecipes, Question
from tasks.inputs import Inputs
from tasks.recall import Answer, BestKnown, Refused

LABEL = 12
"""Width of the first column."""
MOST_REFUSED = 3
"""Better trials that are told with their reasons; the others are counted."""
MOST_DIFFERENCES = 4
"""Values a nearest signature is told to differ in; the others are counted."""
LONGEST_VALUE = 24


def print_best(
    best: BestKnown, answer: Answer, recipes: KnownRecipes, inputs: Inputs, now: datetime, at: str
) -> None:
    """The recipe and where it comes from. `at`: the `--store` option of commands, or nothing."""
    known = best.known
    evaluation = known.trial.evaluation
    assert evaluation is not None, "what is known was scored"
    _print_recipe(best, evaluation, inputs)
    _print_origin(known, now)
    newest = max((run.last_at for run in recipes.runs if run.last_at), default=now)
    counts = f"{_counted(len(recipes.runs), 'run')}, {_counted(recipes.scores, 'score')}"
    _say("behind it", f"{counts}; the last event {age(newest, now)}")
    _print_refused(answer.refused)
    file = f"trials/{trial_file_name(known.trial)}" + (", recipe/" if known.is_recipe else "")
    _say("files", f"refold export {known.run_id}{at} --out-dir DIR")
    _say("", f"writes it as {file}")
    _say("why", f"refold lineage {known.run_id}{at} --trial {known.trial.number}")


def _print_recipe(best: BestKnown, evaluation: Evaluation, inputs: Inputs) -> None:
    e, config = evaluation, best.known.trial.proposed.config
    _say("best known", f"for {inputs.workload.name} on {inputs.cluster.name}")
    changed = changed_knobs(config, inputs.workload)
    knobs = ", ".join(f"{name} {in_words(a)} → {in_words(b)}" for name, (a, b) in changed.items())
    _say("changes", knobs or "nothing: the workload as its file says")
    _say("runs as", configuration_line(config.model_dump(mode="json")))
    beside = e.expected_error.beside if e.expected_error else ""
    time = "" if e.iteration_ms is None else f", {e.iteration_ms:,.1f} ms an iteration"
    _say("speed", f"{e.tokens_per_s_per_gpu or 0.0:,.0f}{beside} tokens/s/GPU{time}")
    if e.memory_per_gpu_gb is not None:
        room = e.cap_gb - e.memory_per_gpu_gb
        _say(
            "memory",
            f"{e.memory_per_gpu_gb:,.1f} GB/GPU, {room:,.1f} GB below the cap of {e.cap_gb:,.1f}",
        )
    if e.expected_error is not None:
        _say("error", e.expected_error.words)
    _say("provenance", f"{e.provenance} ({e.source}), memory regime {e.memory_regime}")
    if e.provenance == "synthetic":
        _say("", "made up: the figures say nothing about the cluster")


def _print_origin(known: Known, now: datetime) -> None:
    proposed, spec = known.trial.proposed, known.spec
    named = f"trial {known.trial.number} ({proposed.tag})" if proposed.tag else "trial"
    _say("from", f"{named} of run {known.run_id}")
    by = f"rule {proposed.rule}" if known.model is None else f"{proposed.rule}, {known.model}"
    _say("", f"by {by}: {proposed.why}")
    at = f"{known.scored_at:%Y-%m-%d %H:%M} UTC"
    versions = f"Refold {spec.refold_version}, projection {spec.projection_version}"
    _say("scored", f"{age(known.scored_at, now)} ({at}), run of {versions}")


def _print_refused(refused: Sequence[Refused]) -> None:
    label = "not told"
    for better in refused[:MOST_REFUSED]:
        known = better.known
        _say(
            label,
            f"{known.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, trial {known.trial.number} of"
            f" {known.run_id}: {better.why}",
        )
        label = ""
    if len(refused) > MOST_REFUSED:
        _say("", f"and {len(refused) - MOST_REFUSED} more: --json has them all")


def print_nothing(
    answer: Answer, recipes: KnownRecipes, near: Sequence[Near], inputs: Inputs, tune: str
) -> None:
    """That nothing is known, what is nearest, and the command that makes something known."""
    _say("best known", f"for {inputs.workload.name} on {inputs.cluster.name}: nothing")
    if recipes.runs:
        counts = f"{_counted(len(recipes.runs), 'run')}, {_counted(recipes.scores, 'score')}"
        _say("", f"{counts}, and no recipe that may be told")
        _print_refused(answer.refused)
    else:
        _say("", "no run of this signature, mode and memory regime")
    for one in near:
        _print_near(one)
    _say("to know it", tune)


def _print_near(near: Near) -> None:
    best = near.best
    shared = ", ".join(near.shared) or "nothing"
    _say("near", f"{best.workload_name} on {best.cluster_name}: {_best_of(near)}")
    _say("", f"run {best.run_id}; {_counted(near.runs, 'run')}; the same {shared}")
    shown = [d.within(LONGEST_VALUE) for d in near.differences[:MOST_DIFFERENCES]]
    more = len(near.differences) - MOST_DIFFERENCES
    if more > 0:
        shown.append(f"{more} more")
    _say("", f"differs (theirs → ours): {'; '.join(shown)}")


def _best_of(near: Near) -> str:
    speed = near.best.best_tokens_per_s_per_gpu
    return "nothing that fits" if speed is None else f"{speed:,.0f} tokens/s/GPU"


def as_document(
    question: Question, answer: Answer, recipes: KnownRecipes, near: Sequence[Near], inputs: Inputs
) -> dict[str, Any]:
    """All of it as JSON values."""
    return {
        "workload": inputs.workload.name,
        "cluster": inputs.cluster.name,
        "question": question,
        "best": None if answer.best is None else _best(answer.best, inputs),
        "runs": len(recipes.runs),
        "scores": recipes.scores,
        "not_told": [{**_place(r.known), "why": r.why} for r in answer.refused],
        "passed_over": recipes.passed_over,
        "nearest": [
            {
                "run_id": one.best.run_id,
                "workload": one.best.workload_name,
                "cluster": one.best.cluster_name,
                "signature": one.best.signature,
                "source": one.best.source,
                "memory_regime": one.best.memory_regime,
                "runs": one.runs,
                "best_trial": one.best.best_trial,
                "best_tokens_per_s_per_gpu": one.best.best_tokens_per_s_per_gpu,
                "shared": one.shared,
                "differences": [d._asdict() for d in one.differences],
            }
            for one in near
        ],
    }


def _best(best: BestKnown, inputs: Inputs) -> dict[str, Any]:
    known = best.known
    proposed, evaluation = known.trial.proposed, known.trial.evaluation
    assert evaluation is not None, "what is known was scored"
    return {
        **_place(known),
        "is_baseline": best.is_baseline,
        "requested": best.requested.model_dump(mode="json", exclude_none=True),
        "changed": changed_knobs(proposed.config, inputs.workload),
        "headroom_gb": evaluation.cap_gb - (evaluation.memory_per_gpu_gb or 0.0),
        "rule": proposed.rule,
        "why": proposed.why,
        "model": known.model,
        "refold_version": known.spec.refold_version,
        "projection_version": known.spec.projection_version,
        "evaluation": evaluation,
    }


def _place(known: Known) -> dict[str, Any]:
    return {
        "run_id": known.run_id,
        "trial": known.trial.number,
        "trial_id": known.trial.proposed.trial_id,
        "tokens_per_s_per_gpu": known.tokens_per_s_per_gpu,
        "scored_at": known.scored_at,
    }


def age(then: datetime, now: datetime) -> str:
    """`3 days ago`, in the largest unit of which there are two; a clock ahead says `just now`."""
    seconds = (now - then).total_seconds()
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit}s ago"
    return "a minute ago" if seconds >= 60 else "just now"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _say(label: str, text: str) -> None:
    for line in wrapped(text, indent=LABEL, label=label):
        print(line)
