"""What a killed writer left behind is set aside, and every setting aside is recorded.

Nothing is deleted: leftovers move to `discarded/`. What lies there and is named by no
`TailRecovered` event was moved by a process that died before it could say so; the next one does.
"""

from collections.abc import Iterable

from storage.backends import NotStored, SegmentStore
from storage.extent import Extent
from storage.layout import (
    HEADS,
    TEMPORARY_PREFIX,
    blobs_prefix,
    discarded_prefix,
    events_prefix,
    head_key,
)


def set_aside(backend: SegmentStore, extent: Extent) -> None:
    """Move torn segments and temporary files to `discarded/`. The caller holds the run's lease."""
    run_id = extent.run_id
    taken = set(backend.names(discarded_prefix(run_id)))
    for key in _leftovers(backend, extent):
        name = _free_name(key.rpartition("/")[2].lstrip("."), taken)
        try:
            backend.move(key, f"{discarded_prefix(run_id)}/{name}")
        except NotStored:
            continue
        taken.add(name)


def unrecorded(backend: SegmentStore, run_id: str, recorded: Iterable[str]) -> tuple[str, ...]:
    """Names in `discarded/` that are not among `recorded`, sorted."""
    known = set(recorded)
    return tuple(n for n in backend.names(discarded_prefix(run_id)) if n not in known)


def _leftovers(backend: SegmentStore, extent: Extent) -> list[str]:
    events, blobs = events_prefix(extent.run_id), blobs_prefix(extent.run_id)
    own_head = TEMPORARY_PREFIX + head_key(extent.run_id).rpartition("/")[2]
    return [
        *(f"{events}/{name}" for name in extent.torn),
        *(f"{events}/{name}" for name in backend.leftovers(events)),
        *(f"{blobs}/{name}" for name in backend.leftovers(blobs)),
        *(f"{HEADS}/{name}" for name in backend.leftovers(HEADS) if name.startswith(own_head)),
    ]


def _free_name(name: str, taken: set[str]) -> str:
    free, count = name, 1
    while free in taken:
        count += 1
        free = f"{name}.{count}"
    return free
