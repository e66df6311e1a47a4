"""What two specs of a search differ in, value by value, and whether scores survive the change."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from schemas.cluster import Cluster
from schemas.events import RunStarted
from schemas.model import FrozenModel
from schemas.search import SearchSpec
from schemas.workload import Workload
from storage import EventLog
from tasks.inputs import Inputs

HARMLESS = (
    "search.budget",
    "search.prompt_extras",
    "search.proposer",
    "search.llm",
    "cluster.name",
    "cluster.gpu_hour_price",
    "cluster.gpu_power_w",
)
"""What may change, itself or what is below it, without a verdict or a score of an earlier trial
changing with it."""
_LONGEST_VALUE = 80
"""Characters of a value that a line repeats."""


class Difference(NamedTuple):
    """One value that changed."""

    path: str
    """Where it stands: "search.budget.max_perf_calls", "workload.baseline.mbs"."""
    before: Any
    after: Any

    @property
    def words(self) -> str:
        """`search.budget.max_perf_calls: 30 → 60`."""
        return self.within(_LONGEST_VALUE)

    def within(self, longest: int) -> str:
        """`words`, with at most so many characters of a value."""
        return f"{self.path}: {_short(self.before, longest)} → {_short(self.after, longest)}"

    def is_in(self, places: Iterable[str]) -> bool:
        """Whether what changed is one of `places`, or below one."""
        return any(self.path == place or self.path.startswith(f"{place}.") for place in places)

    @property
    def setting(self) -> str:
        """The change as `refold fork --set` takes it."""
        return f"{self.path}={json.dumps(self.after)}"


def spec_differences(log: EventLog, spec: RunStarted, inputs: Inputs) -> list[Difference]:
    """What the run of `log` was started with that `inputs` say differently.

    Raises:
        DamagedLog: a file the run was started with is missing or changed in the store.
    """
    for digest in spec.input_blobs.values():
        log.get_blob(digest)
    workload = Workload.model_validate_json(log.get_blob(spec.workload_blob))
    cluster = Cluster.model_validate_json(log.get_blob(spec.cluster_blob))
    found = search_differences(spec.search, inputs.search)
    found += workload_differences(workload, inputs.workload)
    found += cluster_differences(cluster, inputs.cluster)
    if found:
        return found
    # The same files and the same search: what is left is Refold itself and what it runs on.
    return signature_differences(spec.signature_parts, inputs.signature.model_dump(mode="json"))


def all_differences(before: Inputs, after: Inputs) -> list[Difference]:
    """What differs in what was asked for: the search, the workload, the cluster."""
    return [
        *search_differences(before.search, after.search),
        *workload_differences(before.workload, after.workload),
        *cluster_differences(before.cluster, after.cluster),
    ]


def not_said(said: Sequence[Difference], one: RunStarted, other: RunStarted) -> list[Difference]:
    """What differs in the parts of the signature and was not said of workload or cluster."""
    paths = [difference.path for difference in said]
    told = tuple(
        f"{part}."
        for part, source in (("model", "workload."), ("cluster", "cluster."))
        if any(path.startswith(source) for path in paths)
    )
    return [
        difference
        for difference in signature_differences(one.signature_parts, other.signature_parts)
        if not difference.path.startswith(told) and f"cluster.{difference.path}" not in paths
    ]


def fork_differences(
    spec: RunStarted, before: Inputs, after: Inputs
) -> tuple[list[Difference], bool]:
    """What a fork differs in from the run it continues, which has `spec` and the inputs `before`;
    and whether the scores of that run stand for it."""
    differences = all_differences(before, after)
    same_signature = spec.signature == after.signature.hashes
    if scores_survive(differences) and not same_signature:
        differences += signature_differences(
            spec.signature_parts, after.signature.model_dump(mode="json")
        )
    return differences, same_signature and scores_survive(differences)


def scores_survive(differences: Iterable[Difference]) -> bool:
    """Whether what was said of earlier trials still holds after such a change."""
    return all(difference.is_in(HARMLESS) for difference in differences)


def search_differences(before: SearchSpec, after: SearchSpec) -> list[Difference]:
    """What differs in how is searched."""
    return _differences("search", _plain(before), _plain(after))


def cluster_differences(before: Cluster, after: Cluster) -> list[Difference]:
    """What differs in what is trained on."""
    return _differences("cluster", _plain(before), _plain(after))


def signature_differences(before: dict[str, Any], after: dict[str, Any]) -> list[Difference]:
    """What differs in the parts of two signatures; where a part came from moves nothing."""
    said = {"origin"}
    return _differences(
        "",
        {name: part for name, part in before.items() if name not in said},
        {name: part for name, part in after.items() if name not in said},
    )


def workload_differences(before: Workload, after: Workload) -> list[Difference]:
    """What differs in what is trained and how, first as it was understood, else as it was written.

    Where a file lies, its comments and the experiment's name change neither.
    """
    differences = _differences("workload", _job(before), _job(after))
    if differences:
        return differences
    return _differences("workload", _settings(before), _settings(after))


def _job(workload: Workload) -> dict[str, Any]:
    labels = {"name", "source", "files", "warnings", "document"}
    return workload.model_dump(mode="json", exclude=labels)


def _settings(workload: Workload) -> dict[str, Any]:
    """What the file sets, as written, for exports carry also what no projection reads."""
    modules = workload.document.get("modules")
    return {"modules": modules} if isinstance(modules, dict) else {}


def _differences(path: str, before: Any, after: Any) -> list[Difference]:
    if isinstance(before, dict) and isinstance(after, dict):
        found = []
        for key in sorted(before.keys() | after.keys()):
            below = f"{path}.{key}" if path else key
            found += _differences(below, before.get(key), after.get(key))
        return found
    return [] if before == after else [Difference(path, before, after)]


def _plain(model: FrozenModel) -> Any:
    return model.model_dump(mode="json")


def _short(value: Any, longest: int) -> str:
    """`value` on one line, not all of a long one."""
    text = " ".join(str(value).split())
    return text if len(text) <= longest else text[: longest - 1] + "…"
