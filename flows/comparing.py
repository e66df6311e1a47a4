"""Reads two runs, verified, and compares them."""

from flows.differences import Difference, all_differences, not_said
from flows.opening import inputs_of_spec
from schemas.comparison import Comparison, Setting
from storage import EventLog, Store, fold_records
from storage.collection import cycle_collection_paused
from storage.comparison import compare


def compare_runs(store: Store, a: str, b: str) -> Comparison:
    """What two runs of a store differ in.

    Raises:
        DamagedLog: one of them does not verify.
    """
    logs = EventLog.open(store, a), EventLog.open(store, b)
    with cycle_collection_paused():
        left, right = (list(log.iterate()) for log in logs)
        specs = fold_records(left).spec, fold_records(right).spec
        inputs = [inputs_of_spec(log, spec) for log, spec in zip(logs, specs, strict=True)]
        said = all_differences(*inputs)
        return compare(left, right, _settings(said), _settings(not_said(said, *specs)))


def _settings(differences: list[Difference]) -> list[Setting]:
    return [Setting(path=d.path, a=d.before, b=d.after) for d in differences]
