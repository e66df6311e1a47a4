"""How a batch is cut for workers."""

from typing import Final

LARGEST: Final = 32
"""Trials sent to a worker at a time: a message costs about as much as a cheap evaluation."""
_ROUNDS: Final = 4
"""Pieces a worker gets at least of a batch that is long enough, so that none waits for the last."""


def pieces(num_trials: int, workers: int) -> list[range]:
    """The batch's indices, in order, in pieces for `workers` workers."""
    size = max(1, min(LARGEST, -(-num_trials // (_ROUNDS * max(workers, 1)))))
    return [range(start, min(start + size, num_trials)) for start in range(0, num_trials, size)]
