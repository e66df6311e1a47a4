"""Where things lie in a store: keys are paths below its root, with forward slashes.

runs/run_id=<id>/events/<first seq, 12 digits>.parquet   immutable segments
runs/run_id=<id>/compacted.json                          which segments one stands for
runs/run_id=<id>/blobs/<sha256>                          large texts, by content
runs/run_id=<id>/discarded/<name>                        what recovery set aside
heads/<id>.json                                          the anchored head and a summary
leases/<id>.lock, leases/<id>.json                       who writes, and since when; in an object
                                                         store the record alone
evaluations/<first two digits>/<sha256>.json             the evaluation cache
nights/                                                  the same again, of nights instead of runs
answers/<step>/<first two digits>/<sha256>.json          what other steps answered before
"""

import re

RUNS = "runs"
HEADS = "heads"
EVALUATIONS = "evaluations"
NIGHTS = "nights"
ANSWERS = "answers"
TEMPORARY_PREFIX = ".tmp-"
"""What a writer is still writing; left behind only by one that was killed."""

_RUN_FOLDER = "run_id="
_SEGMENT = re.compile(r"(\d{12})\.parquet")
MAX_SEQ = 10**12 - 1


def run_prefix(run_id: str) -> str:
    """Folder of a run."""
    return f"{RUNS}/{_RUN_FOLDER}{run_id}"


def run_of_folder(name: str) -> str | None:
    """The run a folder below `runs/` holds; None: it is not a run's."""
    return name.removeprefix(_RUN_FOLDER) if name.startswith(_RUN_FOLDER) else None


def events_prefix(run_id: str) -> str:
    """Folder of a run's segments."""
    return f"{run_prefix(run_id)}/events"


def compaction_key(run_id: str) -> str:
    """Key of the mark that says which of a run's segments are superseded."""
    return f"{run_prefix(run_id)}/compacted.json"


def blobs_prefix(run_id: str) -> str:
    """Folder of a run's blobs."""
    return f"{run_prefix(run_id)}/blobs"


def discarded_prefix(run_id: str) -> str:
    """Folder of what recovery set aside."""
    return f"{run_prefix(run_id)}/discarded"


def segment_name(first_seq: int) -> str:
    """File name of the segment whose first event is `first_seq`."""
    return f"{first_seq:012d}.parquet"


def first_seq_of(name: str) -> int | None:
    """First sequence number of a segment's file name; None: not a segment's name."""
    match = _SEGMENT.fullmatch(name)
    return int(match.group(1)) if match else None


def head_key(run_id: str) -> str:
    """Key of a run's anchored head."""
    return f"{HEADS}/{run_id}.json"


def run_of_head(name: str) -> str | None:
    """The run whose head a file below `heads/` is; None: it is none."""
    return name.removesuffix(".json") if name.endswith(".json") else None


def lease_key(run_id: str) -> str:
    """Key of a run's lease, without suffix."""
    return f"leases/{run_id}"
