"""Notes that name a trial."""

import re

from schemas.lineage import Mention
from storage.state import Note, State, Trial


def mentions_of(trial: Trial, state: State) -> tuple[Mention, ...]:
    """Notes of the trial itself, and those whose text names it: `#7`, `trial 7`, its tag or id."""
    names = _names(trial)
    return tuple(
        Mention(at=note.at, author=note.author, round=note.round, text=note.text)
        for note in state.notes
        if note.trial == trial.number or _says(note, names)
    )


def _names(trial: Trial) -> "re.Pattern[str]":
    spelled = [rf"#{trial.number}", rf"trial #?{trial.number}", re.escape(trial.proposed.trial_id)]
    if trial.proposed.tag:
        spelled.append(re.escape(trial.proposed.tag))
    return re.compile(rf"(?<![\w-])(?:{'|'.join(spelled)})(?![\w-])", re.IGNORECASE)


def _says(note: Note, names: "re.Pattern[str]") -> bool:
    return names.search(note.text) is not None
