"""The hash chain: each event's hash covers its envelope, its payload and the hash before it."""

import hashlib
from datetime import UTC, datetime

from schemas.events import SCHEMA_VERSION, Envelope, Event
from storage.codec import payload_of


def seal(
    event: Event,
    *,
    run_id: str,
    seq: int,
    prev_hash: str,
    at: datetime,
    round: int | None,
    trial: int | None,
) -> Envelope:
    """The envelope that records `event` as number `seq` of `run_id`, after `prev_hash`.

    Raises:
        LogError: a value of the event has no canonical form.
    """
    payload = payload_of(event)
    at = at.astimezone(UTC)
    digest = event_hash(
        run_id=run_id,
        seq=seq,
        type=event.type,
        schema_version=SCHEMA_VERSION,
        round=round,
        trial=trial,
        at=at,
        prev_hash=prev_hash,
        payload=payload,
    )
    return Envelope(
        run_id=run_id,
        seq=seq,
        type=event.type,
        schema_version=SCHEMA_VERSION,
        round=round,
        trial=trial,
        at=at,
        prev_hash=prev_hash,
        hash=digest,
        payload=payload,
    )


def event_hash(
    *,
    run_id: str,
    seq: int,
    type: str,
    schema_version: int,
    round: int | None,
    trial: int | None,
    at: datetime,
    prev_hash: str,
    payload: str,
) -> str:
    """sha256(prev_hash ‖ canonical(envelope without hash) ‖ payload), 64 hex digits.

    The envelope's canonical JSON is spelled out: its keys are fixed, its texts need no escaping
    (`checked_run_id`, the names of events, hex digits), and this runs once per event read.
    """
    return hashlib.sha256(
        f'{prev_hash}{{"at":"{at.isoformat(timespec="microseconds")}","prev_hash":"{prev_hash}",'
        f'"round":{"null" if round is None else round},"run_id":"{run_id}",'
        f'"schema_version":{schema_version},"seq":{seq},'
        f'"trial":{"null" if trial is None else trial},"type":"{type}"}}{payload}'.encode()
    ).hexdigest()


def misplaced(envelope: Envelope, *, run_id: str, seq: int, prev_hash: str) -> str | None:
    """Why `envelope` is not event `seq` of `run_id` after `prev_hash`; None: by its place it is."""
    if envelope.run_id != run_id:
        return f"belongs to run {envelope.run_id}"
    if envelope.seq != seq:
        return f"carries sequence number {envelope.seq}"
    if envelope.prev_hash != prev_hash:
        return "does not follow the event before it (previous hash differs)"
    return None


def altered(envelope: Envelope) -> str | None:
    """Whether anything of an event differs from what its hash was made of, in words; None: no."""
    run_id, seq, kind, schema_version, round_number, trial, at, prev_hash, there, payload = envelope
    expected = event_hash(
        run_id=run_id,
        seq=seq,
        type=kind,
        schema_version=schema_version,
        round=round_number,
        trial=trial,
        at=at,
        prev_hash=prev_hash,
        payload=payload,
    )
    if there != expected:
        return "is not what was written (its hash does not match its content)"
    return None
