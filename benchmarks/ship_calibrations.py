"""Fits the calibrations that ship, from the evidence that ships.

Run as `python -m benchmarks.ship_calibrations [VENDOR …]` from the repository root: one joint fit
per vendor and GEMM model (AMD's twice, over Origami and over the tile model; the former needs
Origami), some minutes each. Writes `projection/calibrations/fitted/` and prints what it found.
"""

import sys
from pathlib import Path
from typing import Literal

from projection.profiles import gpu_names, gpu_profile
from schemas.calibration import Calibration
from tasks.calibrate.build import calibrate
from tasks.calibrate.calibration_file import calibration_yaml
from tasks.calibrate.measured import from_rows
from tasks.evidence import evidence

FOLDER = Path(__file__).resolve().parents[1] / "projection" / "calibrations" / "fitted"
FITS: dict[str, tuple[Literal["origami", "tile"], ...]] = {
    "amd": ("origami", "tile"),
    "nvidia": ("tile",),
}


def fitted(vendor: str, gemm: Literal["origami", "tile"]) -> list[Calibration]:
    """A calibration of every shipped GPU of `vendor`, from the shipped rows alone."""
    gpus = [gpu for gpu in map(gpu_profile, gpu_names()) if gpu.vendor == vendor]
    names = {gpu.name for gpu in gpus}
    rows = from_rows([row for row in evidence() if row.gpu in names], gemm)
    return calibrate(rows.observations, gpus, gemm, rows.project)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for vendor in sys.argv[1:] or FITS:
        for gemm in FITS[vendor]:
            for calibration in fitted(vendor, gemm):
                text = calibration_yaml(calibration, "benchmarks/ship_calibrations.py")
                (FOLDER / f"{calibration.gpu}.{gemm}.yaml").write_text(text, encoding="utf-8")
                factors = " ".join(f"{n} {f.value:.3f}" for n, f in calibration.factors.items())
                print(f"{calibration.gpu} over {gemm} ({calibration.fitted_from}): {factors}")
                for each in calibration.evidence:
                    print(
                        f"  {each.level} {each.precision}: {each.rows} rows, {each.groups} groups,"
                        f" error {each.expected_error:.1%}, band {each.band:.1%}"
                    )


if __name__ == "__main__":
    main()
