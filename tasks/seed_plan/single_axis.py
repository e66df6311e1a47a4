"""Seed rules that move one lever of the workload: recompute, MoE communication, FP8, sharding."""

from collections.abc import Iterator
from typing import Any

from projection.legality import normalise
from projection.legality.normal_form import stage_capacity
from projection.legality.schedule_names import plain_schedule
from schemas.trial import Candidate
from tasks.seed_plan.anchor import ZERO1, Anchor
from tasks.seed_plan.pins import with_pins


def baseline(anchor: Anchor) -> Iterator[Candidate]:
    """Rule 1: the workload exactly as its file says; and the anchor, where that is another.

    A pinned knob is never left at another value: the workload's own configuration then has it too.
    """
    config = with_pins(anchor.space)
    said = ", ".join(
        f"{knob} {value}" for knob, value in config.model_dump(exclude_none=True).items()
    )
    pinned = f"with the pinned {said}" if said else "unchanged"
    yield Candidate(
        config=config,
        rule="baseline",
        why=f"the workload's own configuration, {pinned}",
        tag="baseline",
    )
    if anchor.trial != normalise(config, anchor.workload):
        yield anchor.seed(
            "baseline", "anchor", "the proposable configuration nearest to the workload's own"
        )


def recompute(anchor: Anchor) -> Iterator[Candidate]:
    """Rule 2: the memory levers none, selective and full (every layer) at the same parallelism."""
    why = {
        "none": "recompute nothing: no forward pass is run twice, where memory allows it",
        "selective": "recompute the attention core only: little time, its saved tensors gone",
        "full": "recompute every layer: the least memory",
    }
    for granularity, reason in why.items():
        changes = recompute_changes(granularity, anchor)
        if granularity != "none" and anchor.trial.splits_backward:
            changes["pp_schedule"] = plain_schedule(anchor.trial.vpp)
            reason += f", on {changes['pp_schedule']} since a split backward excludes it"
        yield anchor.seed("recompute", f"recompute-{granularity}", reason, **changes)


def recompute_changes(granularity: str, anchor: Anchor, vpp: int | None = None) -> dict[str, Any]:
    """The knobs of a kind of recomputation; full means every layer of a stage, by block."""
    if granularity != "full":
        return {
            "recompute_granularity": granularity,
            "recompute_method": None,
            "recompute_num_layers": None,
        }
    most = stage_capacity(anchor.trial.pp, vpp or anchor.trial.vpp, anchor.workload)
    return {
        "recompute_granularity": "full",
        "recompute_method": "block",
        "recompute_num_layers": most,
    }


def moe_communication(anchor: Anchor) -> Iterator[Candidate]:
    """Rule 3: DeepEP and the sync-free stages, for MoE models; the plain all-to-all last."""
    if not anchor.workload.architecture.is_moe:
        return
    rule, plain = "moe-communication", {"use_turbo_deepep": False, "sync_free_stage": 0}
    yield anchor.seed(
        rule, "deepep", "DeepEP's dispatch and combine overlap with compute", use_turbo_deepep=True
    )
    for stage in (2, 3):
        yield anchor.seed(
            rule,
            f"sync-free-{stage}",
            f"sync-free stage {stage} on DeepEP: no host waits in the token dispatch",
            use_turbo_deepep=True,
            sync_free_stage=stage,
        )
    yield anchor.seed(rule, "plain-all-to-all", "the all-to-all without DeepEP", **plain)


def fp8(anchor: Anchor) -> Iterator[Candidate]:
    """Rule 4: FP8 hybrid."""
    yield anchor.seed(
        "fp8", "fp8-hybrid", "FP8 linear layers, up to twice the GEMM rate", fp8="hybrid"
    )


FSDP2 = {"use_torch_fsdp2": True, "use_distributed_optimizer": False}


def dp_sharding(anchor: Anchor) -> Iterator[Candidate]:
    """Rule 8: the distributed optimizer and FSDP2; neither, last.

    FSDP2 needs pp 1 and ep 1: elsewhere it is tried on the nearest configuration of that shape.
    """
    rule, trial = "dp-sharding", anchor.trial
    yield anchor.seed(
        rule, "distributed-optimizer", "optimizer state sharded over data parallelism", **ZERO1
    )
    host = anchor
    if (trial.pp, trial.ep) != (1, 1):
        flat = anchor.at_shape(trial.tp, 1, trial.cp, 1)
        host = anchor if flat is None else Anchor.at(flat, anchor.space)
    why = "FSDP2: weights, gradients and optimizer state sharded"
    yield host.seed(rule, "fsdp2", why, **FSDP2)
    yield host.seed(
        rule,
        "fsdp2-none",
        f"{why}, the memory spent on recomputing nothing",
        **FSDP2,
        **recompute_changes("none", host),
    )
    yield anchor.seed(
        rule,
        "unsharded",
        "no sharding: no parameter all-gather",
        use_torch_fsdp2=False,
        use_distributed_optimizer=False,
    )
