"""The fit: robust, regularised least squares on the logarithm of projected over measured time.

A GPU's factor is a sum, in log, along its line of descent: what its vendor's GPUs share, what its
family adds, what it adds itself. Every term has a prior around nothing, so a GPU without rows has
its family's factors, and few rows move them little. Gauss-Newton: projections are linearised in the
factors by finite differences, the linear problem is solved within the factors' ranges
(`scipy.optimize.lsq_linear`), and again from there. The loop is ours because a derivative costs as
much as projecting every row, and `scipy.optimize.least_squares` takes all of them at each step,
where two sets serve the whole fit.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.optimize import lsq_linear

from projection.calibration import FACTORS
from schemas.calibration import Level
from tasks.calibrate.observation import Observation, Project

Array = npt.NDArray[np.float64]

NAMES: Final = tuple(FACTORS)
NOISE: Final = 0.06
"""Standard deviation, in log, of what no factor explains: software releases alone move one and the
same configuration by a median of 3.7 %, and projections err by shape."""
ROBUST: Final = 2.0
"""Residuals beyond this many NOISE count linearly (pseudo-Huber)."""
FELT: Final = 0.01
"""A row constrains a factor that moves it by this (log) over one spread of the factor's prior."""
SHARES: Final = {"vendor": 1.0, "family": 0.7, "gpu": 0.5}
"""Spread of each level's term, of the factor's own: kin differ less than strangers."""
SOURCE_SPREADS: Final = {"cluster_link": 0.5}
"""Spread, in log, of what is a source's own and no GPU's: the fabric between its nodes. Each
source has such a term, which soaks up a slow network before it is blamed on the GPU; projections
do without."""
ROUNDS: Final = 6
SLOPES: Final = 2
"""How often derivatives are taken: near the end they no longer change, and are what costs."""
SETTLED: Final = 0.02
"""Largest move, in spreads, at which the fit is done."""
STEP: Final = 0.05
"""Of a spread: the finite difference."""

Descent = tuple[tuple[Level, str], ...]
"""(level, name) from the widest to the GPU."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is fitted: rows, each GPU's descent, and the factors everything starts from."""

    observations: Sequence[Observation]
    descents: Mapping[str, Descent]
    prior: Mapping[str, Mapping[str, float]]
    """Per GPU, its factors before any row was seen."""
    project: Project
    kin: tuple[tuple[Level, str], ...] = field(init=False)
    """What the GPUs descend from: vendors and families."""
    sources: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        above = dict.fromkeys(node for descent in self.descents.values() for node in descent[:-1])
        object.__setattr__(self, "kin", tuple(above))
        object.__setattr__(self, "sources", tuple(sorted({o.source for o in self.observations})))

    def start(self, gpu: str) -> Array:
        """The prior of `gpu` on the line."""
        return np.array([to_line(name, self.prior[gpu][name]) for name in NAMES])


@dataclass(frozen=True, slots=True)
class Unknowns:
    """What is solved for, in spreads: what each vendor and family adds to every factor, how far
    each GPU's factors are from where they start, and the sources' own terms, in this order.
    """

    problem: Problem

    def __len__(self) -> int:
        p = self.problem
        return (len(p.kin) + len(p.descents)) * len(NAMES) + len(p.sources) * len(SOURCE_SPREADS)

    def gpu(self, name: str) -> slice:
        """Where the factors of a GPU are."""
        return self._block(len(self.problem.kin) + list(self.problem.descents).index(name))

    def _block(self, at: int) -> slice:
        return slice(at * len(NAMES), (at + 1) * len(NAMES))

    def rows(self, jacobian: Array) -> Array:
        """(rows, unknowns): how each unknown moves the log time of each row."""
        sources = self.problem.sources
        found = np.zeros((len(self.problem.observations), len(self)))
        own = len(self) - len(sources) * len(SOURCE_SPREADS)
        for i, seen in enumerate(self.problem.observations):
            found[i, self.gpu(seen.gpu)] = jacobian[i] * spreads()
            at = own + sources.index(seen.source) * len(SOURCE_SPREADS)
            for j, (name, spread) in enumerate(SOURCE_SPREADS.items()):
                found[i, at + j] = jacobian[i, NAMES.index(name)] * spread
        return found

    def priors(self) -> Array:
        """(unknowns, unknowns): what pulls every term towards nothing. A GPU's own term is what its
        factors have beside its vendor's and its family's."""
        found = np.eye(len(self))
        for at, (level, _) in enumerate(self.problem.kin):
            found[self._block(at), self._block(at)] /= SHARES[level]
        for name, descent in self.problem.descents.items():
            own = self.gpu(name)
            for node in descent[:-1]:
                found[own, self._block(self.problem.kin.index(node))] = -np.eye(len(NAMES))
            found[own] /= SHARES["gpu"]
        return found

    def bounds(self) -> tuple[Array, Array]:
        """Least and most of every unknown: a GPU's factors keep their ranges."""
        low, high = np.full(len(self), -np.inf), np.full(len(self), np.inf)
        for name in self.problem.descents:
            start = self.problem.start(name)
            for ends, factors in zip((low, high), bounds(), strict=True):
                ends[self.gpu(name)] = (factors - start) / spreads()
        return low, high


@dataclass(frozen=True, slots=True)
class Linear:
    """Projections around one point: log errors and their derivatives, per row."""

    at: Mapping[str, Array]
    residuals: Array
    jacobian: Array
    """(rows, factors), in log per unit of the factor on the line."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Factors per GPU after a fit, on the line, and the point they were linearised at."""

    problem: Problem
    linear: Linear
    at: Mapping[str, Array]

    def values(self, gpu: str) -> dict[str, float]:
        """Factors of `gpu` by name."""
        return by_name(self.at[gpu])


def to_line(name: str, value: float) -> float:
    """Where a factor's value lies on the line the fit works on: its log, or itself when added."""
    return value if FACTORS[name].added else math.log(value)


def from_line(name: str, at: float) -> float:
    """The value at a place on that line."""
    return at if FACTORS[name].added else math.exp(at)


def spreads() -> Array:
    """Spread of every factor's prior."""
    return np.array([FACTORS[name].spread for name in NAMES])


def neutral() -> dict[str, float]:
    """Every factor at its neutral value: the published rates."""
    return {name: spec.prior for name, spec in FACTORS.items()}


def fit(problem: Problem) -> Fit:
    """Fit all GPUs of `problem` together."""
    at: dict[str, Array] = {gpu: problem.start(gpu) for gpu in problem.descents}
    linear = linearise(problem, at, None)
    for done in range(1, ROUNDS + 1):
        new = solve(problem, linear)
        moved = max(float(np.max(np.abs(new[g] - at[g]) / spreads())) for g in at)
        at = new
        if moved < SETTLED:
            break
        if done < SLOPES:
            linear = linearise(problem, at, linear)
        else:
            linear = Linear(
                dict(at), log_errors(problem, problem.observations, at), linear.jacobian
            )
    return Fit(problem, linear, at)


def solve(
    problem: Problem, linear: Linear, left_out: Callable[[Observation], bool] | None = None
) -> dict[str, Array]:
    """Factors per GPU that fit best around `linear`, without the rows that are `left_out`."""
    observations = problem.observations
    used = np.array([left_out is None or not left_out(o) for o in observations], dtype=bool)
    weights = _weights(observations) * _robust(linear.residuals) * used / NOISE
    unknowns = Unknowns(problem)
    away = [
        linear.residuals[i] - linear.jacobian[i] @ (linear.at[o.gpu] - problem.start(o.gpu))
        for i, o in enumerate(observations)
    ]
    priors = unknowns.priors()
    found = lsq_linear(
        np.vstack([weights[:, None] * unknowns.rows(linear.jacobian), priors]),
        np.concatenate([-weights * np.array(away), np.zeros(len(priors))]),
        unknowns.bounds(),
        method="bvls",
    )
    low, high = bounds()
    moved = {gpu: found.x[unknowns.gpu(gpu)] * spreads() for gpu in problem.descents}
    return {gpu: np.clip(problem.start(gpu) + by, low, high) for gpu, by in moved.items()}


def deviations(result: Fit, gpu: str) -> Array:
    """Posterior standard deviation of each of `gpu`'s factors, on the line."""
    problem, linear = result.problem, result.linear
    weights = _weights(problem.observations) * _robust(linear.residuals) / NOISE
    unknowns = Unknowns(problem)
    system = np.vstack([weights[:, None] * unknowns.rows(linear.jacobian), unknowns.priors()])
    covariance = np.linalg.inv(system.T @ system)
    return np.sqrt(np.diag(covariance)[unknowns.gpu(gpu)]) * spreads()


def constrained(result: Fit, gpu: str) -> dict[str, str]:
    """Per factor, the narrowest level of `gpu`'s descent with a row that feels it, or "prior"."""
    problem = result.problem
    felt = np.abs(result.linear.jacobian) * spreads() > FELT
    found = dict.fromkeys(NAMES, "prior")
    for node in problem.descents[gpu]:
        kin = np.array([node in problem.descents[o.gpu] for o in problem.observations], dtype=bool)
        for i, name in enumerate(NAMES):
            if bool(np.any(felt[kin, i])):
                found[name] = node[0]
    return found


def bounds() -> tuple[Array, Array]:
    """Ends of every factor's range, on the line."""
    low = [to_line(n, FACTORS[n].range[0]) for n in NAMES]
    high = [to_line(n, FACTORS[n].range[1]) for n in NAMES]
    return np.array(low), np.array(high)


def _weights(observations: Sequence[Observation]) -> Array:
    """What each row weighs: n rows of a group count as √n, n groups of a source as √n.

    Rows of a group err together, and so do groups that one team measured with one framework.
    """
    rows = Counter(o.group for o in observations)
    groups = Counter(source for source, _ in {(o.source, o.group) for o in observations})
    return np.array([o.trust * (rows[o.group] * groups[o.source]) ** -0.25 for o in observations])


def _robust(residuals: Array) -> Array:
    """Weights that make least squares pseudo-Huber."""
    scaled = residuals / (ROBUST * NOISE)
    return np.asarray((1 + scaled**2) ** -0.25)


def linearise(problem: Problem, at: Mapping[str, Array], before: Linear | None) -> Linear:
    """Projections and derivatives at `at`; a factor that a row did not feel `before` is skipped."""
    rows = problem.observations
    here = log_errors(problem, rows, at)
    slopes = np.zeros((len(rows), len(NAMES)))
    _, high = bounds()
    for column, size in enumerate(STEP * spreads()):
        felt = [i for i in range(len(rows)) if before is None or before.jacobian[i, column] != 0]
        moved, steps = {}, {}
        for gpu, place in at.items():
            steps[gpu] = size if place[column] + size <= high[column] else -size
            moved[gpu] = place.copy()
            moved[gpu][column] += steps[gpu]
        there = log_errors(problem, [rows[i] for i in felt], moved)
        for i, value in zip(felt, there, strict=True):
            slopes[i, column] = (value - here[i]) / steps[rows[i].gpu]
    return Linear(dict(at), here, slopes)


def log_errors(problem: Problem, rows: Sequence[Observation], at: Mapping[str, Array]) -> Array:
    """Log of projected over measured time of `rows`, with each GPU's factors at `at`."""
    factors = {gpu: by_name(place) for gpu, place in at.items()}
    measured = np.array([row.measured_ms for row in rows])
    return np.asarray(np.log(np.array(problem.project(rows, factors)) / measured))


def by_name(place: Array) -> dict[str, float]:
    """Values of the factors at a place on the line."""
    return {name: from_line(name, float(x)) for name, x in zip(NAMES, place, strict=True)}
