"""What a model proposed, checked one by one: a good candidate is not lost to a bad neighbour."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from projection.legality.rules.request import unknown_schedule
from schemas.errors import UserError
from schemas.trial import Candidate, TrialConfig
from tasks.settings import CountedBatch, trial_config

MOST = 8
"""Candidates of one answer that are looked at."""
_WHY = ("why", "reason", "rationale", "note")
_LONGEST = 300
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


class Refused(NamedTuple):
    """A proposal that is none: what was sent, shortened, and why."""

    sent: str
    why: str


def read_candidates(sent: Sequence[Any], rule: str) -> tuple[list[Candidate], list[Refused]]:
    """The well-formed ones of `sent` as candidates of `rule`, and why the others are not."""
    candidates: list[Candidate] = []
    refused: list[Refused] = []
    for item in sent[:MOST]:
        try:
            candidates.append(_candidate(item, rule))
        except UserError as error:
            refused.append(Refused(_shortened(item), str(error)))
    if len(sent) > MOST:
        refused.append(Refused(f"{len(sent) - MOST} more", f"at most {MOST} are looked at"))
    return candidates, refused


def read_config(values: Any) -> TrialConfig:
    """One configuration as a model spells it.

    Raises:
        UserError: it is no object, a knob or schedule does not exist, or a value is of the wrong
            kind. What this lets through has a normal form.
    """
    if not isinstance(values, Mapping):
        raise UserError(f"a candidate is an object of knobs, not {type(values).__name__}")
    known = {str(key): _plain(value) for key, value in values.items()}
    config = trial_config(known, "candidate")
    if isinstance(config, CountedBatch):
        raise UserError("give the batch as gbs, not as num_microbatches")
    if (unknown := unknown_schedule(config)) is not None:
        raise UserError(unknown)
    return config


def _candidate(item: Any, rule: str) -> Candidate:
    if not isinstance(item, Mapping):
        return Candidate(config=read_config(item), rule=rule, why="")
    knobs = dict(item)
    words = [str(knobs.pop(name)) for name in _WHY if name in knobs]
    if set(knobs) == {"config"} or set(knobs) == {"knobs"}:
        knobs = next(iter(knobs.values()))
    config = read_config(knobs)
    asked = config.model_dump(exclude_none=True)
    tag = "-".join(f"{name}{value}" for name, value in asked.items())
    return Candidate(config=config, rule=rule, why=" ".join(words)[:_LONGEST], tag=tag[:80])


def _plain(value: Any) -> Any:
    """`"4"` is 4, as people and models write numbers."""
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        if _WHOLE_NUMBER.fullmatch(text):
            return int(text)
        return text
    return value


def _shortened(item: Any) -> str:
    text = str(item)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
