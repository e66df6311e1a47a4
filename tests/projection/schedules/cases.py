"""Hypothesis strategies and glue between schedules and the verifier."""

from hypothesis import strategies as st

from projection.schedules import P2P, V_SCHEDULES, Durations, PipelineSchedule, Timeline, build
from tests.projection.schedules.verifier import check_orders, check_timeline

FIXED = ("1f1b", "interleaved", "zero-bubble", "zbv-formatted", "zbv-greedy-half", "zbv-greedy-min")
ms = st.one_of(st.just(0.0), st.just(1.0), st.floats(1e-3, 1e3))


def chunks_of(name: str) -> tuple[int, ...]:
    """The VPP a schedule exists for, up to 4."""
    if name == "interleaved":
        return (2, 3, 4)
    return (2,) if name in V_SCHEDULES else (1,)


@st.composite
def schedules(draw, names=(*FIXED, "zb-heuristic"), max_pp=8, max_m=40) -> PipelineSchedule:
    name = draw(st.sampled_from(names))
    vpp = draw(st.sampled_from(chunks_of(name)))
    return build(name, draw(st.integers(1, max_pp)), vpp, draw(st.integers(1, max_m)))


@st.composite
def tables(draw, pp: int, vpp: int, number=ms):
    row = st.tuples(*[number] * vpp)
    if draw(st.booleans()):
        return (draw(row),) * pp
    return draw(st.tuples(*[row] * pp))


@st.composite
def durations(draw, schedule: PipelineSchedule, number=ms) -> Durations:
    table = tables(schedule.pp, schedule.vpp, number)
    return Durations(draw(table), draw(table), draw(table))


@st.composite
def delays(draw, schedule: PipelineSchedule, number=ms) -> P2P:
    edges = st.tuples(*[number] * (schedule.pp * schedule.vpp - 1))
    return P2P(draw(edges), draw(edges))


def order_problems(schedule: PipelineSchedule) -> list[str]:
    folded = schedule.name in V_SCHEDULES
    return check_orders(schedule.orders, schedule.vpp, schedule.num_microbatches, folded)


def plain(timeline: Timeline) -> list[list[tuple[str, int, int, float, float]]]:
    """The timeline as the verifier takes it."""
    return [
        [(t.op.kind, t.op.microbatch, t.op.chunk, t.start_ms, t.end_ms) for t in row]
        for row in timeline.operations()
    ]


def time_problems(rows, schedule: PipelineSchedule, durations: Durations, p2p: P2P) -> list[str]:
    def duration(kind: str, rank: int, chunk: int) -> float:
        f, b, w = (
            table[rank][chunk]
            for table in (durations.forward, durations.input_grad, durations.weight_grad)
        )
        return {"F": f, "B": b, "W": w, "BW": b + w}[kind]

    def delay(source: int, stage: int) -> float:
        return p2p.forward[source] if source < stage else p2p.backward[stage]

    folded = schedule.name in V_SCHEDULES
    return check_timeline(rows, schedule.vpp, schedule.num_microbatches, folded, duration, delay)
