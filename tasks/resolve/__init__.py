"""From the files a user hands in to a `Workload` and a `ResolvedCluster`.

workload.py          the workload file over its presets        → Workload
cluster.py           the target-cluster file                   → ResolvedCluster
classification.py    many workload files                       → a table of verdicts
"""

from tasks.resolve.classification import Row, classify, render_markdown, workload_files
from tasks.resolve.cluster import ResolvedCluster, resolve_cluster
from tasks.resolve.environment import search_dotenv
from tasks.resolve.workload import resolve_workload

__all__ = [
    "ResolvedCluster",
    "Row",
    "classify",
    "render_markdown",
    "resolve_cluster",
    "resolve_workload",
    "search_dotenv",
    "workload_files",
]
