"""The `recipe/` folder: the winner for whatever launches it."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from schemas.recipe import Recipe
from schemas.workload import Workload
from storage.exports.megatron import megatron_arguments, without_argument
from storage.exports.overlay import overlay_yaml
from storage.exports.printed import export_lines

NAMES = ("workload.yaml", "exports.sh", "megatron_args.sh", "recipe.json")
"""The files of the folder."""


def recipe_files(
    recipe: Recipe, workload: Workload, derived: Mapping[str, Any] | None
) -> dict[str, str]:
    """Name → text of each file of the folder."""
    header = _header(recipe)
    return {
        "workload.yaml": overlay_yaml(workload, recipe.config, derived, header=header),
        "exports.sh": _exports_sh(recipe, workload, derived),
        "megatron_args.sh": _megatron_sh(recipe, workload, derived),
        "recipe.json": _recipe_json(recipe),
    }


def _header(recipe: Recipe) -> str:
    evaluation = recipe.evaluation
    beside = evaluation.expected_error.beside if evaluation.expected_error else ""
    lines = [
        f"Refold run {recipe.run_id}, trial {recipe.trial} ({recipe.rule}),"
        f" as of event {recipe.head_seq}, head {recipe.head_hash}",
        f"{evaluation.tokens_per_s_per_gpu:,.0f}{beside} tokens/s/GPU,"
        f" {evaluation.memory_per_gpu_gb or 0:.1f} GB of {evaluation.cap_gb:.1f} GB,"
        f" {evaluation.provenance} ({evaluation.source})",
        *recipe.caveats,
    ]
    return "\n".join(one_line(line) for line in lines)


def _exports_sh(recipe: Recipe, workload: Workload, derived: Mapping[str, Any] | None) -> str:
    lines = [
        "#!/usr/bin/env bash",
        *(f"# {line}" for line in _header(recipe).splitlines()),
        "# Source this, then start primus-cli with the flags below; or run workload.yaml, which"
        " holds it all.",
        *export_lines(recipe.config, workload, derived),
    ]
    return "\n".join(lines) + "\n"


def _megatron_sh(recipe: Recipe, workload: Workload, derived: Mapping[str, Any] | None) -> str:
    used = derived if recipe.config != workload.baseline else None
    arguments = megatron_arguments(recipe.config, workload, used)
    lines = [
        "#!/usr/bin/env bash",
        *(f"# {line}" for line in _header(recipe).splitlines()),
        '# Source this, then pass "${MEGATRON_ARGS[@]}" to Megatron-LM\'s pretrain_gpt.py beside'
        " the model's own arguments.",
        *(f"# no argument for {line}" for line in without_argument(recipe.config)),
        "MEGATRON_ARGS=(",
        *(f"  {shlex.join(argument)}" for argument in arguments),
        ")",
    ]
    return "\n".join(lines) + "\n"


def _recipe_json(recipe: Recipe) -> str:
    body = recipe.model_dump(mode="json") | {"as_of_event": recipe.head_seq}
    return json.dumps(body, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def one_line(text: str) -> str:
    """`text` with its line breaks and runs of spaces made single spaces."""
    return " ".join(text.split())
