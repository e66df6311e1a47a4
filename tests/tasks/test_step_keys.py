"""What each step depends on: every setting is changed, and either a step's key says so or its
answer is the same to the last bit."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from projection.legality import derive_axes
from projection.oracle import Oracle
from schemas.errors import RefoldError
from schemas.model import FrozenModel
from schemas.search import SearchSpec
from tasks.inputs import Inputs
from tasks.seed_plan import plan_seeds
from tasks.step_keys import PARTS, STEPS, key_of_step, score_identity
from tests.builders import cluster, small_moe
from tests.every_setting import changed_at, is_listed, leaves

BASE = Inputs(small_moe(), cluster(2), SearchSpec(gemm_backend="tile"))
LABELS = tuple(f"workload.{name}" for name in ("name", "source", "files", "document", "warnings"))
HOW_IS_SEARCHED = tuple(
    f"search.{name}"
    for name in (
        *("objective", "profiling_mode", "budget", "axes", "pinned", "max_gbs", "prompt_extras"),
        *("proposer", "llm"),
    )
)
MOVES_NO_SCORE = (
    *LABELS,
    *HOW_IS_SEARCHED,
    "workload.trainer",
    "workload.baseline",
    "workload.architecture.name",
    "cluster.name",
    "cluster.gpu.sources",
    "cluster.gpu_hour_price",
    "cluster.gpu_power_w",
)
"""All that a score of a given trial does not depend on."""
SOFTWARE = ("cluster.stack", "cluster.calibration")
UNTOUCHED = "search.gemm_backend"
"""What another backend is depends on what is installed here; its model is part of the stack."""


def roots() -> dict[str, FrozenModel]:
    return {"workload": BASE.workload, "cluster": BASE.cluster, "search": BASE.search}


@cache
def changes() -> tuple[tuple[str, str, tuple[str, ...], Inputs], ...]:
    """Every setting that can have another value: its name, root, path, and the inputs with it."""
    found = []
    for root, model in roots().items():
        for path in leaves(model.model_dump(mode="json")):
            name = ".".join((root, *path))
            changed = None if name == UNTOUCHED else changed_at(model, path)
            if changed is not None:
                found.append((name, root, path, replace(BASE, **{root: changed})))
    return tuple(found)


def key(step: str, inputs: Inputs) -> str | None:
    """None: there is no such job, as where no rates of its GPU ship."""
    try:
        return key_of_step(step, inputs)
    except RefoldError:
        return None


def unseen(step: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """The settings whose change leaves the key of a step as it was."""
    before = key_of_step(step, BASE)
    return [(name, root, path) for name, root, path, now in changes() if key(step, now) == before]


def all_changed(settings: list[tuple[str, str, tuple[str, ...]]]) -> Inputs:
    """The base with all of these settings at another value at once."""
    models = roots()
    for _, root, path in settings:
        models[root] = changed_at(models[root], path) or models[root]
    return replace(BASE, **models)  # type: ignore[arg-type]


def trials() -> Iterator[Any]:
    base = BASE.workload.baseline
    yield base
    yield base.model_copy(update={"mbs": 1, "ep": 2})
    yield base.model_copy(update={"recompute_granularity": "full", "recompute_num_layers": 1})


def oracle(inputs: Inputs) -> Oracle:
    return Oracle(inputs.workload, inputs.cluster, inputs.search, signature=BASE.signature.hashes)


def test_most_settings_can_be_changed() -> None:
    names = {name for name, *_ in changes()}
    assert len(names) > 150
    assert {"cluster.stack.rocm", "cluster.stack.nccl", "workload.seq_length"} <= names


def test_a_score_is_kept_under_everything_that_could_move_it() -> None:
    neutral = unseen("score")
    assert {name for name, *_ in neutral} == {
        name for name, *_ in changes() if is_listed(name, MOVES_NO_SCORE)
    }
    now = all_changed(neutral)
    for trial in trials():
        assert score_identity(now, trial) == score_identity(BASE, trial)
        assert oracle(now).project(trial) == oracle(BASE).project(trial)
        assert oracle(BASE).project(trial).legal


def test_the_identity_of_a_score_changes_with_its_key() -> None:
    trial = BASE.workload.baseline
    before = score_identity(BASE, trial)
    for name, _, _, now in changes():
        if key("score", now) is not None:
            same = score_identity(now, trial) == before
            assert same == is_listed(name, MOVES_NO_SCORE), name


def test_a_memory_verdict_depends_on_no_more_than_a_score() -> None:
    neutral = unseen("memory_filter")
    assert neutral == unseen("score")
    now = all_changed(neutral)
    for trial in trials():
        assert oracle(now).memory(trial) == oracle(BASE).memory(trial)


def test_software_moves_the_memory_of_no_pipeline_that_has_one_order() -> None:
    software = [each[:3] for each in changes() if is_listed(each[0], SOFTWARE)]
    assert len(software) > 5
    now = all_changed(software)
    said_of_time = {"provenance", "warnings"}
    for trial in trials():
        before, after = oracle(BASE).memory(trial), oracle(now).memory(trial)
        assert after.model_dump(exclude=said_of_time) == before.model_dump(exclude=said_of_time)


@pytest.mark.parametrize("step", ["derive_axes", "seed_batch"])
def test_what_the_key_of_a_plan_leaves_out_moves_no_plan(step: str) -> None:
    neutral = unseen(step)
    names = {name for name, *_ in neutral}
    assert {"cluster.stack.rocm", "cluster.memory_safety_margin", "cluster.name"} <= names
    assert {"cluster.gpu.clock_mhz", "cluster.network.pod_bw", "search.mode"} <= names
    seen = {name for name, *_ in changes()} - names
    assert {"cluster.num_nodes", "search.axes.fp8", "workload.seq_length"} <= seen
    assert any(name.startswith("workload.baseline.") for name in seen)
    now = all_changed(neutral)
    plans = {"derive_axes": derive_axes, "seed_batch": plan_seeds}
    ask: Any = plans[step]
    assert ask(now.workload, now.cluster, now.search) == ask(
        BASE.workload, BASE.cluster, BASE.search
    )


def test_the_parts_of_steps_are_all_defined() -> None:
    of_a_trial_or_a_file = {"trial", "files", "variables"}
    used = {part for step in STEPS for part in step.depends_on}
    assert used == PARTS.keys() | of_a_trial_or_a_file


def test_the_table_in_the_docs_is_the_list_in_the_code() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/caching.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([\w, ]+) \| ([\w ]+?) \|", page, flags=re.M)
    assert [(step, tuple(parts.split(", ")), kept) for step, parts, kept in rows] == list(STEPS)
    defined = set(re.findall(r"^\| ([\w]+) \| ", page, flags=re.M))
    assert defined >= {part for step in STEPS for part in step.depends_on}
