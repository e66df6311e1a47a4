"""From the files a user hands in to a `Workload` and a `ResolvedCluster`."""

from tasks.resolve.workload import resolve_workload

__all__ = ["resolve_workload"]
