"""Reading a long run makes millions of objects and no cycle among them."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cycle_collection_paused() -> Iterator[None]:
    """Pause Python's cycle collector: it would walk every event read so far, again and again.

    Measured on 20,000 events, it takes half of the time of a verified read and fold. Reference
    counting goes on, so nothing is held longer than it would be.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
