"""An S3 server that loses answers, refuses, or is not there."""

import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.errors import EnvironmentMissing, StaleWriter, StoreRefused
from schemas.events import NoteTaken
from storage import Entry, EventLog, Store, verify
from storage.backends import AlreadyStored, NotStored, SegmentStore
from storage.backends.object_client import Patience
from storage.backends.object_store import ObjectStore
from storage.backends.store_url import parse
from tests.s3_server import Fault, S3Server
from tests.storage.builders import RUN, started

pytestmark = pytest.mark.whole

SHORT = Patience(connect_s=0.3, request_s=0.3, retries=1, retry_until_s=0.5)
NOTE = Entry(NoteTaken(text="hello", author="test"))


@pytest.fixture
def backend(s3_store: str) -> ObjectStore:
    return ObjectStore(parse(s3_store), os.environ)


def impatient(name: str) -> ObjectStore:
    return ObjectStore(parse(name), os.environ, patience=SHORT)


LOST_ANSWERS = [
    Fault("PUT", "/value", answer=500, carried_out=True),
    Fault("PUT", "/value", answer=503, code="SlowDown", carried_out=True, times=2),
    Fault("PUT", "/value", answer="none", carried_out=True),
    Fault("PUT", "/value", answer="none", carried_out=True, times=2),
    Fault("PUT", "/value", answer=500),
    Fault("PUT", "/value", answer="none"),
]


@pytest.mark.parametrize("fault", LOST_ANSWERS, ids=str)
def test_b2_a_write_sent_again_meets_its_own_success(
    s3: S3Server, backend: ObjectStore, fault: Fault
) -> None:
    fault = s3.misbehave(replace(fault))
    backend.create("a/value", b"bytes")
    assert fault.times == 0, "the fault happened"
    assert backend.read("a/value") == b"bytes"


@pytest.mark.parametrize("fault", LOST_ANSWERS, ids=str)
def test_b2_a_write_sent_again_does_not_take_anothers_success_for_its_own(
    s3: S3Server, backend: ObjectStore, fault: Fault
) -> None:
    backend.create("a/value", b"bytes")
    s3.misbehave(replace(fault))
    with pytest.raises(AlreadyStored):
        backend.create("a/value", b"bytes")


def test_b2_a_write_that_met_another_under_way_is_sent_again(
    s3: S3Server, backend: ObjectStore
) -> None:
    s3.misbehave(Fault("PUT", "/value", answer=409, code="ConditionalRequestConflict"))
    backend.create("a/value", b"bytes")
    assert backend.read("a/value") == b"bytes"


def test_p3_an_append_whose_answer_was_lost_is_recorded_once(s3: S3Server, s3_store: str) -> None:
    store = Store.locate(s3_store, os.environ)
    with EventLog.create(store, RUN) as log:
        log.append([Entry(started())], 0)
        for fault in LOST_ANSWERS:
            s3.misbehave(replace(fault, part=".parquet", times=1))
            log.append([NOTE], log.next_seq)
        stale = EventLog.open(store, RUN, writing=True, exclusive=False)
        log.append([NOTE], log.next_seq)
        s3.misbehave(Fault("PUT", ".parquet", answer=500, carried_out=True))
        with pytest.raises(StaleWriter):
            stale.append([NOTE], stale.next_seq)
        log.anchor_head()
    assert len(EventLog.open(store, RUN).read()) == len(LOST_ANSWERS) + 2
    assert verify(store, RUN).segments == len(LOST_ANSWERS) + 2


def test_a_write_without_an_answer_may_be_there_and_says_so(s3: S3Server, s3_store: str) -> None:
    backend = impatient(s3_store)
    s3.misbehave(Fault("PUT", answer="none", carried_out=True, times=99))
    s3.misbehave(Fault("GET", answer="none", times=99))
    with pytest.raises(StoreRefused, match="it may have been stored all the same"):
        backend.create("a/value", b"bytes")
    s3.faults.clear()
    assert backend.read("a/value") == b"bytes"


def test_a_run_goes_on_after_a_write_that_was_refused(s3: S3Server, s3_store: str) -> None:
    store = Store(parse(s3_store), impatient(s3_store))
    with EventLog.create(store, RUN) as log:
        log.append([Entry(started())], 0)
        s3.misbehave(Fault("PUT", ".parquet", answer=500, times=99))
        with pytest.raises(StoreRefused):
            log.append([NOTE], 1)
        s3.faults.clear()
        log.append([NOTE], 1)
        assert len(log.read()) == 2


def test_a_move_cut_short_leaves_both_and_can_be_done_again(s3: S3Server, s3_store: str) -> None:
    backend = impatient(s3_store)
    backend.create("a/value", b"bytes")
    s3.misbehave(Fault("POST", "?delete", answer=500, times=99))
    with pytest.raises(StoreRefused):
        backend.move("a/value", "b/value")
    assert backend.read("a/value") == backend.read("b/value") == b"bytes"
    s3.faults.clear()
    backend.move("a/value", "b/value")
    assert backend.names("a") == []


def test_a_removal_whose_answer_was_lost_is_done_again(s3: S3Server, backend: ObjectStore) -> None:
    backend.create("a/value", b"bytes")
    s3.misbehave(Fault("POST", "?delete", answer=500, carried_out=True))
    backend.remove(["a/value"])
    assert backend.names("a") == []


def attempts(backend: SegmentStore) -> Iterator[str]:
    """What each operation is refused with."""
    operations = (
        lambda: backend.read("a/value"),
        lambda: backend.create("a/value", b""),
        lambda: backend.replace("a/value", b""),
        lambda: backend.names("a"),
        lambda: backend.folders("a"),
        lambda: backend.move("a/value", "b/value"),
        lambda: backend.remove(["a/value"]),
    )
    for operation in operations:
        with pytest.raises(StoreRefused) as caught:
            operation()
        assert caught.value.exit_code == EnvironmentMissing.exit_code
        assert caught.value.hint
        text = f"{caught.value}: {caught.value.hint}"
        assert "\n" not in text
        assert "secret" not in text
        yield text


def test_a_server_that_is_not_there_is_named(
    s3_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        for said in attempts(impatient(s3_store)):
            assert f"no connection to {url}" in said
            assert s3_store in said


def test_a_server_that_never_answers_is_given_up(
    s3_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        backend = ObjectStore(
            parse(s3_store), os.environ, patience=SHORT._replace(request_s=0.1, retries=0)
        )
        for said in attempts(backend):
            assert "no answer in time" in said


def test_a_missing_bucket_is_named_and_is_no_empty_store(s3: S3Server) -> None:
    for said in attempts(impatient("s3://nowhere/store")):
        assert "there is no bucket nowhere: make it first" in said


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (403, "InvalidAccessKeyId", "access is denied (HTTP 403 InvalidAccessKeyId)"),
        (401, "Unauthorized", "access is denied (HTTP 401 Unauthorized)"),
        (500, "InternalError", "the server answers HTTP 500 InternalError"),
        (503, "SlowDown", "the server answers HTTP 503 SlowDown"),
    ],
)
def test_a_refusing_server_is_quoted(
    s3: S3Server, s3_store: str, status: int, code: str, said: str
) -> None:
    for method in ("GET", "PUT", "POST"):
        s3.misbehave(Fault(method, answer=status, code=code, times=99))
    for text in attempts(impatient(s3_store)):
        assert said in text


def test_a_connection_that_breaks_every_time_is_said(s3: S3Server, s3_store: str) -> None:
    for method in ("GET", "PUT", "POST"):
        s3.misbehave(Fault(method, answer="none", times=999))
    for said in attempts(impatient(s3_store)):
        assert "the connection broke" in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"AWS_ENDPOINT_URL": "http://me:a-secret@127.0.0.1:1"},
            "no connection to http://127.0.0.1:1",
        ),
        ({"AWS_ENDPOINT_URL": "ftp://me:a-secret@127.0.0.1"}, "its endpoint is not a URL"),
        ({"AWS_SESSION_TOKEN": "a-secret\n"}, "AWS_SESSION_TOKEN holds a line break"),
        ({"AWS_SECRET_ACCESS_KEY": None}, "Missing SecretAccessKey"),
    ],
    ids=str,
)
def test_what_is_wrong_in_the_environment_is_said_without_its_secrets(
    s3_store: str, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str | None], said: str
) -> None:
    for name, value in changes.items():
        if value is None:
            monkeypatch.delenv(name)
        else:
            monkeypatch.setenv(name, value)
    with pytest.raises(StoreRefused) as caught:
        impatient(s3_store).names("a")
    assert said in str(caught.value)
    assert caught.value.hint
    assert "secret" not in f"{caught.value} {caught.value.hint}"


def test_a_server_without_conditional_writes_is_refused_before_the_first_event(
    s3: S3Server, s3_store: str
) -> None:
    s3.ignores_conditions = True
    with pytest.raises(StoreRefused, match="does not create an object only if there is none"):
        EventLog.create(Store.locate(s3_store, os.environ), RUN)


def test_the_secret_key_is_nowhere_in_the_store(s3: S3Server, s3_store: str) -> None:
    store = Store.locate(s3_store, os.environ)
    with EventLog.create(store, RUN) as log:
        log.append([Entry(started())], 0)
        log.anchor_head()
    held = [store.backend.read(f"heads/{RUN}.json"), store.backend.read(f"leases/{RUN}.json")]
    for value in s3.environment.values():
        assert all(value.encode() not in data for data in held)


def test_the_layout_in_the_bucket_is_that_of_a_folder(s3: S3Server, s3_store: str) -> None:
    """The keys as they are sent, not as the client would read them back."""
    store = Store.locate(s3_store, os.environ)
    with EventLog.create(store, RUN) as log:
        log.append([Entry(started())], 0)
    folder = s3_store.removeprefix("s3:/")
    assert f"PUT {folder}/runs/run_id={RUN}/events/000000000000.parquet" in s3.requests


def test_a_key_that_was_never_stored_is_not_stored(backend: ObjectStore) -> None:
    with pytest.raises(NotStored):
        backend.read("a/value")


NO_OBSTORE = """
    import os, sys
    sys.modules["obstore"] = None
    from schemas.errors import EnvironmentMissing
    from storage import Store
    try:
        Store.locate("s3://bucket/x", os.environ)
    except EnvironmentMissing as error:
        print(error.exit_code, error, error.hint)
"""


def test_without_obstore_the_command_that_installs_it_is_told(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(NO_OBSTORE)],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
    )
    assert ended.stdout.startswith("3 s3://bucket/x: stores in an object store need obstore")
    assert "pip install 'obstore>=" in ended.stdout
