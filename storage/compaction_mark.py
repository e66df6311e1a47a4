"""The mark of a compacted run: which of its segments one segment stands for.

Compaction writes the mark, then puts all events into the run's first segment, then removes the
others. Whatever instant it is killed at, the mark and the first segment together say what holds: a
segment that begins within `through` is part of the run only as long as the first one ends before
it. The mark outlives the segments as their tombstone: a writer that was asleep and finds its name
free sees by the mark that the name was taken once.
"""

from pydantic import Field

from schemas.model import FrozenModel
from storage.about_run import read_about_run
from storage.backends import SegmentStore
from storage.layout import compaction_key


class CompactionMark(FrozenModel):
    """Events up to `through` lie, or are about to lie, in the run's first segment."""

    run_id: str
    through: int = Field(ge=0)


def read_mark(backend: SegmentStore, run_id: str) -> CompactionMark | None:
    """The mark of a run; None: it was never compacted.

    Raises:
        DamagedLog: what is there is not one; it is replaced atomically, so no crash explains it.
    """
    return read_about_run(
        backend, compaction_key(run_id), CompactionMark, run_id, "compaction mark"
    )


def is_superseded(mark: CompactionMark | None, first_seq: int) -> bool:
    """Whether events from `first_seq` on were moved to the run's first segment."""
    return mark is not None and first_seq <= mark.through


def write_mark(backend: SegmentStore, run_id: str, through: int) -> None:
    """Sets the mark, durably."""
    mark = CompactionMark(run_id=run_id, through=through)
    backend.replace(compaction_key(run_id), mark.model_dump_json().encode())
