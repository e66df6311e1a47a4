"""The event log of a run, the state folded from it, and the read models drawn from the state."""

from storage.exports import write_exports
from storage.folding import fold, fold_records
from storage.log import Entry, EventLog
from storage.run_ids import fresh_run_id
from storage.runs import list_runs
from storage.state import State
from storage.store import Store
from storage.summary import RunSummary
from storage.verify import Report, verify

__all__ = [
    "Entry",
    "EventLog",
    "Report",
    "RunSummary",
    "State",
    "Store",
    "fold",
    "fold_records",
    "fresh_run_id",
    "list_runs",
    "verify",
    "write_exports",
]
