"""Local clusters of two workers, each started by the first test that wants it."""

from pathlib import Path

from tasks.scoring import Engine
from tasks.scoring.with_dask import Dask
from tasks.scoring.with_ray import Ray

WORKERS = 2


class Clusters:
    """Running engines by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, Engine] = {}

    def __getitem__(self, name: str) -> Engine:
        if name not in self._running:
            made = Dask(WORKERS, None, self._folder) if name == "dask" else Ray(WORKERS, None)
            self._running[name] = made
            made.start()
        return self._running[name]

    def close(self) -> None:
        for engine in self._running.values():
            engine.close()
