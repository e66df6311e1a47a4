"""A run that was changed behind its back is named by `verify` and used by no verb."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

from flows.cli import app
from storage import Entry, EventLog
from storage.layout import blobs_prefix, events_prefix, head_key, lease_key
from tests.end_to_end.made_once import Uninterrupted
from tests.end_to_end.tampering import OF_A_SEGMENT, files_of

SEGMENTS, EVENTS_EACH = 7, 3
WHERE = {"first": 0, "middle": 3, "last": SEGMENTS - 1}

READING: dict[str, tuple[str, ...]] = {
    "show": ("show", "latest"),
    "show --json": ("show", "latest", "--json"),
    "show --events": ("show", "latest", "--events"),
    "export": ("export", "latest", "--out-dir", "out"),
    "resume": ("resume", "latest", "--out-dir", "out", "--no-prefect"),
    "fork": ("fork", "latest", "--out-dir", "out", "--no-prefect"),
    "replay": ("replay", "latest"),
    "replay --verify": ("replay", "latest", "--verify"),
    "lineage": ("lineage", "latest"),
    "sensitivity": ("sensitivity", "latest"),
    "lineage --bundle": ("lineage", "latest", "--bundle", "bundle"),
    "diff": ("diff", "latest", "latest"),
    "invalidate": ("invalidate", "latest", "0", "--why", "measured otherwise"),
}
"""Every verb that reads a run; besides `verify`, `runs` and `tune --resume`."""


@dataclass(frozen=True)
class Run:
    """An unfinished run in a store of its own, its head anchored at its last event."""

    folder: Path
    run_id: str
    tune: tuple[str, ...]

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def segment(self, position: int) -> Path:
        return sorted((self.store / events_prefix(self.run_id)).iterdir())[position]

    def files(self) -> list[tuple[Path, bytes]]:
        """All that is known of it, but for the lock."""
        lock = self.store / f"{lease_key(self.run_id)}.lock"
        return [(path, data) for path, data in files_of(self.store) if path != lock]


@pytest.fixture
def run(uninterrupted: Uninterrupted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    run_id, request = uninterrupted.run_id, uninterrupted.request
    store = tmp_path / "store"
    shutil.copytree(uninterrupted.store / blobs_prefix(run_id), store / blobs_prefix(run_id))
    with EventLog.create(store, run_id) as log:
        for first in range(0, SEGMENTS * EVENTS_EACH, EVENTS_EACH):
            some = uninterrupted.records[first : first + EVENTS_EACH]
            log.append([Entry(event, at.round, at.trial) for at, event in some], first)
        log.anchor_head()
    files = ("--workload", str(request.workload), "--target-cluster", str(request.target_cluster))
    same = ("--seed-budget", "24", "--gemm-backend", "tile", "--out-dir", "out")
    return Run(tmp_path, run_id, ("tune", *files, *same, "--no-prefect", "--seed-only", "--resume"))


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


@pytest.fixture
def refold(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    def call(*arguments: str) -> Answer:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            app([*arguments, "--store", "store"])
        assert isinstance(ended.value.code, int)
        said = capsys.readouterr()
        return Answer(ended.value.code, said.out, said.err)

    return call


Refold = Callable[..., Answer]


def is_used_by_no_verb(run: Run, refold: Refold, listed: str) -> None:
    """Whoever reads it is refused, the list shows it as damaged or as it was anchored, and nothing
    is written: not to the store, and no artefact."""
    before = run.files()
    for verb in READING.values():
        answer = refold(*verb)
        assert answer.code == 4, (verb, answer)
        assert answer.err.startswith("refold: run ") or "\nrefold: run " in answer.err
        assert "Traceback" not in answer.err
    (now,) = json.loads(refold("runs", "--json").out)
    assert now["status"] == "damaged" or [now] == json.loads(listed)
    answer = refold(*run.tune)
    assert answer.code == 2, answer
    assert f"warning: --resume passes over run {run.run_id}: " in answer.err
    assert run.files() == before
    assert not (run.folder / "out").exists()


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("tamper", OF_A_SEGMENT, ids=lambda tamper: tamper.__name__)
def test_a_changed_segment_is_named_and_used_by_no_verb(
    where: str, tamper: Callable[[Path], None], run: Run, refold: Refold
):
    listed = refold("runs", "--json").out
    assert refold("verify", "latest").code == 0
    tamper(run.segment(WHERE[where]))
    first_bad = WHERE[where] * EVENTS_EACH + OF_A_SEGMENT[tamper]
    answer = refold("verify", "latest")
    assert answer.code == 4
    assert answer.out.startswith(f"DAMAGED: run {run.run_id}, event {first_bad}: ")
    assert json.loads(refold("verify", "latest", "--json").out)["first_bad"] == first_bad
    is_used_by_no_verb(run, refold, listed)


def swap_segments(run: Run) -> None:
    one, other, spare = run.segment(2), run.segment(4), run.folder / "spare"
    one.rename(spare)
    other.rename(one)
    spare.rename(other)


def duplicate_segment(run: Run) -> None:
    shutil.copy(run.segment(2), run.segment(2).with_name(f"{7:012d}.parquet"))


def delete_tail(run: Run) -> None:
    for _ in range(2):
        run.segment(-1).unlink()


def delete_all(run: Run) -> None:
    shutil.rmtree(run.store / "runs" / f"run_id={run.run_id}")


def anchor_another_hash(run: Run) -> None:
    edit_head(run, lambda anchor: anchor["head"].update(hash="0" * 64))


def anchor_a_later_event(run: Run) -> None:
    edit_head(run, lambda anchor: anchor["head"].update(seq=30))


def edit_head(run: Run, change: Callable[..., None]) -> None:
    """By somebody who knows how to make the file look whole."""
    path = run.store / head_key(run.run_id)
    anchor = json.loads(path.read_text())
    change(anchor)
    path.write_text(json.dumps({**anchor, "sha256": None}))


def truncate_head(run: Run) -> None:
    path = run.store / head_key(run.run_id)
    path.write_bytes(path.read_bytes()[:40])


OF_A_RUN: list[tuple[Callable[[Run], None], int | None]] = [
    (swap_segments, 6),
    (duplicate_segment, 7),
    (delete_tail, 15),
    (delete_all, 0),
    (anchor_another_hash, 20),
    (anchor_a_later_event, 21),
    (truncate_head, None),
]


@pytest.mark.parametrize(
    ("tamper", "first_bad"), OF_A_RUN, ids=[tamper.__name__ for tamper, _ in OF_A_RUN]
)
def test_a_changed_folder_or_head_is_named_and_used_by_no_verb(
    tamper: Callable[[Run], None], first_bad: int | None, run: Run, refold: Refold
):
    listed = refold("runs", "--json").out
    tamper(run)
    answer = refold("verify", "latest")
    named = f", event {first_bad}: " if first_bad is not None else ": its anchored head is not"
    assert answer.code == 4
    assert answer.out.startswith(f"DAMAGED: run {run.run_id}{named}")
    is_used_by_no_verb(run, refold, listed)


def test_a_missing_head_is_warned_of_by_every_verb_that_reads_the_run(run: Run, refold: Refold):
    (run.store / head_key(run.run_id)).unlink()
    warning = "no head is anchored: a deleted tail would go unseen"
    answer = refold("verify", "latest")
    assert (answer.code, warning in answer.out) == (0, True)
    for verb in READING.values():
        shutil.rmtree(run.store / "heads")
        answer = refold(verb[0], run.run_id, *verb[2:])
        assert answer.code == 0
        assert f"warning: run {run.run_id}: {warning}" in answer.err
        (run.store / "heads").mkdir(exist_ok=True)


@pytest.mark.parametrize("change", ["edit", "delete"])
@pytest.mark.parametrize("which", ["workload_blob", "cluster_blob", "input"])
def test_a_changed_blob_is_named_and_never_read(
    which: str, change: str, run: Run, refold: Refold, uninterrupted: Uninterrupted
):
    spec = uninterrupted.state.spec
    inputs = list(spec.input_blobs.values())
    digest = inputs[0] if which == "input" else getattr(spec, which)
    blob = run.store / blobs_prefix(run.run_id) / digest
    shown = refold("show", "latest", "--json").out
    whole = blob.read_bytes()
    blob.unlink()
    if change == "edit":
        blob.write_bytes(whole.replace(b"8", b"9", 1))
    answer = refold("verify", "latest")
    assert answer.code == 4
    assert answer.out.startswith(f"DAMAGED: run {run.run_id}, event 0: refers to a bad blob")
    before = run.files()
    assert refold("show", "latest", "--json").out == shown, "it is not read, and tells nothing"
    assert refold(*READING["resume"]).code == 4
    assert refold(*run.tune).code == 2
    assert run.files() == before
    if which == "workload_blob":
        assert refold(*READING["export"]).code == 4
        assert run.files() == before
    assert not (run.folder / "out").exists()


def test_every_verb_that_reads_a_run_is_among_those_above():
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    takes_a_run = {
        name
        for name, command in commands.items()
        if {"RUN", "A"} & {parameter.metavar for parameter in command.params}
    }
    assert takes_a_run == {"verify", *(verb[0] for verb in READING.values())}
