"""How a run begins, or begins again: its inputs, its log, and whether the two still agree."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from flows.interrupts import Shield
from flows.ledger import Ledger, Listener
from flows.requests import TuneRequest
from flows.terminal import say
from projection import PROJECTION_VERSION
from schemas.cluster import Cluster
from schemas.errors import LogError, SpecChanged, UserError
from schemas.events import RunResumed, RunStarted
from schemas.workload import Workload
from storage import Entry, EventLog, RunSummary, Store, fresh_run_id, list_runs
from storage.canonical import canonical
from tasks.inputs import Inputs, secrets_in, secrets_in_files
from tasks.resolve.environment import search_dotenv

DEFAULT_OUT_DIR = Path("tuning_runs")
UNFINISHED = ("open", "interrupted")


def refold_version() -> str:
    """The installed version; "source" when Refold runs from a checkout that is not installed."""
    try:
        return version("refold")
    except PackageNotFoundError:
        return "source"


def store_of(option: str | None) -> Store:
    """The store `--store`, REFOLD_STORE or the default names.

    Raises:
        UserError: it cannot be one.
    """
    return Store.locate(option, os.environ)


@dataclass(frozen=True, slots=True)
class Watch:
    """What surrounds a ledger: who is told of events, and what keeps signals out of an append."""

    shield: Shield
    listeners: Sequence[Listener] = ()


def start_run(store: Store, inputs: Inputs, out_dir: Path, watch: Watch) -> Ledger:
    """A new run, begun: RunStarted is on disk.

    Raises:
        LogError: it could not be.
    """
    log = EventLog.create(store, fresh_run_id(), secrets=inputs.secrets())
    ledger = Ledger(log, watch.shield, listeners=watch.listeners)
    try:
        started = RunStarted(
            workload_name=inputs.workload.name,
            cluster_name=inputs.cluster.name,
            workload_blob=ledger.put_blob(_bytes_of(inputs.workload)),
            cluster_blob=ledger.put_blob(_bytes_of(inputs.cluster)),
            input_blobs={
                path: ledger.put_blob(text.encode()) for path, text in inputs.files.items()
            },
            search=inputs.search,
            signature=inputs.signature.hashes,
            signature_parts=inputs.signature.model_dump(mode="json"),
            out_dir=str(out_dir),
            refold_version=refold_version(),
            projection_version=PROJECTION_VERSION,
            lesser_paths=inputs.lesser_paths,
            cluster_warnings=inputs.cluster_warnings,
        )
        ledger.record(Entry(started))
    except BaseException:
        log.close()
        raise
    return ledger


def inputs_of_run(store: Store, run_id: str) -> Inputs:
    """The inputs a run was started with, from its own blobs.

    Raises:
        RunNotFound, DamagedLog: it cannot be read.
    """
    log = EventLog.open(store, run_id)
    spec = log.state().spec
    environment = search_dotenv(os.environ, Path.cwd())
    return Inputs(
        workload=Workload.model_validate_json(log.get_blob(spec.workload_blob)),
        cluster=Cluster.model_validate_json(log.get_blob(spec.cluster_blob)),
        search=spec.search,
        known_secrets=secrets_in(environment) | secrets_in_files(spec.input_blobs, environment),
    )


def reopen_run(store: Store, run_id: str, inputs: Inputs, watch: Watch) -> Ledger:
    """A run, opened to be written again: its lease is held, and its spec is the one of `inputs`.

    Raises:
        RunLocked: a live process is writing it.
        SpecChanged: its scores depended on something that is different now.
    """
    log = EventLog.open(store, run_id, writing=True, secrets=inputs.secrets())
    try:
        if log.lease is not None and log.lease.took_over is not None:
            say(f"note: run {run_id} was held by {log.lease.took_over.words}, which is gone")
        state = log.state()
        if differences := spec_differences(log, state.spec, inputs):
            raise _changed(run_id, differences)
    except BaseException:
        log.close()
        raise
    return Ledger(log, watch.shield, state, watch.listeners)


def record_resumption(ledger: Ledger) -> None:
    """RunResumed is on disk, unless the run has finished: that one is left as it is."""
    if ledger.state.finished is None:
        resumed = RunResumed(refold_version=refold_version(), projection_version=PROJECTION_VERSION)
        ledger.record(Entry(resumed))


def run_to_resume(store: Store, inputs: Inputs, out_dir: Path) -> str:
    """The newest unfinished run with the spec `inputs` amount to.

    Raises:
        SpecChanged: there are unfinished runs, none with this spec; the message has the
            difference from the newest one of this out-dir, or the newest.
        UserError: there is no unfinished run, or none that can be read.
    """
    runs = list_runs(store)
    for run in runs:
        if run.problem is not None:
            say(f"warning: --resume passes over run {run.run_id}: {run.problem}")
    unfinished = [run for run in reversed(runs) if run.status in UNFINISHED]
    if not unfinished:
        raise UserError(
            f"--resume: the store {store.root} holds no unfinished run",
            hint="leave --resume out to start one; refold runs lists what there is",
        )
    different: list[tuple[RunSummary, list[str]]] = []
    for run in unfinished:
        try:
            log = EventLog.open(store, run.run_id)
            differences = spec_differences(log, log.state().spec, inputs)
        except LogError as error:
            say(f"warning: --resume passes over run {run.run_id}: {error}")
            continue
        if not differences:
            return run.run_id
        different.append((run, differences))
    if not different:
        raise UserError(
            f"--resume: no unfinished run in the store {store.root} can be read",
            hint="refold verify says what is wrong with one",
        )
    here = [pair for pair in different if pair[0].out_dir == str(out_dir)]
    run, differences = (here or different)[0]
    raise _changed(run.run_id, differences)


def out_dir_of(request: TuneRequest, inputs: Inputs) -> Path:
    """Where the artefacts of a requested search go."""
    return request.out_dir or DEFAULT_OUT_DIR / inputs.cluster.name


def spec_differences(log: EventLog, spec: RunStarted, inputs: Inputs) -> list[str]:
    """What the run of `log` was started with that `inputs` say differently, one line per value:
    "workload.baseline.mbs: 2 → 4".

    Raises:
        DamagedLog: a file the run was started with is missing or changed in the store.
    """
    for digest in spec.input_blobs.values():
        log.get_blob(digest)
    workload = Workload.model_validate_json(log.get_blob(spec.workload_blob))
    cluster = Cluster.model_validate_json(log.get_blob(spec.cluster_blob))
    found = _differences("search", _plain(spec.search), _plain(inputs.search))
    found += _workload_differences(workload, inputs.workload)
    found += _differences("cluster", _plain(cluster), _plain(inputs.cluster))
    if found:
        return found
    # The same files and the same search: what is left is Refold itself and what it runs on.
    return _differences("", spec.signature_parts, inputs.signature.model_dump(mode="json"))


def _workload_differences(before: Workload, after: Workload) -> list[str]:
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


def _changed(run_id: str, differences: list[str]) -> SpecChanged:
    shown = "; ".join(differences[:6])
    more = f"; and {len(differences) - 6} more" if len(differences) > 6 else ""
    return SpecChanged(
        f"run {run_id} was started with another spec: {shown}{more}",
        hint="start a new run (without --resume), or restore what changed",
    )


def _differences(path: str, before: Any, after: Any) -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        found = []
        for key in sorted(before.keys() | after.keys()):
            below = f"{path}.{key}" if path else key
            found += _differences(below, before.get(key), after.get(key))
        return found
    return [] if before == after else [f"{path}: {before} → {after}"]


def _plain(model: Any) -> Any:
    return model.model_dump(mode="json")


def _bytes_of(model: Any) -> bytes:
    return canonical(_plain(model)).encode()
