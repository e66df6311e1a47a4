"""Two searches in one store that differ in one thing: which steps are taken again, and which are
answered from what is known. One case per row of the table in docs/caching.md."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from flows.replaying import verify_replay
from flows.requests import TuneRequest
from flows.tune import tune
from projection.oracle import Oracle
from schemas.events import TrialScored
from storage import EventLog, RunSummary, Store, list_runs
from storage.recipes import KnownRecipes
from tasks import kept_steps
from tasks.inputs import resolve_pair
from tasks.recall import question_of
from tasks.resolve import known_workloads
from tests.end_to_end.cutting import but_export
from tests.end_to_end.files import write_inputs
from tests.end_to_end.searches import request_in

CALIBRATION = Path(__file__).resolve().parents[2] / "projection/calibrations/fitted"
SEEDS = 4


class Asked(NamedTuple):
    """What a search asked anew, by step, and which of its trials it scored or looked up."""

    steps: Counter[str]
    scored: set[str]
    looked_up: set[str]


Tuned = Callable[..., Asked]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("asked")


def written(
    folder: Path,
    overrides: dict[str, Any] | None = None,
    sections: dict[str, Any] | None = None,
    **request: Any,
) -> TuneRequest:
    """A search whose files are written, with several seeds that fit, and those alone."""
    asked = request_in(folder, **{"seed_budget": SEEDS, "recall": False} | request)
    settings = {"micro_batch_size": 1, **(overrides or {})}
    write_inputs(folder, overrides=settings, **(sections or {}))
    return asked


@pytest.fixture
def tuned(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Tuned:
    """Runs a search of these files in the one store, and counts what it asks."""
    steps: Counter[str] = Counter()

    def count(module: Any, name: str, step: str) -> None:
        real = getattr(module, name)

        def counting(*args: Any, **kwargs: Any) -> Any:
            steps[step] += 1
            return real(*args, **kwargs)

        monkeypatch.setattr(module, name, counting)

    count(known_workloads, "effective_settings", "resolve")
    count(kept_steps, "derive_axes", "derive_axes")
    count(kept_steps, "plan_seeds", "seed_batch")
    count(Oracle, "memory", "memory_filter")

    def run(
        overrides: dict[str, Any] | None = None,
        sections: dict[str, Any] | None = None,
        **request: Any,
    ) -> Asked:
        steps.clear()
        run_id = tune(written(folder, overrides, sections, **request), stage=but_export)
        log = EventLog.open(folder / "store", run_id)
        scores = [r.event for r in log.iterate() if isinstance(r.event, TrialScored)]
        return Asked(
            Counter(steps),
            {score.trial_id for score in scores if not score.from_cache},
            {score.trial_id for score in scores if score.from_cache},
        )

    return run


@pytest.fixture
def base(tuned: Tuned) -> set[str]:
    """The trials of the search that all others are compared with; it has been run."""
    asked = tuned()
    found = asked.scored | asked.looked_up
    assert len(found) > 1
    return found


def target(**settings: Any) -> dict[str, Any]:
    return {"sections": {"target_cluster": settings}}


def optimization(**settings: Any) -> dict[str, Any]:
    return {"sections": {"optimization": settings}}


def recipe_is_known(folder: Path, changed: dict[str, Any], earlier: Sequence[RunSummary]) -> bool:
    """Whether the recipe cache had an answer for a search with this change, of `earlier` runs."""
    request = written(folder, **changed)
    inputs = resolve_pair(
        request.workload,
        request.target_cluster,
        mode=request.mode,
        gemm_backend=request.gemm_backend,
        memory_regime=request.memory_regime,
    )
    recipes = KnownRecipes(Store.at(folder / "store"), question_of(inputs), earlier)
    return any(True for _ in recipes)


NOTHING, SCORE = frozenset[str](), frozenset({"score"})
PLAN = frozenset({"derive_axes", "seed_batch"})
ROWS: dict[str, tuple[dict[str, Any], frozenset[str]]] = {
    "nothing": ({}, NOTHING),
    "ROCm": (target(stack={"rocm": "7.0.0"}), SCORE),
    "hipBLASLt": (target(stack={"hipblaslt": "1.0.0"}), SCORE),
    "NCCL": (target(stack={"nccl": "2.23.4"}), SCORE),
    "calibration file": (target(calibration="own.yaml"), SCORE),
    "GPU clock": (target(gpu_clock_mhz=2000), SCORE),
    "margin": (optimization(memory_safety_margin=0.05), SCORE),
    "node count": (target(num_nodes=8), PLAN | SCORE),
    "sequence length": ({"overrides": {"seq_length": 4096}}, PLAN | SCORE | {"resolve"}),
    "memory regime": ({"memory_regime": "paper"}, SCORE),
    "mode": ({"mode": "memory-real"}, SCORE),
    "axes": (optimization(axes={"fp8": False}), PLAN),
    "baseline": ({"overrides": {"micro_batch_size": 2}}, PLAN | {"resolve"}),
    "budget": (optimization(budget={"max_perf_calls": 50}), NOTHING),
    "names and prices": (target(name="other", gpu_hour_price=2.0), NOTHING),
}


@pytest.mark.parametrize("row", ROWS)
def test_one_change_has_exactly_its_steps_taken_again(
    row: str, base: set[str], tuned: Tuned, folder: Path
) -> None:
    fitted = yaml.safe_load((CALIBRATION / "mi355x.tile.yaml").read_text())
    fitted["factors"]["gemm_bf16"]["value"] = fitted["factors"]["gemm_bf16"]["low"]
    (folder / "own.yaml").write_text(yaml.safe_dump(fitted))
    changed, again = ROWS[row]
    earlier = list_runs(folder / "store")
    asked = tuned(**changed)
    assert recipe_is_known(folder, changed, earlier) == ("score" not in again)
    assert {step for step, n in asked.steps.items() if n} == (again - SCORE) | {"memory_filter"}
    assert all(asked.steps[step] == 1 for step in again - SCORE)
    assert asked.scored | asked.looked_up
    if "score" in again:
        assert not asked.looked_up
    else:  # another baseline may have none of the first one's trials
        assert asked.looked_up == (asked.scored | asked.looked_up) & base
        assert asked.looked_up or row == "baseline"


def test_a_larger_budget_scores_only_what_it_adds(base: set[str], tuned: Tuned) -> None:
    more = tuned(seed_budget=SEEDS + 8)
    assert more.looked_up == base
    assert more.scored
    assert more.steps.keys() == {"memory_filter"}


def test_a_variable_a_workload_names_has_it_resolved_again(
    base: set[str], tuned: Tuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIMUS_TEAM", "another")
    asked = tuned()
    assert asked.steps.keys() == {"resolve", "memory_filter"}
    assert asked.looked_up == base


def test_a_search_that_looked_everything_up_says_what_one_that_asked_says(
    base: set[str], tuned: Tuned, folder: Path, tmp_path: Path
) -> None:
    tuned()
    store = Store.at(folder / "store")
    known = store.run_ids()[-1]
    assert verify_replay(store, known).identical  # which asks every step anew
    other = tune(written(folder, store=str(tmp_path / "store")), stage=but_export)
    payloads = [
        [
            record.event.model_dump(exclude={"from_cache"})
            for record in EventLog.open(root, run_id).iterate()
        ]
        for root, run_id in ((folder / "store", known), (tmp_path / "store", other))
    ]
    assert payloads[0] == payloads[1]


@pytest.mark.parametrize("damage", [b"", b"{", b'{"value": {}}'])
def test_a_damaged_answer_is_asked_again_and_mended(
    base: set[str], tuned: Tuned, folder: Path, damage: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = sorted((folder / "store/answers/derive_axes").rglob("*.json"))
    whole = [path.read_bytes() for path in kept]
    for path in kept:
        path.write_bytes(damage)
    capsys.readouterr()
    assert tuned().steps.keys() == {"derive_axes", "memory_filter"}
    assert "warning: cached answer answers/derive_axes/" in capsys.readouterr().err
    assert sum(path.read_bytes() in whole for path in kept) == 1
    assert tuned().steps.keys() == {"memory_filter"}
