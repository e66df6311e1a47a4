"""Events as a lineage refers to them: where they stand, and where a run continued another."""

from collections.abc import Iterable, Iterator

from schemas.events import Envelope, RunForked
from schemas.lineage import ForkStep, Place
from storage.reading import Record


def place_of(envelope: Envelope) -> Place:
    """Where an event stands."""
    return Place(run_id=envelope.run_id, seq=envelope.seq, at=envelope.at)


def fork_steps(records: Iterable[Record]) -> Iterator[ForkStep]:
    """The forks among `records`, in order."""
    for envelope, event in records:
        if isinstance(event, RunForked):
            yield ForkStep(
                place=place_of(envelope),
                parent=event.parent,
                parent_seq=event.parent_seq,
                parent_hash=event.parent_hash,
                asked=event.asked,
                changed=event.changed,
                inherits=event.inherits,
                reopened=event.reopened,
            )
