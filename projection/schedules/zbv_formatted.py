"""ZB-V in closed form: two chunks a rank in a V, no bubble but the way to the last rank."""

from projection.schedules.order import Op, Orders


def zbv_formatted(pp: int, num_microbatches: int) -> Orders:
    """ZB-V (Qi et al. 2023, section 6; named V-ZB in Qi et al. 2024).

    With F = B = W every rank works without a gap from its first forward to its last W once there
    are 2pp - 2 microbatches, and no rank holds more than pp microbatches. Fewer microbatches run
    the order of 2pp - 1 without those that do not exist.
    """
    return tuple(_rank_order(pp, rank, num_microbatches) for rank in range(pp))


class _Rank:
    """Appends the next microbatch's pass through a chunk."""

    def __init__(self, num_microbatches: int) -> None:
        self.num_microbatches = num_microbatches
        self.ran = {(kind, chunk): 0 for kind in ("F", "B", "W") for chunk in (0, 1)}
        self.order: list[Op] = []

    def forward(self, chunk: int) -> None:
        microbatch = self._next("F", chunk)
        if microbatch < self.num_microbatches:
            self.order.append(Op("F", microbatch, chunk))

    def input_grad(self, chunk: int) -> None:
        microbatch = self._next("B", chunk)
        if microbatch < self.num_microbatches:
            self.order.append(Op("B", microbatch, chunk))

    def weight_grad(self, chunk: int) -> None:
        microbatch = self._next("W", chunk)
        if microbatch < self.num_microbatches:
            self.order.append(Op("W", microbatch, chunk))

    def _next(self, kind: str, chunk: int) -> int:
        self.ran[kind, chunk] += 1
        return self.ran[kind, chunk] - 1


def _rank_order(pp: int, rank: int, num_microbatches: int) -> tuple[Op, ...]:
    count = max(num_microbatches, 2 * pp - 1)
    run = _Rank(num_microbatches)
    for _ in range(2 * (pp - rank) - 1):
        run.forward(0)
    for _ in range(rank):
        run.forward(1)
        run.forward(0)
    for _ in range(pp - rank):
        run.forward(1)
        run.input_grad(1)
        run.weight_grad(1)
    while run.ran["F", 1] < count:
        if run.ran["F", 0] < count:
            run.forward(0)
        run.input_grad(0)
        run.weight_grad(0)
        run.forward(1)
        run.input_grad(1)
        run.weight_grad(1)
    for _ in range(rank):
        run.input_grad(0)
        run.input_grad(1)
    for _ in range(pp - rank):
        run.input_grad(0)
        run.weight_grad(0)
    for chunk in (1, 0):
        while run.ran["W", chunk] < count:
            run.weight_grad(chunk)
    return tuple(run.order)
