"""1F1B: as many forward passes ahead as there are ranks behind, then one forward, one backward."""

from projection.schedules.order import Op, Orders


def one_f_one_b(pp: int, num_microbatches: int) -> Orders:
    """Non-interleaved 1F1B with the flush (Narayanan et al. 2021, section 2.2.1).

    Rank r runs min(pp - 1 - r, microbatches) warm-up forwards, so it never holds more than pp - r
    microbatches.
    """
    return tuple(
        _rank_order(min(pp - 1 - rank, num_microbatches), num_microbatches) for rank in range(pp)
    )


def _rank_order(warmup: int, num_microbatches: int) -> tuple[Op, ...]:
    order = [Op("F", microbatch, 0) for microbatch in range(warmup)]
    for microbatch in range(num_microbatches):
        if microbatch + warmup < num_microbatches:
            order.append(Op("F", microbatch + warmup, 0))
        order.append(Op("BW", microbatch, 0))
    return tuple(order)
