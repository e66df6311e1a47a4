"""Scores on Dask: a cluster that is there, or one started on this machine for the run.

A worker that dies is replaced, and its trials are asked again, by Dask itself.
"""

import logging
import pydoc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from schemas.errors import EnvironmentMissing
from tasks.scoring.engine import ScoringLost
from tasks.scoring.in_pieces import ScoresInPieces
from tasks.scoring.patience import Patience
from tasks.scoring.question import SAME_EVERYWHERE, answer

LOOPBACK: Final = "127.0.0.1"


class Dask(ScoresInPieces):
    """An engine: `workers` processes with files in `folder`, or the cluster at `address`.

    The local one listens on the loopback address alone, and its workers end with this process
    however that ends.
    """

    def __init__(
        self, workers: int, address: str | None, folder: Path, patience: Patience | None = None
    ) -> None:
        self._workers, self._address, self._folder = workers, address, folder
        self._patience = patience or Patience()
        self._client: Any = None
        self._cluster: Any = None

    def start(self) -> str | None:
        """Starts the cluster, or connects to the one that is there, and waits for a worker."""
        if self._client is not None:
            return None
        from distributed import Client

        # What goes wrong is said once, by us; Dask's client logs every attempt with a traceback.
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
        try:
            if self._address is None:
                self._cluster = self._local_cluster()
            self._client = Client(
                self._address or self._cluster,
                timeout=self._patience.connect_s,
                set_as_default=False,
            )
            self._client.wait_for_workers(1, timeout=self._patience.stranded_s)
        except (OSError, TimeoutError, ValueError) as error:
            self.close()
            raise EnvironmentMissing(
                f"{self._name} cannot be used: {error or 'no worker has joined it'}",
                hint="dask scheduler and dask worker start one; without an address one is started",
            ) from error
        self._refuse_workers_without_refold()
        return f"scoring on {self._name}, {self._at_a_time()} at a time"

    def close(self) -> None:
        """Disconnects, and ends the cluster that was started here."""
        client, self._client = self._client, None
        cluster, self._cluster = self._cluster, None
        if client is not None:
            client.close()
        if cluster is not None:
            cluster.close()

    @property
    def _name(self) -> str:
        return f"Dask at {self._address}" if self._address else "a Dask cluster of this process"

    def _local_cluster(self) -> Any:
        from distributed import LocalCluster

        return LocalCluster(
            n_workers=self._workers,
            threads_per_worker=1,
            processes=True,
            host=LOOPBACK,
            dashboard_address=f"{LOOPBACK}:0",
            local_directory=str(self._folder),
            memory_limit=None,
            preload=["tasks.scoring.dask_worker"],
            silence_logs=logging.CRITICAL,
        )

    def _refuse_workers_without_refold(self) -> None:
        """A worker that is sent what it cannot load ends itself: it is asked first, by a function
        that every Python has.

        Raises:
            EnvironmentMissing: a worker has no Refold, or one without this module.
        """
        name = f"{answer.__module__}.{answer.__qualname__}"
        found = self._client.run(pydoc.locate, name, on_error="return")
        without = sorted(worker for worker, there in found.items() if there != answer)
        if without:
            self.close()
            raise EnvironmentMissing(
                f"{self._name}: the worker at {without[0]} has no Refold, or another"
                f" ({len(without)} of {len(found)} workers)",
                hint=SAME_EVERYWHERE,
            )

    def _at_a_time(self) -> int:
        return sum(self._client.nthreads().values())

    def _sent(self, asked: tuple[Any, ...]) -> Any:
        return self._client.submit(answer, *asked, pure=False)

    def _finished(self, futures: list[Any]) -> Iterator[Any]:
        """Those that are done, at least one; each once, since the caller takes it off its list.

        Raises:
            ScoringLost: the scheduler is gone, or there has been no worker for long.
        """
        from distributed import CancelledError, wait

        lonely = self._patience.begin()
        while True:
            try:
                with self._client.as_current():
                    return iter(wait(futures, self._patience.look_s, "FIRST_COMPLETED").done)
            except CancelledError as error:
                raise self._lost("its scheduler is gone") from error
            except TimeoutError:
                pass
            try:
                anybody = self._at_a_time() > 0
            except (OSError, TimeoutError) as error:
                raise self._lost("its scheduler is gone") from error
            if lonely(anybody):
                raise self._lost("it has no worker any more")

    def _result(self, future: Any) -> bytes:
        from distributed import CancelledError

        if future.status == "error":
            error = future.exception()
            raise self._unanswered(error) from error
        try:
            return bytes(future.result(self._patience.stranded_s))
        except (OSError, TimeoutError, CancelledError) as error:
            raise self._lost("its scheduler is gone") from error

    def _unanswered(self, error: BaseException) -> Exception:
        from distributed import KilledWorker

        if isinstance(error, KilledWorker):
            return self._lost("workers die of the same trials again and again")
        return EnvironmentMissing(
            f"{self._name}: a worker cannot run this Refold: {type(error).__name__}: {error}",
            hint=SAME_EVERYWHERE,
        )

    def _lost(self, why: str) -> ScoringLost:
        return ScoringLost(f"{self._name} does not answer for its trials: {why}")

    def _call_off(self, futures: list[Any]) -> None:
        if self._client.status == "running":
            self._client.cancel(futures)
