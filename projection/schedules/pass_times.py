"""How long passes take relative to each other, coarsely: what duration-fitted orders depend on."""

from itertools import chain
from math import gcd, inf, isfinite
from typing import NamedTuple

from projection.schedules.order import P2P, Costs, Durations, Table

UNITS_PER_MICROBATCH = 24
"""Resolution of `coarse_pass_times`: F + B + W of a mean chunk."""


class PassTimes(NamedTuple):
    """Integer times of a chunk's passes and of a transfer between ranks, in one arbitrary unit."""

    forward: int = 1
    input_grad: int = 1
    weight_grad: int = 1
    p2p: int = 0


UNIT = PassTimes()


def equal_stages(stages: int, times: PassTimes) -> Costs:
    """Costs of a pipeline of so many chunks on all ranks together, all taking these times."""
    edges = [float(times.p2p)] * (stages - 1)
    forward, input_grad = [float(times.forward)] * stages, [float(times.input_grad)] * stages
    return Costs(forward, input_grad, [float(times.weight_grad)] * stages, edges, edges)


def coarse_pass_times(durations: Durations, p2p_ms: P2P | float = 0.0) -> PassTimes:
    """Mean durations and the mean delay, rounded to 1/24 of F + B + W and reduced.

    Coarse on purpose: candidates of a search that differ by a few percent share one order. Unit
    times where there are no numbers to compare; `simulate` is who refuses such durations.
    """
    forward = _mean(durations.forward)
    input_grad = _mean(durations.input_grad)
    weight_grad = _mean(durations.weight_grad)
    total = forward + input_grad + weight_grad
    edges = (*p2p_ms.forward, *p2p_ms.backward) if isinstance(p2p_ms, P2P) else (p2p_ms,)
    delay = sum(edges) / len(edges) if edges else 0.0
    in_transfer = delay / total * UNITS_PER_MICROBATCH if total > 0 else inf
    if not (isfinite(total) and isfinite(in_transfer)):
        return UNIT
    passes = [
        max(round(ms / total * UNITS_PER_MICROBATCH), 1)
        for ms in (forward, input_grad, weight_grad)
    ]
    transfer = round(in_transfer)
    unit = gcd(*passes, transfer)
    f, b, w = (time // unit for time in passes)
    return PassTimes(f, b, w, transfer // unit)


def _mean(table: Table) -> float:
    values = list(chain.from_iterable(table))
    return sum(values) / len(values)
