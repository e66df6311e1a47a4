"""What a search came to, without what two runs of one search may differ in."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

from schemas.events import TrialProposed, TrialRejected, TrialScored
from storage import EventLog
from storage.reading import Record

# Names, places and times of events, the hashes that cover them, and what a summary says of
# interruptions.
_OWN = re.compile(
    r"\d{8}t\d{6}-\d{6}-\w{8}"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?"
    r"|\b[0-9a-f]{64}\b"
    r'|\bevent \d+|"(as_of_event|head_seq|seq|wall_clock_s|resumed)": ?[\d.]+'
    r'|"recovered": ?\[[^\]]*\]'
)


def decided(log: EventLog) -> dict[str, Any]:
    """Trials, budgets spent (but time) and recipe of a run, as plain values."""
    state = log.state()
    spent = state.spent
    return {
        "trials": [
            (
                number,
                trial.proposed.model_dump(mode="json"),
                trial.rejected and trial.rejected.model_dump(mode="json"),
                trial.scored and trial.scored.evaluation.model_dump(mode="json"),
            )
            for number, trial in state.trials.items()
        ],
        "spent": (spent.seeds, spent.proposals, spent.perf_calls, spent.rounds),
        "finished": state.finished and state.finished.model_dump(mode="json"),
    }


def decided_twice(records: list[Record]) -> int:
    """Trials that were proposed, or decided, more than once; and events with a number again."""
    seqs = Counter(record.envelope.seq for record in records)
    proposed = Counter(r.envelope.trial for r in records if isinstance(r.event, TrialProposed))
    verdicts = Counter(
        r.envelope.trial for r in records if isinstance(r.event, TrialScored | TrialRejected)
    )
    return sum(n - 1 for counts in (seqs, proposed, verdicts) for n in counts.values())


def artefacts(folder: Path) -> dict[str, str | None]:
    """Every file of an out-dir by its name; of pictures, which spell the run's id, only that."""
    return {
        str(path.relative_to(folder)): None
        if path.suffix == ".png"
        else _OWN.sub("…", path.read_text())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
