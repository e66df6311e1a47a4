"""Calibrations: what factors move, what is refused, and whose evidence is nearest."""

from typing import Any

import pytest
import yaml

from projection.attention import flash_share
from projection.calibration import (
    FACTORS,
    calibration_from,
    calibration_of,
    expected_error,
    nearest_published,
    rates,
    with_factors,
    with_flash_attention,
)
from projection.gemm import TileGemm
from projection.profiles import achievable, gpu_names, gpu_profile
from projection.signature import signature_of
from schemas.calibration import Calibration, Evidence
from schemas.errors import ClusterError
from schemas.gpu import Achievable
from tests.builders import cluster, mixtral_8x22b

MI355X, H100 = gpu_profile("mi355x"), gpu_profile("h100")


def calibration(**fields: object) -> Calibration:
    given: dict[str, object] = {
        "gpu": "mi355x",
        "family": "CDNA 4",
        "over": "mi355x",
        "gemm": "tile",
        "fitted_from": "gpu",
        "factors": {name: factor(name) for name in FACTORS}
        | {"gemm_bf16": factor("gemm_bf16", 0.8)},
        "evidence": [evidence("gpu", "bf16", 0.04, 0.09)],
        "groups": (),
        "inputs": "0" * 16,
    }
    return Calibration.model_validate(given | fields)


def factor(name: str, value: float | None = None) -> dict[str, object]:
    spec = FACTORS[name]
    at = spec.prior if value is None else value
    return {
        **{"value": at, "prior": spec.prior, "low": at, "high": at, "origin": "gpu"},
        **{"meaning": spec.meaning, "unit": spec.unit, "range": spec.range},
    }


def evidence(level: str, precision: str, error: float, band: float) -> Evidence:
    return Evidence.model_validate(
        {
            "level": level,
            "precision": precision,
            "rows": 7,
            "groups": 3,
            "expected_error": error,
            "band": band,
        }
    )


def test_factors_name_fields_that_exist_and_start_within_their_range() -> None:
    for name, spec in FACTORS.items():
        assert set(spec.fields) <= set(Achievable.model_fields), name
        low, high = spec.range
        assert low <= spec.prior <= high
        assert spec.spread > 0


@pytest.mark.parametrize("name", gpu_names())
def test_neutral_factors_change_no_rate(name: str) -> None:
    published = achievable(gpu_profile(name), "tile")
    neutral = with_factors(published, {})
    assert neutral.calibrated
    for field in ("gemm_bf16", "hbm", "node_link", "host_launch_us", "iteration_overhead_ms"):
        assert getattr(neutral, field) == getattr(published, field)


@pytest.mark.parametrize("factor", FACTORS)
def test_a_factor_moves_its_own_rates_and_no_other(factor: str) -> None:
    published = with_factors(achievable(MI355X, "tile"), {})
    moved = with_factors(achievable(MI355X, "tile"), {factor: 0.9})
    changed = {
        name for name in Achievable.model_fields if getattr(moved, name) != getattr(published, name)
    }
    present = {n for n in FACTORS[factor].fields if getattr(published, n) is not None}
    assert changed == present


def test_experts_of_a_gpu_without_rates_of_their_own_have_the_dense_ones_times_theirs() -> None:
    assert achievable(H100).grouped_bf16 is None
    found = with_factors(achievable(H100), {"gemm_bf16": 0.8, "experts": 0.5})
    assert found.grouped_bf16 == pytest.approx(achievable(H100).gemm_bf16 * 0.4)
    assert found.one_expert_bf16 == pytest.approx(achievable(H100).gemm_bf16 * 0.8)


def test_no_rate_exceeds_its_peak() -> None:
    found = with_factors(achievable(H100), {name: spec.range[1] for name, spec in FACTORS.items()})
    assert found.hbm <= 1
    assert found.node_link <= 1
    assert max(found.a2a_overlap) <= 1
    Achievable.model_validate(found.model_dump())


def test_a_calibration_is_refused_for_another_gpu_or_gemm_model() -> None:
    assert rates(MI355X, "tile", calibration()).gemm_bf16 == pytest.approx(
        0.8 * achievable(MI355X, "tile").gemm_bf16
    )
    with pytest.raises(ClusterError, match="is of mi355x, the cluster's GPU is h100-sxm"):
        rates(H100, "tile", calibration())
    with pytest.raises(ClusterError, match="fitted over the GEMM model 'tile'"):
        rates(MI355X, "origami", calibration())


def test_a_gpu_of_ones_own_has_the_rates_of_its_nearest_kin() -> None:
    own = MI355X.model_copy(update={"name": "mi359x", "bf16_tflops": 2500.0})
    assert nearest_published(own) == "mi355x"
    found = rates(own, "tile", calibration(gpu="mi359x"))
    assert found.gpu == "mi359x"
    with pytest.raises(ClusterError, match="no GPU of the family"):
        nearest_published(own.model_copy(update={"arch": "gfx1100"}))


def test_the_nearest_evidence_is_taken_and_said() -> None:
    both = calibration(
        evidence=[evidence("gpu", "bf16", 0.04, 0.09), evidence("family", "fp8", 0.07, 0.2)]
    )
    assert expected_error(both, "bf16").nearest == "gpu and precision"
    assert expected_error(both, "bf16").band == 0.09
    assert expected_error(both, "fp8").nearest == "gpu"
    kin = calibration(evidence=[evidence("family", "fp8", 0.07, 0.2)])
    assert expected_error(kin, "fp8").nearest == "family and precision"
    assert expected_error(kin, "bf16").nearest == "family"
    nothing = expected_error(None, "bf16")
    assert (nothing.nearest, nothing.error, nothing.beside) == ("none", None, "")
    assert "uncalibrated" in nothing.words
    assert expected_error(both, "bf16").beside == " ± 9 %"


def test_the_calibration_in_force_is_part_of_the_stacks_hash_alone() -> None:
    workload, gemm = mixtral_8x22b(), TileGemm(MI355X)
    hashes = {
        name: signature_of(workload, cluster(4, gpu=MI355X, calibration=value), gemm=gemm).hashes
        for name, value in {
            "none": "none",
            "own": calibration(),
            "wider": calibration(evidence=[evidence("gpu", "bf16", 0.04, 0.2)]),
        }.items()
    }
    assert len({each.stack for each in hashes.values()}) == 3
    assert len({(each.model, each.cluster) for each in hashes.values()}) == 1


def test_none_turns_the_shipped_calibration_off() -> None:
    assert calibration_of(cluster(1, gpu=MI355X, calibration="none"), "tile") is None
    own = calibration()
    assert calibration_of(cluster(1, gpu=MI355X, calibration=own), "tile") == own


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"factors": {"gemm": {}}}, "factors.gemm.value: must be set"),
        ({"gpu": None}, "gpu: expected text"),
        ({"colour": 1}, "colour: "),
    ],
)
def test_a_file_that_is_no_calibration_is_refused_in_one_line(
    change: dict[str, object], said: str
) -> None:
    document = calibration().model_dump(mode="json") | change
    with pytest.raises(ClusterError) as refused:
        calibration_from(yaml.safe_dump(document), "mine.yaml")
    assert str(refused.value).startswith(f"mine.yaml: {said}")


def test_an_unknown_factor_is_refused_by_name() -> None:
    document = calibration().model_dump(mode="json")
    document["factors"]["gemm_bf61"] = document["factors"].pop("gemm_bf16")
    with pytest.raises(ClusterError, match="unknown factor 'gemm_bf61'"):
        calibration_from(yaml.safe_dump(document), "mine.yaml")


def test_older_flash_attention_is_slower_where_newer_kernels_exist() -> None:
    assert flash_share(H100, None) == (1, 1)
    assert flash_share(gpu_profile("a100"), 2) == (1, 1)
    forward, backward = flash_share(H100, 2)
    assert 0.5 < forward < 0.65
    assert flash_share(H100, 1) == (forward / 2, backward / 2)
    published = achievable(H100)
    slower = with_flash_attention(published, (0.5, 0.25))
    assert slower.attention == published.attention * 0.5
    assert published.attention_backward is not None
    assert slower.attention_backward == published.attention_backward * 0.25


@pytest.mark.parametrize("name", FACTORS)
def test_no_factor_of_a_file_is_out_of_its_range(name: str) -> None:
    least, most = FACTORS[name].range
    for value in (least - 0.01, most * 1.01 + 0.01, 1e300):
        document = calibration().model_dump(mode="json")
        document["factors"][name] = factor(name, value)
        with pytest.raises(ClusterError, match=rf"a\.yaml: factors\.{name}\.value: .* is not in"):
            calibration_from(yaml.safe_dump(document, allow_unicode=True), "a.yaml")


@pytest.mark.parametrize(
    ("where", "value", "says"),
    [
        (("factors", "host"), None, "factors.host: "),
        (("factors", "host", "low"), 1.5, "low … high does not hold its value"),
        (("over",), "nosuch", "over: no GPU of CDNA 4 that ships is called 'nosuch'"),
        (("over",), "h100-sxm", "over: no GPU of CDNA 4"),
        (("gemm",), "zzz", "gemm: expected one of 'origami', 'tile'"),
        (("family",), "a\nb", "family: expected one line"),
        (("evidence", 0, "band"), -1.0, "evidence.0.band: expected at least 0"),
        (("evidence", 0, "band"), 1e300, "evidence.0.band: expected at most 1000"),
        (("evidence", 0, "rows"), 0, "evidence.0.rows: expected more than 0"),
        (("evidence", 1), evidence("gpu", "bf16", 0.1, 0.2).model_dump(mode="json"), "twice"),
    ],
)
def test_a_file_that_was_tampered_with_is_refused_in_one_line(
    where: tuple[str | int, ...], value: object, says: str
) -> None:
    document: Any = calibration().model_dump(mode="json")
    *above, last = where
    at = document
    for key in above:
        at = at[key]
    if last == 1:
        at.append(value)
    elif value is None:
        del at[last]
    else:
        at[last] = value
    with pytest.raises(ClusterError) as caught:
        calibration_from(yaml.safe_dump(document, allow_unicode=True), "a.yaml")
    assert says in str(caught.value)
    assert str(caught.value).isprintable()
