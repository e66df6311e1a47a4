"""A store: where it is, what runs it holds, and the evaluation cache beside them."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import RunNotFound, UserError
from storage.backends import SegmentStore
from storage.backends.below import Below
from storage.backends.local import LocalDisk
from storage.backends.object_store import ObjectStore
from storage.backends.store_url import StoreUrl, is_url, parse
from storage.evaluation_cache import EvaluationCache
from storage.extent import has_begun
from storage.kept_answers import KeptAnswers
from storage.layout import HEADS, NIGHTS, RUNS, run_of_folder, run_of_head

DEFAULT_STORE = "./.refold"
"""Where runs are kept unless told otherwise."""


def _silent(_: str) -> None: ...


@dataclass(frozen=True)
class Store:
    """A place that holds runs."""

    root: Path | StoreUrl
    backend: SegmentStore

    @classmethod
    def at(cls, root: Path) -> "Store":
        """The store in a local folder; made when first written to."""
        return cls(root, LocalDisk(root))

    @classmethod
    def locate(
        cls, option: str | None, env: Mapping[str, str], say: Callable[[str], None] = _silent
    ) -> "Store":
        """The store named by `--store`, else by REFOLD_STORE in `env`, else `./.refold`.

        Nothing is sent or made yet. `say` is told, in one line, what a store waits for.

        Raises:
            UserError: a URL that names no store, or something that is there and not a folder.
            EnvironmentMissing: a URL, and `obstore` is not installed.
        """
        name = option or env.get("REFOLD_STORE") or DEFAULT_STORE
        if is_url(name):
            url = parse(name)
            return cls(url, ObjectStore(url, env, say=say))
        root = Path(name).expanduser()
        if root.exists() and not root.is_dir():
            raise UserError(f"store {name}: is a file, not a folder")
        return cls.at(root)

    def local_folder(self, env: Mapping[str, str]) -> Path:
        """Where the tools of a search keep local files: the store's own folder, if it is one, else
        `refold/` in the user's cache (XDG_CACHE_HOME in `env`, else `~/.cache`)."""
        if isinstance(self.root, Path):
            return self.root
        return Path(env.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "refold"

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
    def nights(self) -> "Store":
        """The nights: logs beside those of the runs."""
        return Store(self.root, Below(self.backend, NIGHTS))

    @property
    def evaluations(self) -> EvaluationCache:
        """Evaluations of earlier runs, by everything that could change them."""
        return EvaluationCache(self.backend)

    @property
    def answers(self) -> KeptAnswers:
        """What other steps of earlier runs answered, by everything that could change it."""
        return KeptAnswers(self.backend)


def as_store(store: Store | Path) -> Store:
    """A store given as such or as its folder."""
    return store if isinstance(store, Store) else Store.at(store)
