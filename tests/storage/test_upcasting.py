"""What no version of the event schema ever wrote is refused, and says which event it is."""

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import DamagedLog, LogError, UnknownEvent
from schemas.events import SCHEMA_VERSION, ZERO_HASH, Envelope, Event
from storage import Store
from storage.canonical import canonical
from storage.chain import event_hash
from storage.codec import event_of, payload_of
from storage.columns import NO_HOT_COLUMNS
from storage.extent import Origin
from storage.layout import events_prefix, segment_name
from storage.segments import Row, encode
from storage.verify import verify
from tests.storage.builders import RUN, START, proposed, started
from tests.storage.lineages import forked, invalidated, llm_called


def recorded(kind: str, version: int, payload: str, seq: int = 4) -> Envelope:
    """An envelope as somebody else's code might have sealed it."""
    fields: dict[str, Any] = {
        "run_id": RUN,
        "seq": seq,
        "type": kind,
        "schema_version": version,
        "round": None,
        "trial": None,
        "at": START,
        "prev_hash": ZERO_HASH,
        "payload": payload,
    }
    return Envelope(**fields, hash=event_hash(**fields))


def fields_of(event: Event, **changes: Any) -> str:
    return canonical({**json.loads(payload_of(event)), **changes})


def without_call(**changes: Any) -> str:
    """A proposal as version 1 wrote it."""
    fields = {**json.loads(payload_of(proposed(1))), **changes}
    if "call" not in changes:
        del fields["call"]
    return canonical(fields)


ORIGIN = Origin(RUN, 3, "a" * 64)


def test_a_proposal_of_version_1_was_made_by_no_call() -> None:
    assert event_of(recorded("TrialProposed", 1, without_call())) == proposed(1)


REFUSED: dict[str, tuple[tuple[str, int, str], type[LogError], str]] = {
    "newer": (
        ("NoteTaken", SCHEMA_VERSION + 1, "{}"),
        UnknownEvent,
        f"has schema version {SCHEMA_VERSION + 1}, this Refold knows up to {SCHEMA_VERSION}",
    ),
    "much newer": (("Whatever", 30000, "{}"), UnknownEvent, "has schema version 30000"),
    "unknown type": (("TrialDreamt", 2, "{}"), UnknownEvent, "knows no event 'TrialDreamt'"),
    "unknown old type": (("TrialDreamt", 1, "{}"), UnknownEvent, "knows no event 'TrialDreamt'"),
    "version 0": (("NoteTaken", 0, "{}"), DamagedLog, "no schema version 0 ever existed"),
    "version -1": (("NoteTaken", -1, "{}"), DamagedLog, "no schema version -1 ever existed"),
    "fork in 1": (
        ("RunForked", 1, payload_of(forked(ORIGIN))),
        DamagedLog,
        "schema version 1 has no RunForked",
    ),
    "call in 1": (
        ("LLMCalled", 1, payload_of(llm_called(0))),
        DamagedLog,
        "schema version 1 has no LLMCalled",
    ),
    "invalidation in 1": (
        ("TrialInvalidated", 1, payload_of(invalidated(1, None, None))),
        DamagedLog,
        "schema version 1 has no TrialInvalidated",
    ),
    "later field in 1": (
        ("TrialProposed", 1, without_call(call=None)),
        DamagedLog,
        "call came with a later schema version",
    ),
    "field missing in 2": (
        ("TrialProposed", 2, without_call()),
        DamagedLog,
        "call: Field required",
    ),
    "another type inside": (
        ("RunStarted", 2, payload_of(proposed(1))),
        DamagedLog,
        "not a RunStarted",
    ),
    "unknown field": (
        ("RunStarted", 2, fields_of(started(), mood="good")),
        DamagedLog,
        "mood: Extra inputs are not permitted",
    ),
    **{
        f"{name} in {version}": (
            ("TrialProposed", version, text),
            DamagedLog,
            "its payload is not JSON" if name in ("nothing", "no JSON", "NaN") else "a JSON object",
        )
        for version in (1, 2)
        for name, text in {
            "a list": "[1]",
            "null": "null",
            "a number": "3",
            "text": '"x"',
            "nothing": "",
            "no JSON": "{",
            "NaN": '{"why":NaN}',
        }.items()
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_was_never_written_is_refused_by_its_event(name: str, tmp_path: Path) -> None:
    (kind, version, payload), error, says = REFUSED[name]
    with pytest.raises(error) as refused:
        event_of(recorded(kind, version, payload))
    assert says in str(refused.value)
    assert f"run {RUN}, event 4" in str(refused.value)
    if error is UnknownEvent:
        assert "or a newer one" in str(refused.value.hint)
    envelope = recorded(kind, version, payload, seq=0)
    key = f"{events_prefix(RUN)}/{segment_name(0)}"
    Store.at(tmp_path).backend.replace(key, encode([Row(envelope, NO_HOT_COLUMNS)]))
    report = verify(tmp_path, RUN)
    assert report.first_bad == 0
    assert says in str(report.problem)
