"""Published pretraining recipes as rules: `python -m benchmarks.convert_recipes FOLDER`.

FOLDER holds Primus' recipes by GPU (`MI355X/…-BF16-pretrain.yaml`). Writes
`tasks/evidence/recipes.jsonl`: what a recipe sets is assumed of a measured run of that model, GPU
and precision with Primus where the source of the run is silent. Recipes that cannot be resolved
are named and left out.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from schemas.errors import UserError
from schemas.measured import PRECISION_SETTINGS, TRIAL_SETTINGS, WORKLOAD_SETTINGS
from schemas.workload import Precision, Workload
from tasks.resolve.workload import resolve_workload

HERE = Path(__file__).resolve().parents[1] / "tasks/evidence"
GPUS = {"MI355X": ["mi355x", "mi350x"], "MI325X": ["mi325x", "mi300x"]}
"""A recipe also stands for the sibling that has none of its own."""
SEPARATE = {"layout", "first_stage_layers", "last_stage_layers"}
"""True of one (PP, VPP) alone."""
ALWAYS = ("seq_length", "tp", "pp", "ep", "cp", "vpp", "mbs", "gbs")
BY_VPP = ("1f1b", "interleaved")
"""Schedules that follow from VPP, which a row may state."""


def rules(folder: Path) -> Iterator[dict[str, Any]]:
    base = yaml.safe_load((HERE / "assumptions.yaml").read_text(encoding="utf-8"))["rules"][0]
    for gpu, names in GPUS.items():
        for path in sorted((folder / gpu).glob("*-pretrain.yaml")):
            found = re.fullmatch(r"(.+)-(BF16|FP8)-pretrain", path.stem)
            if found is None:
                continue
            try:
                workload = resolve_workload(path, env={})
            except UserError as error:
                print(f"left out: {gpu}/{path.name}: {' '.join(str(error).split())[-90:]}")
                continue
            yield from _rules_of(workload, found, (gpu, names), base["settings"])


def _rules_of(
    workload: Workload, found: re.Match[str], gpus: tuple[str, list[str]], base: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    gpu, names = gpus
    own = dict(_settings(workload))
    alone = {name: own.pop(name) for name in SEPARATE if own[name] not in (None, base.get(name))}
    changed = {
        name: value
        for name, value in own.items()
        if name not in SEPARATE
        and not (name == "pp_schedule" and value in BY_VPP)
        and (name in ALWAYS or value != base.get(name, _default(name)))
    }
    when = {
        "framework": "Primus*",
        "model": found[1],
        "gpu": names,
        "precision": found[2].lower(),
    }
    why = f"Primus examples/megatron/configs/{gpu}/{found[0]}.yaml"
    gbs = own["gbs"]
    plausible: dict[str, Any] = {"gbs": [gbs, 2 * gbs, 4 * gbs]}
    if "recompute_num_layers" in changed:
        plausible["recompute_num_layers"] = [0, changed["recompute_num_layers"]]
    yield {"when": when, "why": why, "settings": changed, "plausible": plausible}
    if alone:
        where = {"pp": own["pp"], "vpp": own["vpp"]}
        yield {"when": when | where, "why": why, "settings": alone}


def _settings(workload: Workload) -> Iterator[tuple[str, Any]]:
    for name, value in workload.baseline.model_dump(mode="json").items():
        if name in TRIAL_SETTINGS:
            yield name, value
    for name, value in workload.model_dump(mode="json").items():
        if name in WORKLOAD_SETTINGS:
            yield name, value
    for name, value in workload.precision.model_dump(mode="json").items():
        if name in PRECISION_SETTINGS:
            yield name, value


def _default(name: str) -> Any:
    model = Precision if name in PRECISION_SETTINGS else Workload
    return model.model_fields[name].default if name in model.model_fields else None


def main() -> None:
    found = list(rules(Path(sys.argv[1])))
    text = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in found)
    (HERE / "recipes.jsonl").write_text(text, encoding="utf-8")
    print(f"{len(found)} rules")


if __name__ == "__main__":
    main()
