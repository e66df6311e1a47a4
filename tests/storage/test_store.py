from pathlib import Path

import pytest

from schemas.errors import RunNotFound, UserError
from storage import Entry, EventLog, Store
from tests.storage.builders import RUN, started


def test_the_option_beats_the_environment_beats_the_default() -> None:
    env = {"REFOLD_STORE": "/env"}
    assert Store.locate("/option", env).root == Path("/option")
    assert Store.locate(None, env).root == Path("/env")
    assert Store.locate(None, {}).root == Path(".refold")


def test_a_url_names_an_object_store_and_nothing_is_made(tmp_path: Path) -> None:
    store = Store.locate("s3://bucket/team/refold", {})
    assert str(store.root) == "s3://bucket/team/refold"
    assert list(tmp_path.iterdir()) == []


def test_local_files_go_to_the_store_or_to_the_users_cache(tmp_path: Path) -> None:
    remote = Store.locate("s3://bucket/x", {})
    assert Store.at(tmp_path).local_folder({"XDG_CACHE_HOME": "/cache"}) == tmp_path
    assert remote.local_folder({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/refold")
    assert remote.local_folder({}) == Path.home() / ".cache" / "refold"


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="is a file"):
        Store.locate(str(tmp_path / "file"), {})


def test_a_missing_run_names_the_nearest(tmp_path: Path) -> None:
    with EventLog.create(tmp_path, RUN) as log:
        log.append([Entry(started())], 0)
    store = Store.at(tmp_path)
    with pytest.raises(RunNotFound, match="no run") as caught:
        store.find_run(RUN.replace("890123", "890124"))
    assert caught.value.hint == f"did you mean {RUN}?"
    with pytest.raises(RunNotFound) as caught:
        store.find_run("nothing like it")
    assert caught.value.hint == "`refold runs` lists them"


def test_an_ambiguous_name_is_refused(tmp_path: Path) -> None:
    for name in ("20260304t000000-000000-aaaaaaaa", "20260304t000000-000000-bbbbbbbb"):
        with EventLog.create(tmp_path, name) as log:
            log.append([Entry(started())], 0)
    with pytest.raises(RunNotFound, match="names 2 runs"):
        Store.at(tmp_path).find_run("20260304")
    with pytest.raises(RunNotFound, match="no run ''"):
        Store.at(tmp_path).find_run("")


def test_a_store_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(Exception, match="cannot be made"):
        EventLog.create(tmp_path / "file" / "store", RUN)
