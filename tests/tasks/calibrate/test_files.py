"""Calibration files: what is written is read back, and what ships names the rows it is from."""

from pathlib import Path

import pytest

from projection.calibration import FACTORS, calibration_from, shipped_calibration, with_factors
from projection.profiles import achievable, gpu_names, gpu_profile
from schemas.calibration import Calibration
from tasks.calibrate.build import calibrate, inputs_hash, problem_of
from tasks.calibrate.calibration_file import calibration_yaml
from tasks.calibrate.measured import Measured, from_rows
from tasks.calibrate.shipped import group_name, left_out_rates
from tasks.evidence import evidence

MODELS = {"amd": ("origami", "tile"), "nvidia": ("tile",)}
SHIPPED = [(name, gemm) for name in gpu_names() for gemm in MODELS[gpu_profile(name).vendor]]


def shipped(name: str, gemm: str) -> Calibration:
    found = shipped_calibration(gpu_profile(name), gemm)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def amd() -> Measured:
    """The evidence of AMD GPUs over the tile model, which every machine has."""
    names = {name for name in gpu_names() if gpu_profile(name).vendor == "amd"}
    return from_rows([row for row in evidence() if row.gpu in names], "tile")


@pytest.mark.parametrize(("name", "gemm"), SHIPPED)
def test_every_gpu_ships_one_that_reads_back_as_written(name: str, gemm: str) -> None:
    calibration = shipped(name, gemm)
    assert (calibration.gpu, calibration.gemm) == (name, gemm)
    assert calibration_from(calibration_yaml(calibration, "test"), "text") == calibration


@pytest.mark.parametrize(("name", "gemm"), SHIPPED)
def test_it_explains_each_factor_and_names_its_rows(name: str, gemm: str) -> None:
    calibration = shipped(name, gemm)
    assert list(calibration.factors) == list(FACTORS)
    for factor in calibration.factors.values():
        low, high = factor.range
        assert low <= factor.low <= factor.value <= factor.high <= high
        assert factor.meaning
        assert factor.unit
        if factor.origin == "prior":
            assert factor.value == factor.prior
    known = {row.id: row for row in evidence()}
    for group in calibration.groups:
        for row in group.rows:
            assert group_name(known[row]) == group.group
    assert (calibration.fitted_from == "gpu") == bool(calibration.groups)
    assert all(0 < each.expected_error <= each.band for each in calibration.evidence)


@pytest.mark.slow
def test_refitting_the_shipped_rows_gives_the_shipped_factors(amd: Measured) -> None:
    gpus = [gpu_profile(name) for name in gpu_names() if gpu_profile(name).vendor == "amd"]
    for again in calibrate(amd.observations, gpus, "tile", amd.project):
        ours = shipped(again.gpu, "tile")
        assert again.inputs == ours.inputs
        assert again.fitted_from == ours.fitted_from
        assert [group.rows for group in again.groups] == [group.rows for group in ours.groups]
        for name, factor in again.factors.items():
            assert factor.value == pytest.approx(ours.factors[name].value, rel=2e-3), name
            assert factor.origin == ours.factors[name].origin


def test_a_row_is_judged_by_factors_that_never_saw_its_group() -> None:
    calibration = shipped("mi355x", "tile")
    group = calibration.groups[0]
    row = next(row for row in evidence() if row.id == group.rows[0])
    published = achievable(gpu_profile("mi355x"), "tile")
    assert left_out_rates(row, "tile") == with_factors(published, group.factors)
    stranger = row.model_copy(update={"model": "another"})
    values = {name: factor.value for name, factor in calibration.factors.items()}
    assert left_out_rates(stranger, "tile") == with_factors(published, values)


def test_the_inputs_hash_follows_rows_and_measurements(amd: Measured) -> None:
    gpus = [gpu_profile("mi325x")]
    rows = [each for each in amd.observations if each.gpu == "mi325x"]
    whole = inputs_hash(problem_of(rows, gpus, amd.project, {}), "mi325x", "tile")
    fewer = inputs_hash(problem_of(rows[1:], gpus, amd.project, {}), "mi325x", "tile")
    assert whole != fewer


def test_the_script_and_the_package_agree_where_files_lie() -> None:
    folder = Path(__file__).resolve().parents[3] / "projection" / "calibrations" / "fitted"
    names = {path.name for path in folder.glob("*.yaml")}
    assert names == {f"{name}.{gemm}.yaml" for name, gemm in SHIPPED}
