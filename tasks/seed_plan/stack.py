"""Seed rule 5: the high-impact levers stacked together."""

from collections.abc import Iterator
from typing import Any

from schemas.trial import Candidate
from tasks.seed_plan.anchor import Anchor
from tasks.seed_plan.single_axis import recompute_changes

_LEVERS: dict[str, dict[str, Any]] = {
    "DeepEP and sync-free 3": {"use_turbo_deepep": True, "sync_free_stage": 3},
    "FP8": {"fp8": "hybrid"},
    "fused loss": {"cross_entropy_loss_fusion": True},
}


def stack(anchor: Anchor) -> Iterator[Candidate]:
    """Every lever that is legal by itself, without recompute; then the same for less memory.

    A lever that this model, GPU or search excludes is left out of the stack rather than excluding
    it. Leaner stacks follow at once, since the first needs the most memory of all: a micro batch of
    one with sync-free 2 (stage 3 buys its freedom with buffers), and full recompute.
    """
    usable = {name: knobs for name, knobs in _LEVERS.items() if anchor.allows(**knobs)}
    without_fp8 = {name: knobs for name, knobs in usable.items() if name != "FP8"}
    lean = {"mbs": 1, **({"sync_free_stage": 2} if "DeepEP and sync-free 3" in usable else {})}
    yield from _stacked(anchor, "stack", usable, "none")
    yield from _stacked(anchor, "stack-lean", usable, "none", **lean)
    yield from _stacked(anchor, "stack-full", usable, "full")
    yield from _stacked(anchor, "stack-bf16", without_fp8, "none")
    yield from _stacked(anchor, "stack-selective", usable, "selective")


def _stacked(
    anchor: Anchor, tag: str, levers: dict[str, dict[str, Any]], granularity: str, **more: Any
) -> Iterator[Candidate]:
    moved = [name for name, knobs in levers.items() if _moves(anchor, knobs)]
    if not moved:
        return
    changes: dict[str, Any] = {}
    for knobs in levers.values():
        changes |= knobs
    changes |= recompute_changes(granularity, anchor) | more
    instead = "".join(f", {knob} {value}" for knob, value in more.items())
    why = f"{', '.join(moved)} and recompute {granularity} together{instead}"
    yield anchor.seed("tier-a-stack", tag, why, **changes)


def _moves(anchor: Anchor, knobs: dict[str, Any]) -> bool:
    return any(getattr(anchor.trial, knob) != value for knob, value in knobs.items())
