"""When one configuration's lack of memory settles another's, without asking the oracle."""

from schemas.trial import NormalTrial

RAISES_MEMORY_WHEN_TURNED_OFF = ("use_distributed_optimizer", "cross_entropy_loss_fusion")
"""Sharding the optimizer and fusing the loss only ever save memory."""
FOLLOW_FROM_GRANULARITY = ("recompute_method", "recompute_modules")


def at_least_as_much_memory(candidate: NormalTrial, known: NormalTrial) -> tuple[str, ...] | None:
    """Knobs in which `candidate` differs from `known`, if each can only raise memory; else None.

    They are: a larger micro batch (in-flight activations are mbs · min(depth, microbatches), and
    doubling mbs at most halves the microbatches), a larger global batch (more microbatches in
    flight), fewer recomputed layers, an optimizer that is not sharded, a loss that is not fused.
    """
    raised: list[str] = []
    for knob in NormalTrial.model_fields:
        ours, theirs = getattr(candidate, knob), getattr(known, knob)
        if ours == theirs:
            continue
        if knob in ("mbs", "gbs"):
            upward = ours > theirs
        elif knob in RAISES_MEMORY_WHEN_TURNED_OFF:
            upward = not ours
        elif knob.startswith("recompute_"):
            upward = _recomputes_less(candidate, known)
        else:
            return None
        if not upward:
            return None
        if knob not in FOLLOW_FROM_GRANULARITY:
            raised.append(knob)
    return tuple(raised)


def _recomputes_less(candidate: NormalTrial, known: NormalTrial) -> bool:
    """Fewer layers of the same full recomputation, or selective dropped altogether.

    None against full is left to the oracle: with one layer in a chunk they keep about the same.
    """
    if candidate.recompute_granularity == known.recompute_granularity == "full":
        same = (
            candidate.recompute_method == known.recompute_method == "block"
            and candidate.recompute_layer_ids == known.recompute_layer_ids
        )
        return same and candidate.recompute_num_layers < known.recompute_num_layers
    return candidate.recompute_granularity == "none" and known.recompute_granularity == "selective"
