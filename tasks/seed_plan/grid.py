"""Seed rule 9: a coarse, sparse grid over parallel shapes, the workload's own values kept."""

from collections.abc import Iterator, Sequence
from itertools import product

from projection.legality import short_request
from projection.legality.axes import occurring_values
from schemas.trial import Candidate
from tasks.seed_plan.anchor import Anchor

SHAPE = ("tp", "pp", "cp", "ep")


def reduced(values: Sequence[int], own: int) -> tuple[int, ...]:
    """A sparse set of an axis: its own value, the first, the middle and the last legal one."""
    ascending = sorted(values)
    few = {ascending[0], ascending[len(ascending) // 2], ascending[-1]} if ascending else set()
    return tuple(sorted(few | {own}))


def grid(anchor: Anchor) -> Iterator[Candidate]:
    """Every shape of the reduced axes, each as the legal trial most like the workload.

    Shapes that move fewer axes come first, and among them those that leave CP alone (it pays at
    long sequences), then TP, then EP. A shape with no legal trial is proposed as it is, so that the
    plan has its reason.
    """
    legal = occurring_values(anchor.space.root())
    own = tuple(getattr(anchor.trial, axis) for axis in SHAPE)
    axes = (
        reduced(sorted(legal.get(axis, ())), value) for axis, value in zip(SHAPE, own, strict=True)
    )
    for tp, pp, cp, ep in sorted(product(*axes), key=lambda shape: _surprise(shape, own)):
        if (tp, pp, cp, ep) == own:
            continue
        found = anchor.at_shape(tp, pp, cp, ep)
        if found is None:
            config = anchor.changed(tp=tp, pp=pp, cp=cp, ep=ep)
        else:
            config = short_request(found, anchor.workload)
        name = f"tp{tp}-pp{pp}-ep{ep}-cp{cp}"
        why = f"another parallel shape: tp {tp}, pp {pp}, ep {ep}, cp {cp}"
        yield Candidate(config=config, rule="grid", why=why, tag=name)


def _surprise(shape: tuple[int, ...], own: tuple[int, ...]) -> tuple[float, ...]:
    """What orders shapes: axes moved, whether CP, TP, EP moved, how far in all."""
    tp, _, cp, ep = (a != b for a, b in zip(shape, own, strict=True))
    moved = sum(a != b for a, b in zip(shape, own, strict=True))
    ratios = (max(a, b) / min(a, b) for a, b in zip(shape, own, strict=True))
    far = 1.0
    for ratio in ratios:
        far *= ratio
    return (moved, cp, tp, ep, far, *shape)
