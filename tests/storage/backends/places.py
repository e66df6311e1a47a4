"""Where the conformance tests keep their stores: each kind of backend, by the name a user gives."""

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from storage import Store
from storage.backends import SegmentStore

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Place:
    """An empty store: `name` is what `--store` would say."""

    name: str

    @property
    def store(self) -> Store:
        return Store.locate(self.name, os.environ)

    @property
    def backend(self) -> SegmentStore:
        """A new one each time, as each process has its own."""
        return self.store.backend

    def process(self, script: str, *arguments: str) -> "subprocess.Popen[str]":
        """A process that runs `script` with the store's name as its first argument."""
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script), self.name, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
