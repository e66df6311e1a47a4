import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.events import ZERO_HASH, Event
from storage.chain import altered, misplaced, seal
from storage.codec import event_of
from storage.columns import hot_columns
from storage.segments import ForeignSegment, Row, TornSegment, decode, encode
from tests.storage.builders import RUN, START, proposed, rejected, scored, started, whole_run


def rows_of(events: list[Event]) -> list[Row]:
    rows: list[Row] = []
    prev_hash = ZERO_HASH
    for seq, event in enumerate(events):
        envelope = seal(
            event, run_id=RUN, seq=seq, prev_hash=prev_hash, at=START, round=None, trial=seq
        )
        rows.append(Row(envelope, hot_columns(event)))
        prev_hash = envelope.hash
    return rows


SAMPLE = rows_of([started(), proposed(0), scored(0), proposed(1), rejected(1)])


def test_a_segment_reads_back_as_it_was_written() -> None:
    assert decode(encode(SAMPLE)) == SAMPLE


def test_every_event_survives_its_payload() -> None:
    events = [entry.event for batch in whole_run(6) for entry in batch]
    assert [event_of(row.envelope) for row in rows_of(events)] == events


@settings(max_examples=40)
@given(st.integers(1, len(SAMPLE)))
def test_any_number_of_events_fits_a_segment(count: int) -> None:
    assert decode(encode(SAMPLE[:count])) == SAMPLE[:count]


def test_every_cut_of_a_segment_is_torn() -> None:
    data = encode(SAMPLE)
    for length in range(len(data)):
        with pytest.raises(TornSegment):
            decode(data[:length])


def test_garbage_after_a_segment_is_torn() -> None:
    with pytest.raises(TornSegment):
        decode(encode(SAMPLE) + b"garbage")


def test_no_single_flipped_bit_passes_unseen() -> None:
    data = encode(SAMPLE)
    chooser = random.Random(20260304)
    for _ in range(300):
        position, bit = chooser.randrange(len(data)), chooser.randrange(8)
        flipped = bytearray(data)
        flipped[position] ^= 1 << bit
        try:
            rows = decode(bytes(flipped))
        except (TornSegment, ForeignSegment):
            continue
        assert rows == SAMPLE or _noticed(rows), f"bit {bit} of byte {position}"


def _noticed(rows: list[Row]) -> bool:
    """Whether the chain or a hot column gives the change away."""
    prev_hash = ZERO_HASH
    for seq, row in enumerate(rows):
        if misplaced(row.envelope, run_id=RUN, seq=seq, prev_hash=prev_hash) is not None:
            return True
        if altered(row.envelope) is not None:
            return True
        if hot_columns(event_of(row.envelope)) != row.hot:
            return True
        prev_hash = row.envelope.hash
    return len(rows) != len(SAMPLE)


def test_p1_each_event_carries_the_hash_of_the_one_before() -> None:
    assert SAMPLE[0].envelope.prev_hash == ZERO_HASH
    for before, after in pairwise(SAMPLE):
        assert after.envelope.prev_hash == before.envelope.hash
