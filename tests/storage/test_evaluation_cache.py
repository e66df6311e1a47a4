from pathlib import Path

import pytest

from schemas.evaluation import SignatureHashes
from storage import Store
from storage.backends.local import LocalDisk
from storage.evaluation_cache import EvaluationCache, ResultIdentity, identity_of
from tests.storage.builders import evaluation, trial_number

RESULT = evaluation(trial_number(0))
IDENTITY = identity_of(RESULT)


def cache_at(root: Path) -> EvaluationCache:
    return Store.at(root).evaluations


def entry(root: Path) -> Path:
    (path,) = (root / "evaluations").rglob("*.json")
    return path


def test_a_kept_evaluation_is_found_whole(tmp_path: Path) -> None:
    assert cache_at(tmp_path).find(IDENTITY) == (None, None)
    assert cache_at(tmp_path).put(RESULT) is None
    assert cache_at(tmp_path).find(IDENTITY) == (RESULT, None)


OTHERS = {
    "trial_id": trial_number(1).trial_id,
    "signature": SignatureHashes(model="1" * 16, cluster="2" * 16, stack="9" * 16),
    "source": "dry",
    "memory_regime": "paper",
    "cap_gb": 273.6,
}


def test_p7_the_table_below_covers_every_part_of_the_identity() -> None:
    assert set(OTHERS) == set(ResultIdentity.model_fields)


@pytest.mark.parametrize("part", OTHERS)
def test_p7_a_result_is_found_only_by_all_that_could_change_it(tmp_path: Path, part: str) -> None:
    cache = cache_at(tmp_path)
    cache.put(RESULT)
    assert cache.find(IDENTITY.model_copy(update={part: OTHERS[part]})).evaluation is None


@pytest.mark.parametrize("lesser", ["dry", "memory_only", "memory_real"])
def test_p7_a_lesser_result_never_stands_for_a_simulated_one(tmp_path: Path, lesser: str) -> None:
    cache = cache_at(tmp_path)
    cache.put(evaluation(trial_number(0), source=lesser, provenance="synthetic"))
    assert cache.find(IDENTITY).evaluation is None
    cache.put(RESULT)
    assert cache.find(IDENTITY).evaluation == RESULT


def test_p8_a_hit_has_the_provenance_it_was_made_with(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    made = evaluation(trial_number(0), provenance="inferred")
    cache.put(made)
    found = cache.find(identity_of(made)).evaluation
    assert found is not None
    assert found.provenance == "inferred"


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b'{"evaluation": {}, "sha256": "0"}', None],
    ids=["empty", "torn", "foreign", "edited"],
)
def test_a_damaged_entry_is_a_miss_said_so_and_overwritten(
    tmp_path: Path, damage: bytes | None
) -> None:
    cache = cache_at(tmp_path)
    cache.put(RESULT)
    path = entry(tmp_path)
    edited = path.read_bytes().replace(b"3260.0", b"9260.0")
    assert edited != path.read_bytes()
    path.write_bytes(edited if damage is None else damage)
    found = cache.find(IDENTITY)
    assert found.evaluation is None
    assert found.warning is not None
    assert "is damaged" in found.warning
    warning = cache.put(RESULT)
    assert warning is not None
    assert "overwritten" in warning
    assert cache.find(IDENTITY) == (RESULT, None)


def test_the_entry_of_another_question_is_no_answer(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    cache.put(RESULT)
    data = entry(tmp_path).read_bytes()
    other = IDENTITY.model_copy(update={"source": "benchmark"})
    path = tmp_path / "evaluations" / other.key[:2] / f"{other.key}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    assert cache.find(other).evaluation is None


def test_the_first_result_stands_and_a_different_second_is_reported(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    cache.put(RESULT)
    assert cache.put(RESULT) is None
    warning = cache.put(evaluation(trial_number(0), tokens_per_s_per_gpu=1.0))
    assert warning is not None
    assert "the first one is kept" in warning
    assert cache.find(IDENTITY).evaluation == RESULT


def test_an_entry_is_flushed_before_put_returns(tmp_path: Path) -> None:
    import os

    flushed: list[int] = []

    def fsync(descriptor: int) -> None:
        os.fsync(descriptor)
        flushed.append(os.fstat(descriptor).st_ino)

    EvaluationCache(LocalDisk(tmp_path, fsync=fsync)).put(RESULT)
    path = entry(tmp_path)
    assert {path.stat().st_ino, path.parent.stat().st_ino} <= set(flushed)
