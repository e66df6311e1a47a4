"""What no order of a pipeline's passes can beat."""

from projection.schedules.order import Costs
from projection.schedules.schedule import PipelineSchedule


def lower_bound_ms(schedule: PipelineSchedule, costs: Costs) -> float:
    """The larger of one microbatch's critical path and every rank's work between its ends.

    A rank can't start before a microbatch has come up to its lowest stage, then has all its work to
    do, and after its last backward pass a gradient still has to come down to stage 0. A rank of a
    split schedule may end with weight gradients instead: then either all its work follows the
    start, or all but the weight gradients stand between the start and the way down. Memory is not
    part of the bound: a schedule that holds fewer microbatches may be unable to reach it.
    """
    vpp, homes = schedule.vpp, schedule.homes
    slot_of = [rank * vpp + chunk for rank, chunk in homes]
    forward = [costs.forward[slot] for slot in slot_of]
    weight = [costs.weight_grad[slot] for slot in slot_of]
    backward = [costs.input_grad[slot] for slot in slot_of]
    split = schedule.splits_backward
    if not split:
        backward = [b + w for b, w in zip(backward, weight, strict=True)]
    arrive, leave = [0.0], [0.0]
    for stage in range(len(homes) - 1):
        arrive.append(arrive[-1] + forward[stage] + costs.up[stage])
        leave.append(leave[-1] + backward[stage] + costs.down[stage])
    path = arrive[-1] + forward[-1] + leave[-1] + backward[-1]
    bound = path + (weight[0] if split else 0.0)
    for rank, row in enumerate(schedule.stages):
        lowest = min(row)
        slots = slice(rank * vpp, (rank + 1) * vpp)
        waiting = sum(costs.forward[slots]) + sum(costs.input_grad[slots])
        grads = sum(costs.weight_grad[slots])
        m = schedule.num_microbatches
        way_down = leave[lowest]
        if split:
            through = arrive[lowest] + m * waiting + way_down + weight[0]
            bound = max(bound, through, arrive[lowest] + m * (waiting + grads))
        else:
            bound = max(bound, arrive[lowest] + m * (waiting + grads) + way_down)
    return bound
