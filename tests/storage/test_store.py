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


@pytest.mark.parametrize("url", ["s3://bucket/x", "gs://bucket", "az://container", "file:///x"])
def test_an_object_store_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(UserError, match="stores are not available yet") as caught:
        Store.locate(url, {})
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


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
