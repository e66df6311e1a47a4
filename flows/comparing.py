"""Reads two runs, verified, and compares them."""

from flows.artefacts import workload_of
from flows.differences import (
    Difference,
    cluster_differences,
    search_differences,
    signature_differences,
    workload_differences,
)
from schemas.cluster import Cluster
from schemas.comparison import Comparison, Setting
from storage import EventLog, State, Store, fold_records
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
        states = fold_records(left), fold_records(right)
        said = _configuration(logs, states)
        return compare(left, right, _settings(said), _settings(_below(said, *states)))


def _configuration(
    logs: tuple[EventLog, EventLog], states: tuple[State, State]
) -> list[Difference]:
    one, other = states
    workloads = [workload_of(log, state) for log, state in zip(logs, states, strict=True)]
    clusters = [
        Cluster.model_validate_json(log.get_blob(state.spec.cluster_blob))
        for log, state in zip(logs, states, strict=True)
    ]
    return [
        *search_differences(one.spec.search, other.spec.search),
        *workload_differences(*workloads),
        *cluster_differences(*clusters),
    ]


def _below(said: list[Difference], one: State, other: State) -> list[Difference]:
    """What differs in the parts of the signature and was not said of workload or cluster."""
    paths = [difference.path for difference in said]
    told = tuple(
        f"{part}."
        for part, source in (("model", "workload."), ("cluster", "cluster."))
        if any(path.startswith(source) for path in paths)
    )
    return [
        difference
        for difference in signature_differences(
            one.spec.signature_parts, other.spec.signature_parts
        )
        if not difference.path.startswith(told) and f"cluster.{difference.path}" not in paths
    ]


def _settings(differences: list[Difference]) -> list[Setting]:
    return [Setting(path=d.path, a=d.before, b=d.after) for d in differences]
