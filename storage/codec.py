"""Events to payloads and back."""

import json
from functools import cache
from typing import Any, get_args

from pydantic import ValidationError

from schemas.errors import DamagedLog, UnknownEvent
from schemas.events import SCHEMA_VERSION, Envelope, Event
from storage.canonical import canonical
from storage.upcasting import ADDED_IN, upcast


def payload_of(event: Event) -> str:
    """Canonical JSON of `event`: the text that is hashed and stored.

    Raises:
        LogError: a value has no canonical form (a number that is not finite).
    """
    return canonical(event.model_dump(mode="json"))


def event_of(envelope: Envelope) -> Event:
    """The event an envelope carries, an old one lifted to today's schema.

    Raises:
        UnknownEvent: its type or schema version is not one this Refold knows.
        DamagedLog: the payload is not an event of that type.
    """
    where = f"run {envelope.run_id}, event {envelope.seq}"
    if envelope.schema_version > SCHEMA_VERSION:
        raise UnknownEvent(
            f"{where}: {envelope.type} has schema version {envelope.schema_version},"
            f" this Refold knows up to {SCHEMA_VERSION}",
            hint="read the run with the Refold that wrote it, or a newer one",
        )
    if envelope.schema_version < 1:
        raise DamagedLog(f"{where}: no schema version {envelope.schema_version} ever existed")
    model = event_types().get(envelope.type)
    if model is None:
        raise UnknownEvent(
            f"{where}: this Refold knows no event {envelope.type!r}",
            hint="read the run with the Refold that wrote it, or a newer one",
        )
    if envelope.schema_version < ADDED_IN.get(envelope.type, 1):
        version = envelope.schema_version
        raise DamagedLog(f"{where}: schema version {version} has no {envelope.type}")
    try:
        if envelope.schema_version == SCHEMA_VERSION:
            return model.model_validate_json(envelope.payload)
        payload = _object(envelope.payload)
        payload = upcast(envelope.type, envelope.schema_version, payload)
        return model.model_validate_json(json.dumps(payload))
    except ValueError as error:
        if not isinstance(error, ValidationError):
            raise DamagedLog(f"{where}: not a {envelope.type}: {error}") from error
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "payload"
        raise DamagedLog(f"{where}: not a {envelope.type}: {key}: {first['msg']}") from error


def _object(payload: str) -> dict[str, Any]:
    value = json.loads(payload)
    if not isinstance(value, dict):
        raise ValueError("its payload is not a JSON object")
    return value


@cache
def event_types() -> dict[str, type[Event]]:
    """Every event by name, from the one list in `schemas.events`."""
    union = get_args(Event)[0]
    return {model.model_fields["type"].default: model for model in get_args(union)}
