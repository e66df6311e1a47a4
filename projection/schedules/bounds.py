"""What no order of a pipeline's passes can beat."""

from collections.abc import Sequence

from projection.schedules.order import Costs
from projection.schedules.placement import homes


def lower_bound_ms(
    stages: Sequence[Sequence[int]], num_microbatches: int, splits_backward: bool, costs: Costs
) -> float:
    """The larger of one microbatch's critical path and every rank's work between its ends.

    A rank can't start before a microbatch has come up to its lowest stage, then has all its work to
    do, and after its last backward pass a gradient still has to come down to stage 0. A rank of a
    split schedule may end with weight gradients instead: then either all its work follows the
    start, or all but the weight gradients stand between the start and the way down. Memory is not
    part of the bound: a schedule that holds fewer microbatches may be unable to reach it.
    """
    vpp, m = len(stages[0]), num_microbatches
    slot_of = [rank * vpp + chunk for rank, chunk in homes(stages)]
    forward = [costs.forward[slot] for slot in slot_of]
    weight = [costs.weight_grad[slot] for slot in slot_of]
    backward = [costs.input_grad[slot] for slot in slot_of]
    if not splits_backward:
        backward = [b + w for b, w in zip(backward, weight, strict=True)]
    arrive, leave = [0.0], [0.0]
    for stage in range(len(slot_of) - 1):
        arrive.append(arrive[-1] + forward[stage] + costs.up[stage])
        leave.append(leave[-1] + backward[stage] + costs.down[stage])
    last_grad = weight[0] if splits_backward else 0.0
    bound = arrive[-1] + forward[-1] + backward[-1] + leave[-1] + last_grad
    for rank, row in enumerate(stages):
        lowest, slots = min(row), slice(rank * vpp, (rank + 1) * vpp)
        needed = m * (sum(costs.forward[slots]) + sum(costs.input_grad[slots]))
        grads = m * sum(costs.weight_grad[slots])
        if splits_backward:
            bound = max(bound, arrive[lowest] + needed + leave[lowest] + last_grad)
            bound = max(bound, arrive[lowest] + needed + grads)
        else:
            bound = max(bound, arrive[lowest] + needed + grads + leave[lowest])
    return bound
