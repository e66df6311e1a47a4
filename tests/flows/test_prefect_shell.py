"""Whether a search runs under Prefect, and what Prefect gets to see of it."""

import os
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.prefect_shell import (
    StageFailed,
    api,
    concealed,
    environment,
    prepare_environment,
    revealed,
)
from schemas.errors import EnvironmentMissing, WorkloadError
from tests.flows.healthy import healthy_server

pytestmark = pytest.mark.whole


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in [key for key in os.environ if key.startswith("PREFECT_")]:
        monkeypatch.delenv(key)
    for key in environment(Path("home")):
        monkeypatch.setenv(key, "")  # so that monkeypatch puts back what the code sets
        monkeypatch.delenv(key)


@pytest.fixture
def listening() -> Iterator[str]:
    """An HTTP server that gives the health answer of a Prefect API, and nothing else."""
    with healthy_server() as port:
        yield f"http://127.0.0.1:{port}/api"


@pytest.fixture
def nobody() -> str:
    """The URL of a port nobody listens on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{bound.getsockname()[1]}/api"


def test_what_the_user_set_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PREFECT_HOME", "/elsewhere")
    prepare_environment(tmp_path)
    assert os.environ["PREFECT_HOME"] == "/elsewhere"
    assert os.environ["DO_NOT_TRACK"] == "1"


def test_prefects_home_is_an_absolute_path_under_the_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)
    prepare_environment(Path("store/prefect"))
    assert os.environ["PREFECT_HOME"] == str(tmp_path / "store/prefect")


def test_no_prefect_means_in_process_without_a_word(tmp_path: Path):
    said: list[str] = []
    with api(False, tmp_path, said.append) as url:
        assert url is None
    assert said == []


def test_a_configured_api_that_answers_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, listening: str
):
    said: list[str] = []
    monkeypatch.setenv("PREFECT_API_URL", listening + "/")
    with api(None, tmp_path, said.append) as url:
        assert url == listening
    assert said == [f"Prefect: running under {listening}"]


def test_credentials_in_the_url_are_never_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, listening: str
):
    said: list[str] = []
    monkeypatch.setenv("PREFECT_API_URL", listening.replace("://", "://me:hunter2-secret@"))
    with api(None, tmp_path, said.append):
        pass
    assert "hunter2" not in "".join(said)


def test_a_configured_api_that_is_down_is_said_and_done_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nobody: str
):
    said: list[str] = []
    monkeypatch.setenv("PREFECT_API_URL", nobody)
    with api(None, tmp_path, said.append) as url:
        assert url is None
    assert said == [f"Prefect: {nobody} (PREFECT_API_URL) does not answer; running in process"]


def test_a_configured_api_that_is_down_fails_when_prefect_was_asked_for_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nobody: str
):
    monkeypatch.setenv("PREFECT_API_URL", nobody)
    with (
        pytest.raises(EnvironmentMissing, match="does not answer"),
        api(True, tmp_path, lambda _: None),
    ):
        pass


def test_a_url_that_is_none_is_not_an_api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PREFECT_API_URL", "not a url")
    with api(None, tmp_path, lambda _: None) as url:
        assert url is None


def test_prefect_is_told_the_type_of_an_error_and_the_caller_all_of_it():
    error = WorkloadError("api_key: sk-planted-in-a-file", hint="do this")
    with pytest.raises(StageFailed) as told, concealed():
        raise error
    assert str(told.value) == "WorkloadError"
    with pytest.raises(WorkloadError) as shown, revealed(), concealed():
        raise error
    assert shown.value is error
    assert b"planted" not in pickle.dumps(told.value)


def test_an_interrupt_passes_through():
    with pytest.raises(KeyboardInterrupt), revealed(), concealed():
        raise KeyboardInterrupt
