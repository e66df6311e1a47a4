"""Events to payloads and back."""

from functools import cache
from typing import Any, get_args

from pydantic import ValidationError

from schemas.errors import DamagedLog, UnknownEvent
from schemas.events import SCHEMA_VERSION, Envelope, Event
from storage.canonical import canonical, is_canonical, parsed
from storage.upcasting import ADDED_IN, upcast


def payload_of(event: Event) -> str:
    """Canonical JSON of `event`: the text that is hashed and stored.

    Raises:
        LogError: a value has no canonical form (a number that is not finite).
    """
    return canonical(event.model_dump(mode="json"))


def event_of(envelope: Envelope, *, in_canonical_form: bool = False) -> Event:
    """The event an envelope carries, an old one lifted to today's schema.

    Args:
        envelope: of the event.
        in_canonical_form: whether its payload must be the canonical JSON of what it says. Where the
            hash was checked it is, unless it was written otherwise; asking costs a third more.

    Raises:
        UnknownEvent: its type or schema version is not one this Refold knows.
        DamagedLog: the payload is not an event of that type, or not in the form that is asked for.
    """
    if envelope.schema_version > SCHEMA_VERSION:
        raise UnknownEvent(
            f"{_where(envelope)}: {envelope.type} has schema version {envelope.schema_version},"
            f" this Refold knows up to {SCHEMA_VERSION}",
            hint="read the run with the Refold that wrote it, or a newer one",
        )
    if envelope.schema_version < 1:
        raise DamagedLog(
            f"{_where(envelope)}: no schema version {envelope.schema_version} ever existed"
        )
    model = event_types().get(envelope.type)
    if model is None:
        raise UnknownEvent(
            f"{_where(envelope)}: this Refold knows no event {envelope.type!r}",
            hint="read the run with the Refold that wrote it, or a newer one",
        )
    version = envelope.schema_version
    if version < ADDED_IN.get(envelope.type, 1):
        raise DamagedLog(f"{_where(envelope)}: schema version {version} has no {envelope.type}")
    value = _object(envelope)
    if in_canonical_form and not is_canonical(envelope.payload, value):
        raise DamagedLog(f"{_where(envelope)}: its payload is not canonical JSON")
    if version < SCHEMA_VERSION:
        try:
            value = upcast(envelope.type, version, value)
        except ValueError as error:
            raise DamagedLog(f"{_where(envelope)}: not a {envelope.type}: {error}") from error
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise DamagedLog(
            f"{_where(envelope)}: not a {envelope.type}: {key}: {first['msg']}"
        ) from error


def _object(envelope: Envelope) -> dict[str, Any]:
    try:
        value = parsed(envelope.payload)
    except ValueError as error:
        raise DamagedLog(f"{_where(envelope)}: its payload is not JSON") from error
    if not isinstance(value, dict):
        raise DamagedLog(f"{_where(envelope)}: its payload is not a JSON object")
    return value


def _where(envelope: Envelope) -> str:
    return f"run {envelope.run_id}, event {envelope.seq}"


@cache
def event_types() -> dict[str, type[Event]]:
    """Every event by name, from the one list in `schemas.events`."""
    union = get_args(Event)[0]
    return {model.model_fields["type"].default: model for model in get_args(union)}
