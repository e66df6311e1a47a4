"""Which changes of a spec leave earlier scores standing: by the list, and by asking the oracle."""

from typing import Any

import pytest

from flows.differences import (
    HARMLESS,
    Difference,
    cluster_differences,
    scores_survive,
    search_differences,
    workload_differences,
)
from projection.gemm import gemm_model
from projection.legality import LegalSpace, check, derive_axes
from projection.oracle import Oracle
from projection.signature import signature_of
from schemas.cluster import Cluster
from schemas.model import FrozenModel
from schemas.search import SearchSpec
from schemas.workload import Workload
from tasks.seed_plan import plan_seeds
from tests.builders import cluster, mixtral_8x22b
from tests.every_setting import changed_at, is_listed, leaves

pytestmark = pytest.mark.whole

WORKLOAD = mixtral_8x22b()
CLUSTER = cluster(num_nodes=4)
SEARCH = SearchSpec(gemm_backend="tile")
LABELS = ("workload.name", "workload.source", "workload.files", "workload.warnings")
"""What says whose file it was; `workload.document` too, but for what it sets."""


def of(root: str) -> FrozenModel:
    return {"search": SEARCH, "cluster": CLUSTER, "workload": WORKLOAD}[root]


def differences(root: str, changed: FrozenModel) -> list[Difference]:
    if isinstance(changed, SearchSpec):
        return search_differences(SEARCH, changed)
    if isinstance(changed, Cluster):
        return cluster_differences(CLUSTER, changed)
    assert isinstance(changed, Workload), root
    return workload_differences(WORKLOAD, changed)


ALL = [
    (root, path)
    for root in ("search", "cluster", "workload")
    for path in leaves(of(root).model_dump(mode="json"))
]


def answers(workload: Workload, cluster: Cluster, search: SearchSpec) -> Any:
    """Everything that is said of a trial, and which trials a seed plan asks about."""
    signature = signature_of(workload, cluster, gemm=gemm_model(cluster.gpu, search.gemm_backend))
    oracle = Oracle(workload, cluster, search, signature=signature.hashes)
    space = LegalSpace(workload, cluster, search)
    asked = (workload.baseline, workload.baseline.model_copy(update={"mbs": 1, "fp8": "hybrid"}))
    return (
        [oracle.project(trial).model_dump() for trial in asked],
        [check(trial, workload, cluster, search) for trial in asked],
        derive_axes(workload, cluster, search),
        space.count(),
        [candidate.config for candidate in plan_seeds(workload, cluster, search).candidates],
    )


def test_a_change_of_anything_that_is_not_listed_ends_the_scores() -> None:
    fixed = set()
    for root, path in ALL:
        name = ".".join((root, *path))
        changed = changed_at(of(root), path)
        if changed is None:
            fixed.add(name)
            continue
        found = differences(root, changed)
        if is_listed(name, LABELS) or name == "workload.document":
            assert found == [], name
            continue
        assert found, f"{name} changed unseen"
        assert all(is_listed(difference.path, (name,)) for difference in found), name
        assert scores_survive(found) == is_listed(name, HARMLESS), name
    # What has but one value, or none that fits all the others.
    bound = ("num_layers", "moe_layers", "windowed_layers", "attention")
    assert fixed <= {"search.objective", *(f"workload.architecture.{name}" for name in bound)}


def test_no_harmless_change_and_no_label_changes_an_answer_or_the_plan() -> None:
    inputs: dict[str, Any] = {"workload": WORKLOAD, "cluster": CLUSTER, "search": SEARCH}
    before = answers(**inputs)
    seen = []
    for root, path in ALL:
        name = ".".join((root, *path))
        if is_listed(name, (*HARMLESS, *LABELS)):
            changed = changed_at(inputs[root], path)
            assert changed is not None, name
            inputs[root] = changed
            seen.append(name)
    assert answers(**inputs) == before
    for listed in HARMLESS:
        assert any(is_listed(name, (listed,)) for name in seen), f"{listed} is no field"


def test_a_setting_that_nothing_projects_ends_them_too() -> None:
    def with_interval(interval: int) -> Workload:
        document = {"exp_name": "x", "modules": {"t": {"overrides": {"log_interval": interval}}}}
        return WORKLOAD.model_copy(update={"document": document})

    found = workload_differences(with_interval(1), with_interval(2))
    assert [difference.path for difference in found] == [
        "workload.modules.t.overrides.log_interval"
    ]
    assert not scores_survive(found)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (1, 2, "search.x: 1 → 2"),
        (None, "two\nlines", "search.x: None → two lines"),
        ("y" * 500, 1, f"search.x: {'y' * 79}… → 1"),
    ],
)
def test_a_difference_is_said_in_one_short_line(before: Any, after: Any, words: str) -> None:
    assert Difference("search.x", before, after).words == words


@pytest.mark.parametrize("path", ["search.budgets", "cluster.name2", "search.proposer_model"])
def test_only_what_is_listed_by_its_whole_name_is_harmless(path: str) -> None:
    assert not scores_survive([Difference(path, 1, 2)])
