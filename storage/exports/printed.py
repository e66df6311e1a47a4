"""The result as a person reads it: the best configuration, or what stood in the way of any."""

import shlex
from collections.abc import Mapping
from typing import Any

from schemas.evaluation import Evaluation
from schemas.recipe import Recipe
from schemas.trial import PP_ALGORITHM, NormalTrial
from schemas.workload import Workload
from storage.exports.best import recipe_of
from storage.exports.primus import (
    changed_settings,
    overrides_in,
    overrides_of,
)
from storage.state import State, Trial

_IN_FIRST_LINES = frozenset(
    {"tp", "pp", "ep", "cp", "mbs", "gbs", "vpp", "pp_schedule"}
    | {"recompute_granularity", "recompute_num_layers"}
)


def printed_result(
    state: State, workload: Workload, derived: Mapping[str, Any] | None = None
) -> str:
    """The closing text of a run, ending in a newline.

    Args:
        state: the run, as of any event.
        workload: what it was started with.
        derived: further settings that the best trial needs beside its knobs, as for `overlay`.
    """
    recipe = recipe_of(state, workload)
    if recipe is None:
        return _nothing_legal(state)
    return "\n".join(
        [
            "=== BEST CONFIGURATION ===",
            *_configuration(recipe),
            *_figures(recipe),
            *_beaten(recipe, state),
            *_passed_over(state),
            *_provenance(recipe, state),
            *(f"  ! {caveat}" for caveat in recipe.caveats),
            "",
            "=== EXPORTS for primus-cli ===",
            *(f"  {line}" for line in export_lines(recipe.config, workload, derived)),
            "",
        ]
    )


def export_lines(
    trial: NormalTrial, workload: Workload, derived: Mapping[str, Any] | None = None
) -> list[str]:
    """`export PRIMUS_…` for the degrees, then as a comment the flags for all that differs.

    The variables only reach a workload file that reads them, as `${PRIMUS_TP:1}`; the flags reach
    every one.
    """
    degrees = {"TP": trial.tp, "PP": trial.pp, "EP": trial.ep, "CP": trial.cp}
    batch = {"micro_batch_size": trial.mbs, "global_batch_size": trial.gbs}
    others = _differing_settings(trial, workload, derived or {})
    flags = batch | {key: others[key] for key in sorted(others) if key not in batch}
    return [
        *(f"export PRIMUS_{name}={value}" for name, value in degrees.items()),
        "# then pass",
        *(f"#   --{key.replace('_', '-')} {_flag_value(v)}" for key, v in flags.items()),
    ]


def _differing_settings(
    trial: NormalTrial, workload: Workload, derived: Mapping[str, Any]
) -> dict[str, Any]:
    """What turns the workload's file into `trial`: changed knobs, and words of it that must go."""
    if trial == workload.baseline:
        return {}
    stated = overrides_in(workload)
    settings = overrides_of(trial, workload)
    changed = changed_settings(trial, workload)
    said_otherwise = {k: v for k, v in settings.items() if k in stated and stated[k] != v}
    return said_otherwise | changed | dict(derived)


def _flag_value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return shlex.quote(",".join(str(item) for item in value))
    return shlex.quote(str(value))


def _configuration(recipe: Recipe) -> list[str]:
    c = recipe.config
    lines = [
        f"  trial #{recipe.trial}  source={recipe.evaluation.source}",
        f"  TP={c.tp} PP={c.pp} EP={c.ep} CP={c.cp}",
        f"  MBS={c.mbs} GBS={c.gbs} VPP={c.vpp} schedule={PP_ALGORITHM[c.pp_schedule]}",
        f"  recompute={c.recompute_granularity}/{c.recompute_num_layers or None}",
    ]
    others = {k: after for k, (_, after) in recipe.changed.items() if k not in _IN_FIRST_LINES}
    lines += [f"  {knob}={_value(value)}" for knob, value in others.items()]
    return lines


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _figures(recipe: Recipe) -> list[str]:
    evaluation = recipe.evaluation
    expected = evaluation.expected_error
    beside = expected.beside if expected else ""
    lines = [f"  → tokens/s/GPU = {_tokens(evaluation.tokens_per_s_per_gpu)}{beside}"]
    if expected is not None:
        lines.append(f"  → error        = {expected.words}")
    if evaluation.memory_per_gpu_gb is not None:
        lines += [
            f"  → memory/GPU   = {evaluation.memory_per_gpu_gb:.1f} GB",
            f"  → headroom     = {recipe.headroom_gb:.1f} GB below the cap of"
            f" {evaluation.cap_gb:.1f} GB",
        ]
    if evaluation.iteration_ms is not None:
        lines.append(f"  → iteration    = {evaluation.iteration_ms:,.1f} ms")
    return lines


def _beaten(recipe: Recipe, state: State) -> list[str]:
    """The baseline, the runner-up, and for a later round's find the best seed."""
    mine = recipe.evaluation.tokens_per_s_per_gpu
    lines = []
    if state.baseline is not None and recipe.trial != state.baseline.number:
        lines.append(f"  beats the workload as it is: {_against(state.baseline, mine)}")
    if recipe.runner_up_trial is not None:
        runner_up = state.trials[recipe.runner_up_trial]
        lines.append(f"  beats the next best: {_against(runner_up, mine)}")
    seed = recipe.best_seed_trial
    if seed is not None and seed not in (recipe.trial, recipe.runner_up_trial):
        lines.append(f"  beats the best seed: {_against(state.trials[seed], mine)}")
    return lines


def _passed_over(state: State) -> list[str]:
    """Trials that can no longer win."""
    return [
        f"  passes over trial #{trial.number}, which was invalidated: {trial.invalidated.why}"
        for trial in state.trials.values()
        if trial.invalidated is not None
    ]


def _against(other: Trial, mine: float | None) -> str:
    """`trial #5 (recompute), 2,903 tokens/s/GPU, by 12.3 %`."""
    text = f"trial #{other.number} ({other.proposed.rule})"
    evaluation = other.evaluation
    if evaluation is None:
        return f"{text}, which was not evaluated"
    theirs = evaluation.tokens_per_s_per_gpu
    if theirs is not None:
        text += f", {_tokens(theirs)} tokens/s/GPU"
        if mine is not None and theirs > 0:
            text += f", by {100 * (mine / theirs - 1):.1f} %"
    return text + _misfit(evaluation)


def _misfit(evaluation: Evaluation) -> str:
    if evaluation.fits is not False or evaluation.memory_per_gpu_gb is None:
        return ""
    return (
        f"; it does not fit ({evaluation.memory_per_gpu_gb:.1f} GB,"
        f" the cap is {evaluation.cap_gb:.1f} GB)"
    )


def _provenance(recipe: Recipe, state: State) -> list[str]:
    signature = recipe.evaluation.signature
    return [
        f"  provenance: {recipe.evaluation.provenance}, signature model {signature.model},"
        f" cluster {signature.cluster}, stack {signature.stack}",
        f"  run {recipe.run_id}, as of event {recipe.head_seq}{_unfinished(state)}",
    ]


def _unfinished(state: State) -> str:
    return "" if state.finished is not None else " (the run is not finished)"


def _tokens(value: float | None) -> str:
    return "none" if value is None else f"{value:,.0f}"


def _nothing_legal(state: State) -> str:
    counts = state.conservation
    invalidated = len(_passed_over(state))
    of_these = f" ({invalidated} of them invalidated)" if invalidated else ""
    lines = [
        "=== NO LEGAL CONFIGURATION ===",
        f"  {_candidates(counts.candidates)}: {counts.rejections} rejected, {counts.evaluations}"
        f" scored{of_these}, none {'left ' if invalidated else 'of them '}legal and within the"
        " memory cap",
        "  what bound:",
        *(f"    - {line}" for line in _what_bound(state)),
        f"  run {state.run_id}, as of event {state.head_seq}{_unfinished(state)}",
        "",
    ]
    return "\n".join(lines)


def _what_bound(state: State) -> tuple[str, ...]:
    if state.finished is None:
        return ("said when the run has finished; trials.jsonl has every rejection so far",)
    invalidated = (line.strip() for line in _passed_over(state))
    return (*state.finished.binding_constraints, *invalidated)


def _candidates(count: int) -> str:
    return f"{count} candidate" + ("" if count == 1 else "s")
