"""The shipped calibration of a row's GPU, and what it would be had it never seen the row."""

from projection.calibration import rates, shipped_calibration, with_factors
from projection.profiles import achievable, gpu_profile
from schemas.gpu import Achievable
from schemas.measured import MeasuredRow


def group_name(row: MeasuredRow) -> str:
    """The row's group as calibrations name it."""
    return " ".join(map(str, row.group))


def left_out_rates(row: MeasuredRow, gemm: str) -> Achievable:
    """Rates for `row` from a fit that did not see its group, over GEMM model `gemm`.

    The shipped calibration holds the factors of every such fit. A group it does not know was in no
    fit at all, so the shipped factors never saw it either; without a calibration: published rates.
    """
    gpu = gpu_profile(row.gpu)
    calibration = shipped_calibration(gpu, gemm)
    if calibration is None:
        return achievable(gpu, gemm)
    for group in calibration.groups:
        if group.group == group_name(row):
            return with_factors(achievable(gpu_profile(calibration.over), gemm), group.factors)
    return rates(gpu, gemm, calibration)
