"""What a worker of a local Dask cluster loads first."""

import signal


def dask_setup(_worker: object) -> None:
    """Ctrl-C in a terminal reaches every process of it; it is for the search to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
