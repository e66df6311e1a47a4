"""How a run begins, or begins again: its inputs, its log, and whether the two still agree."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from flows.differences import Difference, spec_differences
from flows.interrupts import Shield
from flows.ledger import Ledger, Listener
from flows.llm_rounds import llm_is_gone
from flows.requests import TuneRequest
from flows.terminal import say
from projection import PROJECTION_VERSION
from schemas.cluster import Cluster
from schemas.errors import LogError, NothingToResume, SpecChanged
from schemas.events import RecipeRecalled, RunResumed, RunStarted
from schemas.search import LlmPlan
from schemas.workload import Workload
from storage import Entry, EventLog, RunSummary, Store, fresh_run_id, list_runs
from storage.canonical import canonical
from tasks.changed_inputs import FROM_THE_COMMAND_LINE
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
        EnvironmentMissing: it is a URL, and what reads that is not installed.
    """
    return Store.locate(option, os.environ, say)


@dataclass(frozen=True, slots=True)
class Watch:
    """What surrounds a ledger: who is told of events, and what keeps signals out of an append."""

    shield: Shield
    listeners: Sequence[Listener] = ()


def start_run(
    store: Store,
    inputs: Inputs,
    out_dir: Path,
    watch: Watch,
    *,
    run_id: str | None = None,
    recalled: RecipeRecalled | None = None,
) -> Ledger:
    """A new run, begun: RunStarted is on disk, and with it what is `recalled`. `run_id` is its
    name; None: a fresh one.

    Raises:
        LogError: it could not be.
    """
    log = EventLog.create(store, run_id or fresh_run_id(), secrets=inputs.secrets())
    ledger = Ledger(log, watch.shield, listeners=watch.listeners)
    try:
        begun = [Entry(spec_of(log, inputs, out_dir))]
        if recalled is not None:
            begun.append(Entry(recalled))
        ledger.record(*begun)
    except BaseException:
        log.close()
        raise
    return ledger


def spec_of(log: EventLog, inputs: Inputs, out_dir: Path) -> RunStarted:
    """What a run of `inputs` depends on, its large texts stored beside the run."""
    return RunStarted(
        workload_name=inputs.workload.name,
        cluster_name=inputs.cluster.name,
        workload_blob=log.put_blob(_bytes_of(inputs.workload)),
        cluster_blob=log.put_blob(_bytes_of(inputs.cluster)),
        input_blobs={path: log.put_blob(text.encode()) for path, text in inputs.files.items()},
        search=inputs.search,
        signature=inputs.signature.hashes,
        signature_parts=inputs.signature.model_dump(mode="json"),
        out_dir=str(out_dir),
        refold_version=refold_version(),
        projection_version=PROJECTION_VERSION,
        lesser_paths=inputs.lesser_paths,
        cluster_warnings=inputs.cluster_warnings,
    )


def inputs_of_run(store: Store, run_id: str) -> Inputs:
    """The inputs a run was started with, from its own blobs.

    Raises:
        RunNotFound, DamagedLog: it cannot be read.
    """
    log = EventLog.open(store, run_id)
    return inputs_of_spec(log, log.state().spec)


def inputs_of_spec(log: EventLog, spec: RunStarted) -> Inputs:
    """The inputs `spec`, of a run of `log`'s lineage, stands for.

    Raises:
        DamagedLog: a blob is missing or changed.
    """
    environment = search_dotenv(os.environ, Path.cwd())
    workload = Workload.model_validate_json(log.get_blob(spec.workload_blob))
    return Inputs(
        workload=workload,
        cluster=Cluster.model_validate_json(log.get_blob(spec.cluster_blob)),
        search=spec.search,
        warnings=(*workload.warnings, *spec.cluster_warnings),
        files={path: log.get_blob(blob).decode() for path, blob in spec.input_blobs.items()},
        known_secrets=secrets_in(environment) | secrets_in_files(spec.input_blobs, environment),
        stack_origin=spec.signature_parts.get("origin", {}),
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
            raise _changed(store, run_id, differences)
    except BaseException:
        log.close()
        raise
    return Ledger(log, watch.shield, state, watch.listeners)


def record_resumption(ledger: Ledger, llm: LlmPlan | None = None) -> None:
    """RunResumed is on disk. A finished run is left as it is, unless a language model is to go on
    (`llm`), or the one it asked was not to be had."""
    state = ledger.state
    reopened = state.finished is not None and (llm is not None or llm_is_gone(state))
    if state.finished is not None and not reopened:
        return
    resumed = RunResumed(
        refold_version=refold_version(),
        projection_version=PROJECTION_VERSION,
        reopened=reopened,
        llm=llm,
    )
    ledger.record(Entry(resumed))


def run_to_resume(store: Store, inputs: Inputs, out_dir: Path, request: TuneRequest) -> str:
    """The newest unfinished run with the spec `inputs` amount to.

    Raises:
        SpecChanged: there are unfinished runs, none with this spec; the message has the
            difference from the newest one of this out-dir, or the newest.
        NothingToResume: there is no unfinished run, or none that can be read.
    """
    runs = list_runs(store)
    for run in runs:
        if run.problem is not None:
            say(f"warning: --resume passes over run {run.run_id}: {run.problem}")
    unfinished = [run for run in reversed(runs) if run.status in UNFINISHED]
    if not unfinished:
        raise NothingToResume(
            f"--resume: the store {store.root} holds no unfinished run",
            hint="leave --resume out to start one; refold runs lists what there is",
        )
    different: list[tuple[RunSummary, list[Difference]]] = []
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
        raise NothingToResume(
            f"--resume: no unfinished run in the store {store.root} can be read",
            hint="refold verify says what is wrong with one",
        )
    here = [pair for pair in different if pair[0].out_dir == str(out_dir)]
    run, differences = (here or different)[0]
    raise _changed(store, run.run_id, differences, _as_options(request, differences))


def _as_options(request: TuneRequest, differences: Sequence[Difference]) -> list[str]:
    """The request as `refold fork` takes it: a cluster file brings its own search, and what no file
    says is the parent's, unless it is set."""
    options: list[tuple[str, object]] = [
        ("--workload", request.workload),
        ("--target-cluster", request.target_cluster),
        *(("--model-path", folder) for folder in request.model_path),
    ]
    if request.seed_budget is not None:
        options.append(("--seed-budget", request.seed_budget))
    asked = {f"search.{name}" for name in FROM_THE_COMMAND_LINE}
    options += [("--set", change.setting) for change in differences if change.path in asked]
    return [f"{option} {shlex.quote(str(value))}" for option, value in options]


def out_dir_of(request: TuneRequest, inputs: Inputs) -> Path:
    """Where the artefacts of a requested search go."""
    return request.out_dir or DEFAULT_OUT_DIR / inputs.cluster.name


def _changed(
    store: Store, run_id: str, differences: Sequence[Difference], options: Sequence[str] = ()
) -> SpecChanged:
    """`options`: what makes the command that forks ask for what was asked of the run."""
    shown = "; ".join(difference.words for difference in differences[:6])
    more = f"; and {len(differences) - 6} more" if len(differences) > 6 else ""
    if store.root != store_of(None).root:
        options = [*options, f"--store {shlex.quote(str(store.root))}"]
    command = " ".join(("refold fork", run_id, *options))
    return SpecChanged(
        f"run {run_id} was started with another spec: {shown}{more}",
        hint=f"restore what changed; or go on with it as a run of its own: {command}",
    )


def _plain(model: Any) -> Any:
    return model.model_dump(mode="json")


def _bytes_of(model: Any) -> bytes:
    return canonical(_plain(model)).encode()
