"""Time the GPU waits for its host: launch-bound passes and synchronisations.

Kernels are launched from an eager framework by one thread, which runs ahead of the GPU as long as
it is the faster of the two. Over a pass without synchronisation the GPU therefore takes the longer
of its own work and the launches of that pass. A host that waits for a value of the GPU (tokens per
expert) loses its lead: a layer with such waits takes the longer of the two by itself, and each wait
adds a round trip. While the GPU waits for an exposed collective, its host gets ahead as well. What
a CUDA graph replays costs the host nothing.
"""

from collections.abc import Iterable

from projection.time.fsdp import FsdpTimes
from projection.time.layers import LayerTimes

Unit = tuple[int, int, LayerTimes, FsdpTimes]
"""(count, how many of them are recomputed in full, times, exposed sharding) of equal units."""


def host_idle(units: Iterable[Unit], *, splits: bool) -> tuple[float, float, float]:
    """Waiting in forward, input-gradient and weight-gradient pass of one microbatch, in ms.

    Without split passes the two gradients are one pass, whose waiting is in the first.
    """
    forward = inputs = weights = 0.0
    alone_forward = alone_again = 0.0
    for count, recomputed, times, sharding in units:
        host = times.host
        again = host.forward - times.forward.total
        lag = again - sharding.forward
        if host.syncs:
            alone_forward += count * (host.syncs + max(0.0, lag))
            alone_again += recomputed * (host.syncs + max(0.0, again))
        else:
            forward += count * lag
            inputs += recomputed * again
        rerun = host.rerun - times.rerun.total
        inputs += count * (host.input_grad - times.input_grad.total - sharding.backward + rerun)
        weights += count * (host.weight_grad - times.weight_grad.total)
    if splits:
        return (
            alone_forward + max(0.0, forward),
            alone_again + max(0.0, inputs),
            max(0.0, weights),
        )
    return alone_forward + max(0.0, forward), alone_again + max(0.0, inputs + weights), 0.0
