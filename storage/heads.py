"""Heads: the last event of a run, anchored outside its folder.

A chain of hashes cannot tell that its tail was deleted; the anchor can. The file also carries a
summary of the run up to that event: a cache for listings, never a source.
"""

from pydantic import ValidationError

from schemas.errors import DamagedLog
from schemas.model import FrozenModel
from storage.about_run import read_about_run
from storage.backends import SegmentStore
from storage.canonical import canonical, sha256_hex
from storage.layout import head_key
from storage.summary import SUMMARY_VERSION, RunSummary


class Head(FrozenModel):
    """Event `seq` of a run, and its hash."""

    seq: int
    hash: str


class AnchoredHead(FrozenModel):
    """The anchor file: the head, and the summary of all events up to it."""

    run_id: str
    first_seq: int = 0
    """Number of the run's own first event; above 0 for a fork, which has those before it from its
    parent."""
    head: Head
    summary_version: int
    summary: dict[str, object]
    sha256: str | None = None
    """Of all the rest: nothing else would notice a changed summary. None: from before there was."""

    @property
    def digest(self) -> str:
        """What `sha256` should be."""
        # What the file has: a field that a later version adds must not make it look changed.
        values = self.model_dump(mode="json", exclude={"sha256"}, exclude_unset=True)
        return sha256_hex(canonical(values).encode())

    def known_summary(self) -> RunSummary | None:
        """The summary; None when another version of this code wrote it: then rebuild it."""
        if self.summary_version != SUMMARY_VERSION:
            return None
        try:
            return RunSummary.model_validate(self.summary)
        except ValidationError:
            return None


def read_anchor(backend: SegmentStore, run_id: str) -> AnchoredHead | None:
    """The anchored head of a run; None: it was never anchored.

    Raises:
        DamagedLog: the anchor file is not one; it is replaced atomically, so no crash explains it.
    """
    anchor = read_about_run(backend, head_key(run_id), AnchoredHead, run_id, "anchored head")
    if anchor is not None and anchor.sha256 not in (None, anchor.digest):
        raise DamagedLog(f"run {run_id}: its anchored head is not what was written")
    return anchor


def write_anchor(
    backend: SegmentStore, run_id: str, first_seq: int, head: Head, summary: RunSummary
) -> None:
    """Anchor `head` of a run whose own events begin at `first_seq`, durably.

    Raises:
        LogError: it cannot be written; the anchor before stands.
    """
    anchor = AnchoredHead(
        run_id=run_id,
        first_seq=first_seq,
        head=head,
        summary_version=SUMMARY_VERSION,
        summary=summary.model_dump(mode="json"),
    )
    anchor = anchor.model_copy(update={"sha256": anchor.digest})
    backend.replace(head_key(run_id), anchor.model_dump_json(exclude_unset=True).encode())
