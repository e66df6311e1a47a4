"""Measured rows whose truth is known: times that are sums of parts, under planted factors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from projection.calibration import COST, FACTORS
from tasks.calibrate.fit import Descent, Problem, neutral
from tasks.calibrate.observation import Factors, Observation

DESCENTS: dict[str, Descent] = {
    "one": (("vendor", "v"), ("family", "f"), ("gpu", "one")),
    "two": (("vendor", "v"), ("family", "f"), ("gpu", "two")),
}


@dataclass(frozen=True)
class Row:
    """One run: milliseconds of each factor's kind of work at the neutral value."""

    seen: Observation
    parts: Mapping[str, float]


def time_ms(parts: Mapping[str, float], factors: Factors) -> float:
    """The parts under `factors`, and the overhead."""
    total = factors.get("iteration_overhead_ms", 0.0)
    for name, part in parts.items():
        value = factors.get(name, 1.0)
        total += part * value if FACTORS[name].unit == COST else part / value
    return total


def row(
    name: str, truth: Factors, gpu: str = "one", group: str | None = None, **parts: float
) -> Row:
    """A run of `parts`, measured where `truth` holds."""
    seen = Observation(
        name,
        gpu,
        group or f"{gpu} {name}",
        f"table of {group or name}",
        "bf16",
        time_ms(parts, truth),
    )
    return Row(seen, parts)


def off_by(one: Row, error: float) -> Row:
    """`one` measured `error` (a fraction) too long."""
    seen = replace(one.seen, measured_ms=one.seen.measured_ms * (1 + error))
    return Row(seen, one.parts)


def problem(rows: Sequence[Row], gpus: Sequence[str] = ("one",)) -> Problem:
    """The fit of `rows` from the neutral factors."""
    parts = {each.seen.row: each.parts for each in rows}

    def project(seen: Sequence[Observation], factors: Mapping[str, Factors]) -> list[float]:
        return [time_ms(parts[o.row], factors[o.gpu]) for o in seen]

    return Problem(
        tuple(each.seen for each in rows),
        {gpu: DESCENTS[gpu] for gpu in gpus},
        {gpu: neutral() for gpu in gpus},
        project,
    )
