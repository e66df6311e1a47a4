"""All read models of a run that are text, into its out-dir."""

import re
from collections.abc import Collection
from pathlib import Path

from schemas.workload import Workload
from storage.exports.best import recipe_of
from storage.exports.files import first_line, remove_files, write_file
from storage.exports.ledger import scratchpad_txt, summary_json, trials_jsonl
from storage.exports.overlay import DerivedSettings, nothing_derived, overlay_yaml
from storage.exports.recipe_files import NAMES, one_line, recipe_files
from storage.state import State, Trial

_MARK = "Refold run "
"""How the first line of every trial file begins: what tells ours from a user's own file."""


def write_exports(
    state: State,
    workload: Workload,
    out_dir: Path,
    *,
    derived: DerivedSettings = nothing_derived,
) -> tuple[Path, ...]:
    """Write trials.jsonl, scratchpad.txt, summary.json, trials/*.yaml and recipe/.

    The same state and workload give the same bytes, whenever and wherever they are written. Files
    of an earlier run in `out_dir` that are no longer true are removed, a user's own left alone.

    Args:
        state: the run, as of any event; its head should be anchored first.
        workload: what the run was started with.
        out_dir: where to; made if need be.
        derived: further settings that a trial needs beside its knobs, for its overlay.

    Returns:
        The files, written now or right already.

    Raises:
        UserError: `out_dir` cannot be written.
    """
    files = {
        "trials.jsonl": trials_jsonl(state),
        "scratchpad.txt": scratchpad_txt(state),
        "summary.json": summary_json(state, workload),
    }
    for trial in state.trials.values():
        config = trial.proposed.config
        files[f"trials/{trial_file_name(trial)}"] = overlay_yaml(
            workload, config, derived(config), header=_header(state, trial)
        )
    recipe = recipe_of(state, workload)
    if recipe is not None:
        texts = recipe_files(recipe, workload, derived(recipe.config))
        files |= {f"recipe/{name}": text for name, text in texts.items()}
    remove_files(_stale(out_dir, files.keys()))
    for name, text in files.items():
        write_file(out_dir / name, text, executable=name.endswith(".sh"))
    return tuple(out_dir / name for name in files)


def trial_file_name(trial: Trial) -> str:
    """`017_tp1_pp4_ep8.yaml`: the number, then the tag in characters safe in a file name."""
    tag = re.sub(r"[^A-Za-z0-9._-]+", "-", trial.proposed.tag).strip("-.") or trial.proposed.rule
    return f"{trial.number:03d}_{re.sub(r'[^A-Za-z0-9._-]+', '-', tag)}.yaml"


def _header(state: State, trial: Trial) -> str:
    lines = [
        f"{_MARK}{state.run_id}, trial {trial.number} ({trial.proposed.rule}),"
        f" as of event {state.head_seq}",
        f"{trial.proposed.why}",
        _verdict(trial),
    ]
    target_ep = trial.proposed.config.target_ep_size
    if target_ep is not None:
        lines.append(f"priced with target_ep_size {target_ep}, which is no setting of the run")
    return "\n".join(one_line(line) for line in lines)


def _verdict(trial: Trial) -> str:
    if trial.rejected is not None:
        return f"rejected, {trial.rejected.code}: {trial.rejected.reason}"
    evaluation = trial.evaluation
    if evaluation is None:
        return "not decided yet"
    if not evaluation.legal:
        return f"illegal: {evaluation.reason}"
    tokens = evaluation.tokens_per_s_per_gpu
    speed = "not timed" if tokens is None else f"{tokens:,.0f} tokens/s/GPU"
    memory = evaluation.memory_per_gpu_gb
    size = "" if memory is None else f", {memory:.1f} GB of {evaluation.cap_gb:.1f} GB"
    fits = "" if evaluation.fits else ", does not fit"
    said = f"{speed}{size}{fits}, {evaluation.provenance} ({evaluation.source})"
    return (
        said if trial.invalidated is None else f"INVALIDATED: {trial.invalidated.why}; was {said}"
    )


def _stale(out_dir: Path, current: Collection[str]) -> list[Path]:
    """Our own files of another state: trial files by their first line, `recipe/` by its names."""
    trials = [
        path
        for path in sorted((out_dir / "trials").glob("*.yaml"))
        if f"trials/{path.name}" not in current and first_line(path).startswith(f"# {_MARK}")
    ]
    recipe = [out_dir / "recipe" / name for name in NAMES if f"recipe/{name}" not in current]
    return trials + recipe
