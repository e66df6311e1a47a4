"""Scores on Ray: a cluster that is there, or one started on this machine for the run.

A worker that dies is replaced, and its trials are asked again, by Ray itself.
"""

import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from schemas.errors import EnvironmentMissing
from tasks.scoring.engine import ScoringLost
from tasks.scoring.in_pieces import ScoresInPieces
from tasks.scoring.patience import Patience
from tasks.scoring.question import SAME_EVERYWHERE, answer

NAMESPACE: Final = "refold"
OBJECT_STORE_BYTES: Final = 100 * 2**20
"""Little more than Ray's least: a piece's answers are tens of kilobytes."""
LONGEST_FOLDER: Final = 40
"""Bytes of a folder below which Ray's sockets still have names that Linux takes (107 bytes)."""
QUIET: Final = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
AUTH_MODE, AUTH_TOKEN = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"
ATTEMPTS: Final = 3
"""How often Ray asks again what a worker died of."""


class Ray(ScoresInPieces):
    """An engine: `workers` processes of a cluster of our own, or the one at `address`.

    A process that is connected to a cluster already uses that, and leaves it as it is. Ray's
    servers listen on every interface; a local cluster of ours takes nobody without its token, which
    is made anew in each process and never written.
    """

    def __init__(self, workers: int, address: str | None, patience: Patience | None = None) -> None:
        self._workers, self._address = workers, address
        self._patience = patience or Patience()
        self._ours: ExitStack | None = None
        self._ask: Any = None
        self._head = ""

    def start(self) -> str | None:
        """Starts the cluster, or connects to the one that is there."""
        if self._ask is not None:
            return None
        with ExitStack() as stack:
            if _is_connected():
                self._address = self._address or "the address this process is connected to"
            else:
                self._connect(stack)
            self._ours = stack.pop_all()
        import ray

        is_far = ray.util.client.ray.is_connected()
        self._head = self._address or "" if is_far else ray.get_runtime_context().gcs_address
        self._ask = ray.remote(num_cpus=1, max_retries=ATTEMPTS)(answer)
        return f"scoring on {self._name}, {self._at_a_time()} at a time"

    def close(self) -> None:
        """Disconnects, and ends the cluster that was started here."""
        ours, self._ours, self._ask = self._ours, None, None
        if ours is not None:
            ours.close()

    @property
    def _name(self) -> str:
        return f"Ray at {self._address}" if self._address else "a Ray cluster of this process"

    def _connect(self, stack: ExitStack) -> None:
        """Raises EnvironmentMissing: there is no such cluster, or it cannot be started."""
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        options: dict[str, Any] = {
            "namespace": NAMESPACE,
            "logging_level": logging.ERROR,
            "log_to_driver": False,
        }
        if self._address is None:
            options |= self._local_cluster(stack)
        else:
            options["address"] = self._address
            self._refuse_silence(self._address)
        import ray

        stack.callback(ray.shutdown)
        try:
            with _own_signals():
                ray.init(**options)
        except (OSError, RuntimeError, ValueError, ImportError) as error:
            raise EnvironmentMissing(
                f"{self._name} cannot be used: {_first_line(error)}",
                hint="ray start --head starts one; without an address one is started",
            ) from error

    def _refuse_silence(self, address: str) -> None:
        """Raises EnvironmentMissing: nobody listens there. Ray takes minutes to find that out."""
        problem = _unreachable(address, self._patience.connect_s)
        if problem is not None:
            raise EnvironmentMissing(
                f"{self._name} cannot be used: {problem}",
                hint="ray start --head starts one; without an address one is started",
            )

    def _local_cluster(self, stack: ExitStack) -> dict[str, Any]:
        _take_a_token()
        folder = _short_folder()
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        return {
            "address": "local",
            "num_cpus": self._workers,
            "num_gpus": 0,
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE_BYTES,
            "_temp_dir": str(folder),
        }

    def _at_a_time(self) -> int:
        import ray

        return int(ray.cluster_resources().get("CPU", 0))

    def _sent(self, asked: tuple[Any, ...]) -> Any:
        """Ray Client has its cluster load at once what it is to run, raising what that raises."""
        try:
            return self._ask.remote(*asked)
        except (ImportError, AttributeError) as error:
            raise self._unable(str(error)) from error

    def _finished(self, references: list[Any]) -> list[Any]:
        """Those that are done, at least one; each once, since the caller takes it off its list.

        Raises:
            ScoringLost: the cluster is gone, or there has been no worker for long.
        """
        import ray

        lonely = self._patience.begin()
        while True:
            try:
                done, _ = ray.wait(references, timeout=self._patience.look_s)
                if done:
                    return list(done)
                self._refuse_a_dead_head()
                alone = not self._at_a_time()
            except (ray.exceptions.RayError, OSError, RuntimeError) as error:
                raise self._lost(_first_line(error)) from error
            if lonely(not alone):
                raise self._lost("it has no CPU any more")

    def _refuse_a_dead_head(self) -> None:
        """Raises ScoringLost: the head is gone. After a minute of that, Ray would end this process
        without a word to it."""
        problem = _unreachable(self._head, self._patience.connect_s)
        if problem is not None:
            raise self._lost(f"its head is gone ({problem})")

    def _result(self, reference: Any) -> bytes:
        import ray

        try:
            return bytes(ray.get(reference))
        except ray.exceptions.RayTaskError as error:
            raise self._unable(_last_line(error)) from error
        except (ray.exceptions.RayError, OSError, RuntimeError) as error:
            raise self._lost(_first_line(error)) from error

    def _unable(self, why: str) -> EnvironmentMissing:
        return EnvironmentMissing(
            f"{self._name}: a worker cannot run this Refold: {why}", hint=SAME_EVERYWHERE
        )

    def _call_off(self, references: list[Any]) -> None:
        import ray

        try:
            for reference in references:
                ray.cancel(reference)
        except (ray.exceptions.RayError, OSError, RuntimeError):
            return

    def _lost(self, why: str) -> ScoringLost:
        return ScoringLost(f"{self._name} does not answer for its trials: {why}")


def _unreachable(address: str, timeout_s: float) -> str | None:
    """Why no connection to [SCHEME://]HOST:PORT is made, in words; None: one is, or it is none."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host:
        return None
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout_s).close()
    except OSError as error:
        return error.strerror or "it does not answer"
    return None


def _is_connected() -> bool:
    """Whether somebody has connected this process to a cluster; not by loading Ray to ask it."""
    loaded = sys.modules.get("ray")
    return loaded is not None and bool(loaded.is_initialized())


def _short_folder() -> Path:
    """A new folder for a cluster's sockets and logs.

    Raises:
        EnvironmentMissing: the folder for temporary files has too long a name.
    """
    folder = Path(tempfile.mkdtemp(prefix="refold-ray-"))
    if len(os.fsencode(folder)) <= LONGEST_FOLDER:
        return folder
    folder.rmdir()
    try:
        return Path(tempfile.mkdtemp(prefix="refold-ray-", dir="/tmp"))
    except OSError as error:
        raise EnvironmentMissing(
            "Ray needs a folder with a short name for its sockets, and /tmp is none to write in",
            hint="set TMPDIR to a folder with a short name",
        ) from error


def _take_a_token() -> None:
    """Has this process, and what Ray starts from it, show a token of its own to each other.

    Ray reads these variables when it is first loaded and keeps them, so they stay.

    Raises:
        EnvironmentMissing: Ray was loaded without.
    """
    if os.environ.get(AUTH_MODE) == "token" and os.environ.get(AUTH_TOKEN):
        return
    if "ray" in sys.modules:
        raise EnvironmentMissing(
            "Ray was loaded into this process without a token, and would start a cluster open to"
            " the network",
            hint=f"set {AUTH_MODE}=token and {AUTH_TOKEN} before, or name a cluster to score on",
        )
    os.environ[AUTH_MODE] = "token"
    os.environ[AUTH_TOKEN] = secrets.token_hex(32)


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes SIGTERM for itself; a search keeps it, to end as it ends on Ctrl-C."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _last_line(error: BaseException) -> str:
    """What a worker's traceback ends with."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
