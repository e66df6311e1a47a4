"""Measured rows to calibrations: one fit of all GPUs of a vendor, one calibration for each."""

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from projection import PROJECTION_VERSION
from projection.calibration import FACTORS, PRECISIONS, family_of, nearest_published
from projection.profiles import achievable, gpu_profile
from schemas.calibration import Calibration, Evidence, Factor, GroupError, Level
from schemas.gpu import GpuProfile
from schemas.signature import content_hash
from tasks.calibrate.fit import (
    NAMES,
    Descent,
    Fit,
    Problem,
    constrained,
    deviations,
    fit,
    from_line,
    neutral,
    to_line,
)
from tasks.calibrate.leave_out import LeftOut, band, each_gpu, each_group
from tasks.calibrate.observation import Observation, Project

DIGITS = 4


def calibrate(
    observations: Sequence[Observation],
    gpus: Sequence[GpuProfile],
    gemm: str,
    project: Project,
    prior: Mapping[str, Calibration] | None = None,
) -> list[Calibration]:
    """A calibration over GEMM model `gemm` for each of `gpus`, whether or not it has rows.

    `prior`: per GPU name, a calibration to start from; else the published rates. All observations
    must be of `gpus`.
    """
    known = prior or {}
    result = fit(problem_of(observations, gpus, project, known))
    groups, strangers = each_group(result), each_gpu(result)
    return [_calibration(result, gpu, gemm, groups, strangers, known.get(gpu.name)) for gpu in gpus]


def problem_of(
    observations: Sequence[Observation],
    gpus: Sequence[GpuProfile],
    project: Project,
    prior: Mapping[str, Calibration],
) -> Problem:
    """What is fitted for `gpus`, from `prior` where it has a calibration."""
    return Problem(
        observations,
        {gpu.name: descent(gpu) for gpu in gpus},
        {gpu.name: _values(prior.get(gpu.name)) for gpu in gpus},
        project,
    )


def descent(gpu: GpuProfile) -> Descent:
    """`gpu` and its kin, widest first."""
    return ("vendor", gpu.vendor), ("family", family_of(gpu)), ("gpu", gpu.name)


def _values(calibration: Calibration | None) -> dict[str, float]:
    if calibration is None:
        return neutral()
    return {**neutral(), **{name: each.value for name, each in calibration.factors.items()}}


def _calibration(
    result: Fit,
    gpu: GpuProfile,
    gemm: str,
    groups: Sequence[LeftOut],
    strangers: Sequence[LeftOut],
    before: Calibration | None,
) -> Calibration:
    mine = [group for group in groups if group.gpu == gpu.name]
    kin = [g for g in strangers if ("family", family_of(gpu)) in result.problem.descents[g.gpu]]
    over = nearest_published(gpu)
    origins = constrained(result, gpu.name)
    level = _level(result, gpu)
    return Calibration(
        gpu=gpu.name,
        family=family_of(gpu),
        over=over,
        gemm=gemm,
        fitted_from=level,
        factors=_factors(result, gpu.name, origins),
        evidence=_with_older((*_evidence("gpu", mine), *_evidence("family", kin)), before),
        groups=tuple(map(_group_error, mine)),
        inputs=inputs_hash(result.problem, over, gemm),
        notes=_notes(gpu, level, origins),
    )


def _level(result: Fit, gpu: GpuProfile) -> Level:
    """The narrowest level of the GPU's descent that has rows."""
    mine = [o.gpu for o in result.problem.observations]
    for node in reversed(result.problem.descents[gpu.name]):
        if any(node in result.problem.descents[name] for name in mine):
            return node[0]
    return "vendor"


def _factors(result: Fit, gpu: str, origins: Mapping[str, str]) -> dict[str, Factor]:
    spread = deviations(result, gpu)
    start = result.problem.prior[gpu]
    factors = {}
    for i, name in enumerate(NAMES):
        spec, moved = FACTORS[name], origins[name] != "prior"
        place = float(result.at[gpu][i]) if moved else to_line(name, start[name])
        low, high = (place - spread[i], place + spread[i]) if moved else (place, place)
        factors[name] = Factor.model_validate(
            {
                "value": _round(from_line(name, place)),
                "prior": _round(start[name]),
                "low": _round(max(from_line(name, float(low)), spec.range[0])),
                "high": _round(min(from_line(name, float(high)), spec.range[1])),
                "origin": origins[name],
                "meaning": spec.meaning,
                "unit": spec.unit,
                "range": spec.range,
            }
        )
    return factors


def _evidence(level: str, groups: Sequence[LeftOut]) -> list[Evidence]:
    found = []
    for precision in PRECISIONS:
        same = [group for group in groups if group.precision == precision]
        if same:
            found.append(
                Evidence.model_validate(
                    {
                        "level": level,
                        "precision": precision,
                        "rows": sum(len(group.rows) for group in same),
                        "groups": len(same),
                        "expected_error": _round(median(group.typical for group in same)),
                        "band": _round(band(same)),
                    }
                )
            )
    return found


def _with_older(evidence: tuple[Evidence, ...], before: Calibration | None) -> tuple[Evidence, ...]:
    """What the calibration `before` knew of other kinds of rows still holds."""
    seen = {(each.level, each.precision) for each in evidence}
    older = before.evidence if before is not None else ()
    return (*evidence, *(e for e in older if (e.level, e.precision) not in seen))


def _group_error(group: LeftOut) -> GroupError:
    return GroupError(
        group=group.group,
        rows=group.rows,
        precision=group.precision,
        error=_round(median(group.errors)),
        worst=_round(max(group.errors, key=abs)),
        fitted=_round(median(group.fitted)),
        factors={name: _round(value) for name, value in group.factors.items()},
    )


def _notes(gpu: GpuProfile, level: Level, origins: Mapping[str, str]) -> tuple[str, ...]:
    """What a reader must know: whose rows, and what they could not say."""
    notes = []
    if level != "gpu":
        notes.append(f"no measured row of {gpu.name}: its {level}'s factors")
    kept = [name for name, origin in origins.items() if origin == "prior"]
    if kept:
        notes.append(f"no row constrains {', '.join(kept)}: left as before the fit")
    borrowed = [n for n, origin in origins.items() if origin in ("family", "vendor")]
    if borrowed and level == "gpu":
        notes.append(f"no row of {gpu.name} constrains {', '.join(borrowed)}: from its kin's rows")
    return tuple(notes)


def inputs_hash(problem: Problem, over: str, gemm: str) -> str:
    """Hash of all that was fitted: rows and their measured times, priors, rates, projection."""
    published = achievable(gpu_profile(over), gemm).model_dump(mode="json", exclude={"sources"})
    return content_hash(
        {
            "rows": sorted((o.row, repr(o.measured_ms), o.trust) for o in problem.observations),
            "prior": {gpu: dict(values) for gpu, values in sorted(problem.prior.items())},
            "published": published,
            "projection": PROJECTION_VERSION,
            "factors": {n: [s.spread, *s.range, *s.fields] for n, s in FACTORS.items()},
        }
    )


def _round(value: float) -> float:
    return float(np.round(value, DIGITS))
