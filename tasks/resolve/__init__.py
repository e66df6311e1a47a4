"""From the files a user hands in to a `Workload` and a `ResolvedCluster`.

workload.py          the workload file over its presets        → Workload
cluster.py           the target-cluster file                   → ResolvedCluster
stack.py             its software, declared or detected        → KnownStack
classification.py    many workload files                       → a table of verdicts
"""

from tasks.resolve.classification import Row, classify, render_markdown, workload_files
from tasks.resolve.cluster import ResolvedCluster, on_this_host, resolve_cluster
from tasks.resolve.environment import search_dotenv
from tasks.resolve.known_workloads import known_workload
from tasks.resolve.workload import resolve_workload

__all__ = [
    "ResolvedCluster",
    "Row",
    "classify",
    "known_workload",
    "on_this_host",
    "render_markdown",
    "resolve_cluster",
    "resolve_workload",
    "search_dotenv",
    "workload_files",
]
