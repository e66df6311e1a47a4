"""A process that scores slowly, to be killed: `python -m tests.tasks.scoring.victim ENGINE FOLDER`.

Its workers leave files named after them in FOLDER.
"""

import sys
from pathlib import Path

from flows.interrupts import shielded
from tasks.scoring.processes import Processes
from tasks.scoring.with_dask import Dask
from tests.tasks.scoring.batches import MOE, asking, batch_of
from tests.tasks.scoring.evaluators import Slow


def main(name: str, folder: Path) -> None:
    engine = Processes(2) if name == "processes" else Dask(2, None, folder / "dask")
    with shielded():
        try:
            list(engine.score(asking(Slow, MOE, folder, 0.1), batch_of(MOE)))
        except KeyboardInterrupt:
            engine.close()
            sys.exit(130)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
