import hashlib
import json
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from schemas.events import ZERO_HASH, Envelope, NoteTaken
from storage.chain import altered, misplaced, seal
from tests.storage.builders import RUN, START


def sealed(text: str = "a note", **changes: object) -> Envelope:
    values: dict[str, object] = {
        "run_id": RUN,
        "seq": 7,
        "prev_hash": "ab" * 32,
        "at": START,
        "round": 1,
        "trial": None,
    }
    return seal(NoteTaken(text=text, author="x"), **(values | changes))  # type: ignore[arg-type]


@given(
    text=st.text(st.characters(exclude_categories=("Cs",)), max_size=30),
    seq=st.integers(0, 10**12 - 1),
    round_number=st.none() | st.integers(0, 9),
    trial=st.none() | st.integers(0, 10**6),
    at=st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
)
def test_p1_the_hash_covers_previous_hash_canonical_envelope_and_payload(
    text: str, seq: int, round_number: int | None, trial: int | None, at: datetime
) -> None:
    envelope = sealed(text, seq=seq, round=round_number, trial=trial, at=at)
    fields = {k: v for k, v in envelope._asdict().items() if k not in ("hash", "payload")}
    fields["at"] = at.isoformat(timespec="microseconds")
    spelled = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    expected = hashlib.sha256(f"{'ab' * 32}{spelled}{envelope.payload}".encode()).hexdigest()
    assert envelope.hash == expected
    assert misplaced(envelope, run_id=RUN, seq=seq, prev_hash="ab" * 32) is None
    assert altered(envelope) is None


def test_time_is_recorded_in_utc() -> None:
    east = START.astimezone(timezone(timedelta(hours=9)))
    assert sealed(at=east) == sealed(at=START)


def test_any_changed_field_shows() -> None:
    envelope = sealed()
    changes = {
        "run_id": "another",
        "seq": 8,
        "type": "RunFinished",
        "schema_version": 0,
        "round": 2,
        "trial": 3,
        "at": START + timedelta(microseconds=1),
        "prev_hash": ZERO_HASH,
        "hash": "0" * 64,
        "payload": envelope.payload.replace("note", "vote"),
    }
    assert set(changes) == set(Envelope._fields)
    for name, value in changes.items():
        changed = envelope._replace(**{name: value})
        assert altered(changed) is not None, name
        elsewhere = misplaced(changed, run_id=RUN, seq=7, prev_hash="ab" * 32)
        assert (elsewhere is not None) == (name in ("run_id", "seq", "prev_hash")), name
