"""Calibrations: what each factor means, which rates it moves, and whose evidence is nearest.

A calibration is a handful of factors over the published rates (`projection.profiles.achievable`).
Applied to them it gives another `Achievable`, so rates still enter a projection in one place.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import yaml
from pydantic import ValidationError

from projection.kernels import gemm_factor
from projection.operations import Dtype, Gemm
from projection.profiles import achievable, gpu_names, gpu_profile
from schemas.calibration import CalibratedPrecision, Calibration, Evidence, ExpectedError
from schemas.cluster import Cluster
from schemas.errors import ClusterError
from schemas.gpu import Achievable, GpuProfile
from schemas.wording import problem

_FITTED: Final = Path(__file__).parent / "calibrations" / "fitted"

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where it is there: ten times as fast, and every first evaluation waits for it."""
RATE: Final = "of the published rate"
COST: Final = "of the published time"


@dataclass(frozen=True, slots=True)
class FactorSpec:
    """One factor of every calibration.

    `spread` is the standard deviation of its prior: in log for a multiplier, in its unit for a
    quantity that is added. `fields` of `Achievable` are multiplied by it; an added quantity is
    the field.
    """

    meaning: str
    unit: str
    range: tuple[float, float]
    spread: float
    fields: tuple[str, ...]
    prior: float = 1.0

    @property
    def added(self) -> bool:
        """Whether it is a quantity of its own and not a multiplier."""
        return self.prior == 0.0


FACTORS: Final[Mapping[str, FactorSpec]] = {
    "gemm_bf16": FactorSpec(
        "BF16 and FP16 GEMMs of a training step against a matmul sweep's best shape: power and"
        " clocks under sustained load, operands that are not in cache",
        RATE,
        (0.5, 1.3),
        0.10,
        (
            "gemm_bf16",
            "gemm_bf16_backward",
            "one_expert_bf16",
            "one_expert_bf16_backward",
            "grouped_bf16",
            "grouped_bf16_backward",
        ),
    ),
    "experts": FactorSpec(
        "grouped GEMMs of several experts, beside the factor of their precision: small and uneven"
        " groups, padding, one stream",
        RATE,
        (0.3, 1.3),
        0.20,
        ("grouped_bf16", "grouped_bf16_backward", "grouped_fp8", "grouped_fp8_backward"),
    ),
    "gemm_fp8": FactorSpec(
        "FP8 GEMMs likewise",
        RATE,
        (0.5, 1.3),
        0.10,
        (
            "gemm_fp8",
            "gemm_fp8_backward",
            "one_expert_fp8",
            "one_expert_fp8_backward",
            "grouped_fp8",
            "grouped_fp8_backward",
        ),
    ),
    "attention": FactorSpec(
        "attention kernels, forward and backward",
        RATE,
        (0.4, 1.6),
        0.15,
        ("attention", "attention_backward"),
    ),
    "memory_bound": FactorSpec(
        "passes bound by HBM: norms, activations, casts, permutations",
        RATE,
        (0.4, 1.15),
        0.15,
        ("hbm",),
    ),
    "optimizer": FactorSpec(
        "the optimizer step's own passes over the states",
        RATE,
        (0.5, 4.0),
        0.4,
        ("optimizer_hbm",),
    ),
    "node_link": FactorSpec(
        "collectives inside a node",
        RATE,
        (0.4, 1.25),
        0.15,
        ("node_link", "gather_link", "switch_reduction"),
    ),
    "cluster_link": FactorSpec(
        "collectives between nodes",
        RATE,
        (0.25, 1.1),
        0.25,
        ("pod_link", "cluster_link"),
    ),
    "overlap": FactorSpec(
        "share of communication that the framework hides, of what the model would hide",
        "of the modelled share",
        (0.3, 1.1),
        0.10,
        ("a2a_overlap",),
    ),
    "host": FactorSpec(
        "the framework's time on the host per operation: Python, dispatch, launch",
        COST,
        (0.1, 5.0),
        0.5,
        ("host_launch_us",),
    ),
    "host_sync_us": FactorSpec(
        "what the GPU loses each time the host waits for it, beside a bare round trip: the host"
        " launches into a drained queue",
        "us",
        (0.0, 3000.0),
        400.0,
        ("host_sync_us",),
        0.0,
    ),
    "iteration_overhead_ms": FactorSpec(
        "work of an iteration that no kernel accounts for: data, logging, loss reduction,"
        " the optimizer's host side",
        "ms",
        (0.0, 200.0),
        10.0,
        ("iteration_overhead_ms",),
        0.0,
    ),
}
"""The factors, by name. Fewer than the kinds of kernel a step has: measured runs are few, and what
they cannot tell apart shares a factor."""

FAMILIES: Final[Mapping[str, str]] = {
    "gfx942": "CDNA 3",
    "gfx950": "CDNA 4",
    "sm_80": "Ampere",
    "sm_90": "Hopper",
    "sm_100": "Blackwell",
}
"""Architecture families by compiler target, as the kernel models tell them apart."""

PRECISIONS: Final[tuple[CalibratedPrecision, ...]] = ("bf16", "fp8")

_KINDS: Final[tuple[tuple[str, Literal["linear", "grouped"], int], ...]] = (
    ("gemm", "linear", 1),
    ("one_expert", "grouped", 1),
    ("grouped", "grouped", 2),
)
"""Kinds of GEMM rate in `Achievable`, with a call that has it and its number of experts."""

NO_EVIDENCE: Final = ExpectedError(nearest="none")


def family_of(gpu: GpuProfile) -> str:
    """The architecture family of `gpu`; its compiler target where it is of none that is known."""
    return FAMILIES.get(gpu.arch.removesuffix("a"), gpu.arch)


def nearest_published(gpu: GpuProfile) -> str:
    """Name of the shipped GPU whose published rates stand for `gpu`'s: itself, or of its family
    the one with the nearest BF16 peak.

    Raises:
        ClusterError: no GPU of its family ships.
    """
    names = gpu_names()
    if gpu.name in names:
        return gpu.name
    kin = [gpu_profile(n) for n in names if family_of(gpu_profile(n)) == family_of(gpu)]
    if not kin:
        raise ClusterError(
            f"no GPU of the family of {gpu.name!r} (arch {gpu.arch!r}) ships with Refold",
            hint="known: " + ", ".join(FAMILIES),
        )
    return min(kin, key=lambda k: abs(k.bf16_tflops - gpu.bf16_tflops)).name


def with_factors(published: Achievable, factors: Mapping[str, float]) -> Achievable:
    """`published` under `factors` (name → value; a missing one changes nothing).

    Shares of a peak are cut off at 1, and the efficiencies of kernels at their models' bound.
    """
    rates: dict[str, Any] = published.model_dump() | _resolved(published)
    for name, spec in FACTORS.items():
        value = factors.get(name, spec.prior)
        for field in spec.fields:
            before = rates[field]
            if before is None:
                continue
            if spec.added:
                rates[field] = before + value
            elif isinstance(before, tuple):
                rates[field] = tuple(min(1.0, each * value) for each in before)
            else:
                rates[field] = before * value
    for field, most in _upper_bounds().items():
        if rates[field] is not None:
            rates[field] = min(rates[field], most)
    return published.model_copy(update={**rates, "calibrated": True})


def _resolved(published: Achievable) -> dict[str, float]:
    """Every GEMM rate by name, those that fall back to another one too."""
    dtypes: tuple[Dtype, ...] = ("bf16", "fp8")
    layouts: tuple[tuple[str, Literal["TN", "NN"]], ...] = (("", "TN"), ("_backward", "NN"))
    found = {}
    for dtype, (way, layout) in itertools.product(dtypes, layouts):
        for name, call, experts in _KINDS:
            op = Gemm("any", 1, 1, 1, experts, dtype, layout, call)
            found[f"{name}_{dtype}{way}"] = gemm_factor(op, published)
    return found


@cache
def _upper_bounds() -> dict[str, float]:
    """The largest value `Achievable` takes, per field that has one."""
    bounds = {}
    for name, field in Achievable.model_fields.items():
        for item in field.metadata:
            if getattr(item, "le", None) is not None:
                bounds[name] = float(item.le)
    return bounds


def with_flash_attention(achieved: Achievable, share: tuple[float, float]) -> Achievable:
    """`achieved` with attention at `share` of its rate, forward and backward."""
    if share == (1.0, 1.0):
        return achieved
    forward, backward = share
    known = achieved.attention_backward or achieved.attention
    return achieved.model_copy(
        update={
            "attention": achieved.attention * forward,
            "attention_backward": known * backward,
        }
    )


def shipped_calibration(gpu: GpuProfile, gemm: str) -> Calibration | None:
    """The calibration that ships for `gpu` over GEMM model `gemm`; None where there is none.

    One fitted over another GEMM model is not used: its GEMM factors would be of that model.
    """
    for name in (f"{gpu.name}.{gemm}.yaml", f"{gpu.name}.yaml"):
        path = _FITTED / name
        if path.is_file():
            found = _read(path)
            if found.gemm == gemm:
                return found
    return None


def calibration_of(cluster: Cluster, gemm: str) -> Calibration | None:
    """The calibration in force: the cluster's own, else the shipped one; None: uncalibrated."""
    if cluster.calibration == "none":
        return None
    return cluster.calibration or shipped_calibration(cluster.gpu, gemm)


def calibration_from(text: str, label: str) -> Calibration:
    """The calibration in YAML `text`.

    Raises:
        ClusterError: it is none; says what is wrong, in `label`.
    """
    try:
        loaded = yaml.load(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise ClusterError(f"{label} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(loaded, dict):
        raise ClusterError(f"{label}: a calibration is a mapping of keys to values")
    try:
        found = Calibration.model_validate(loaded)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ClusterError(f"{label}: {f'{key}: ' if key else ''}{problem(first)}") from error
    _check_factors(found, label)
    if found.over not in gpu_names() or family_of(gpu_profile(found.over)) != found.family:
        raise ClusterError(
            f"{label}: over: no GPU of {found.family} that ships is called {found.over!r:.80}"
        )
    return found


def _check_factors(found: Calibration, label: str) -> None:
    """Raises ClusterError unless every factor is there, in its range."""
    if unknown := sorted(found.factors.keys() - FACTORS.keys()):
        known = ", ".join(FACTORS)
        raise ClusterError(f"{label}: unknown factor {unknown[0]!r:.80}", hint=f"known: {known}")
    for name, spec in FACTORS.items():
        if name not in found.factors:
            raise ClusterError(
                f"{label}: factors.{name}: must be set; {spec.prior:g} is as published"
            )
        factor, (least, most) = found.factors[name], spec.range
        if not least <= factor.value <= most:
            raise ClusterError(
                f"{label}: factors.{name}.value: {factor.value:g} is not in {least:g} … {most:g}"
            )
        if not factor.low <= factor.value <= factor.high:
            raise ClusterError(f"{label}: factors.{name}: low … high does not hold its value")


def rates(gpu: GpuProfile, gemm: str, calibration: Calibration | None) -> Achievable:
    """What kernels of `gpu` achieve over GEMM model `gemm`: published, under the calibration.

    Raises:
        ClusterError: the calibration is another GPU's or over another GEMM model, or no rates of
            this GPU or its family ship.
    """
    if calibration is None:
        return achievable(gpu, gemm)
    if calibration.gpu != gpu.name:
        raise ClusterError(
            f"the calibration is of {calibration.gpu}, the cluster's GPU is {gpu.name}",
            hint="fit one for this GPU with `refold calibrate`",
        )
    if calibration.gemm != gemm:
        raise ClusterError(
            f"the calibration was fitted over the GEMM model {calibration.gemm!r}, and"
            f" {gemm!r} is in use",
            hint=f"say --gemm-backend {calibration.gemm}, or fit one over {gemm}",
        )
    published = achievable(gpu_profile(calibration.over), gemm)
    values = {name: factor.value for name, factor in calibration.factors.items()}
    return with_factors(published, values).model_copy(update={"gpu": gpu.name})


def expected_error(
    calibration: Calibration | None, precision: CalibratedPrecision
) -> ExpectedError:
    """How far off a time in `precision` may be: the nearest evidence there is, and which."""
    if calibration is None:
        return NO_EVIDENCE
    for level in ("gpu", "family"):
        here = [e for e in calibration.evidence if e.level == level]
        same = [e for e in here if e.precision == precision]
        if same:
            return _expected(same[0], f"{level} and precision")
        if here:
            return _expected(max(here, key=lambda e: e.band), level)
    return NO_EVIDENCE


def _expected(evidence: Evidence, nearest: str) -> ExpectedError:
    return ExpectedError.model_validate(
        {
            "error": evidence.expected_error,
            "band": evidence.band,
            "nearest": nearest,
            "rows": evidence.rows,
            "groups": evidence.groups,
        }
    )


@cache
def _read(path: Path) -> Calibration:
    """A shipped calibration, read and parsed once."""
    return calibration_from(path.read_text(encoding="utf-8"), path.name)
