"""A store: where it is, what runs it holds, and the evaluation cache beside them."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import RunNotFound, UserError
from storage.backends import SegmentStore
from storage.backends.local import LocalDisk
from storage.evaluation_cache import EvaluationCache
from storage.extent import has_begun
from storage.layout import HEADS, RUNS, run_of_folder, run_of_head

DEFAULT_STORE = "./.refold"
_URL = re.compile(r"([a-z][a-z0-9+.-]*)://")


@dataclass(frozen=True)
class Store:
    """A place that holds runs."""

    root: Path
    backend: SegmentStore

    @classmethod
    def at(cls, root: Path) -> "Store":
        """The store in a local folder; made when first written to."""
        return cls(root, LocalDisk(root))

    @classmethod
    def locate(cls, option: str | None, env: Mapping[str, str]) -> "Store":
        """The store named by `--store`, else by REFOLD_STORE in `env`, else `./.refold`.

        Raises:
            UserError: the name is a URL, or something that is there and not a folder.
        """
        name = option or env.get("REFOLD_STORE") or DEFAULT_STORE
        url = _URL.match(name)
        if url:
            raise UserError(
                f"store {name}: {url.group(1)}:// stores are not available yet",
                hint="name a folder on a local disk",
            )
        root = Path(name).expanduser()
        if root.exists() and not root.is_dir():
            raise UserError(f"store {name}: is a file, not a folder")
        return cls.at(root)

    def run_ids(self) -> list[str]:
        """Ids of the runs in the store, oldest first; a folder without an event is none, but a run
        whose folder is gone and whose head is anchored is one."""
        named = [run_of_folder(name) for name in self.backend.folders(RUNS)]
        anchored = [run_of_head(name) for name in self.backend.names(HEADS)]
        found = sorted({run_id for run_id in (*named, *anchored) if run_id is not None})
        return [run_id for run_id in found if has_begun(self.backend, run_id)]

    def find_run(self, text: str) -> str:
        """The run that `text` names: its id, the unique beginning or end of one, or "latest".

        Raises:
            RunNotFound: none or more than one; the message says which come near.
        """
        runs = self.run_ids()
        if text in runs:
            return text
        if text == "latest" and runs:
            return runs[-1]
        matches = [run for run in runs if text and (run.startswith(text) or run.endswith(text))]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise RunNotFound(f"{text!r} names {len(matches)} runs: {', '.join(matches[:5])}")
        near = difflib.get_close_matches(text, runs, n=1)
        hint = f"did you mean {near[0]}?" if near else "`refold runs` lists them"
        raise RunNotFound(f"no run {text!r} in the store {self.root}", hint=hint)

    @property
    def evaluations(self) -> EvaluationCache:
        """Evaluations of earlier runs, by everything that could change them."""
        return EvaluationCache(self.backend)


def as_store(store: Store | Path) -> Store:
    """A store given as such or as its folder."""
    return store if isinstance(store, Store) else Store.at(store)
