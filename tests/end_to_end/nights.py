"""Nights over a target or more, in a folder of a test's own."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from flows.nightly import Done, run_night
from flows.requests import NightRequest
from flows.stages import Stage, in_process
from schemas.night import TargetDecided
from storage import Store
from tests.end_to_end.files import write_inputs

SHIPPED = Path(__file__).parents[2] / "projection" / "calibrations" / "fitted"
BEFORE, AFTER = "0.10.0", "0.12.0"
"""Versions of hipBLASLt."""


def at(day: int, hour: int = 3) -> datetime:
    """A moment of a made-up month, after the slot of its night unless `hour` is before 2."""
    return datetime(2026, 3, day, hour, tzinfo=UTC)


def write_target(
    folder: Path, *, hipblaslt: str | None = None, gemm_fp8: float | None = None, **cluster: Any
) -> None:
    """A workload and a cluster in `folder`, on the software that is declared; with `gemm_fp8`, a
    calibration of it in which FP8 GEMMs reach that share of the published rate."""
    folder.mkdir(exist_ok=True)
    sections: dict[str, Any] = dict(cluster)
    if hipblaslt is not None:
        sections["stack"] = {"hipblaslt": hipblaslt}
    if gemm_fp8 is not None:
        text = (SHIPPED / "mi355x.tile.yaml").read_text()
        calibration = yaml.safe_load(text)
        calibration["factors"]["gemm_fp8"] |= {
            "value": gemm_fp8,
            "low": gemm_fp8,
            "high": gemm_fp8,
        }
        (folder / "calibration.yaml").write_text(yaml.safe_dump(calibration))
        target = {**sections.get("target_cluster", {}), "calibration": "calibration.yaml"}
        sections["target_cluster"] = target
    write_inputs(folder, **sections)


def write_targets(folder: Path, *names: str, **more: Any) -> Path:
    """A targets file over the targets in the folders `names`."""
    entries: list[Mapping[str, Any]] = [
        {"name": n, "workload": f"{n}/workload.yaml", "target_cluster": f"{n}/cluster.yaml"}
        for n in names
    ]
    defaults = {
        "seed_only": True,
        "gemm_backend": "tile",
        "seed_budget": 12,
        **more.pop("defaults", {}),
    }
    path = folder / "targets.yaml"
    path.write_text(yaml.safe_dump({"defaults": defaults, "targets": entries, **more}))
    return path


def night(folder: Path, now: datetime, stage: Stage = in_process, **request: Any) -> Done:
    """The night of the targets file in `folder` that is due at `now`."""
    fields: dict[str, Any] = {
        "targets": folder / "targets.yaml",
        "store": str(folder / "store"),
        "out_dir": folder / "out",
    }
    return run_night(NightRequest(**fields | request), stage=stage, clock=lambda: now)


def store_in(folder: Path) -> Store:
    """Where `night` keeps what it does."""
    return Store.at(folder / "store")


def only(done: Done) -> TargetDecided:
    """The decision on a night's one target."""
    (decided,) = done.night.decided.values()
    return decided
