"""Verbs about input files: are they right, and what may move."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.options import (
    ClusterFile,
    Json,
    ModelPath,
    Settings,
    WorkloadFile,
    examples,
    place,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.legality import Neighbour, Verdict
    from schemas.trial import NormalTrial
    from tasks.inputs import Inputs

NOT_RUNNABLE = 1
"""Exit code of `check` for a configuration that is illegal or does not fit."""


def add_to(app: typer.Typer) -> None:
    """Registers the verbs."""
    app.command("check", epilog=CHECK_EXAMPLES)(check)
    app.command("axes", epilog=AXES_EXAMPLES)(axes)
    app.command("workloads", epilog=WORKLOADS_EXAMPLES)(workloads)


CHECK_EXAMPLES = examples(
    "refold check workload.yaml cluster.yaml && sbatch job.sh",
    "refold check workload.yaml cluster.yaml --set tp=3 --json",
)


def check(
    workload: WorkloadFile,
    cluster: ClusterFile,
    settings: Settings = None,
    model_path: ModelPath = None,
    as_json: Json = False,
) -> None:
    """Check both files: are they right, legal, and do they fit?

    Exits 1 when it is illegal or does not fit.
    """
    from flows.terminal import print_json
    from tasks.inputs import resolve_pair
    from tasks.settings import asked_for, configured

    inputs = resolve_pair(workload, cluster, model_path or ())
    asked = asked_for(settings or (), inputs.workload, inputs.cluster)
    trial = configured(settings or (), inputs.workload, inputs.cluster)
    verdict, nearest = _judge(inputs, trial, asked)
    memory = inputs.oracle().memory(trial) if verdict.legal else None
    if as_json:
        print_json(
            {
                "legal": verdict.legal,
                "violations": verdict.violations,
                "warnings": (*inputs.warnings, *verdict.warnings),
                "fits": memory.fits if memory else None,
                "memory_per_gpu_gb": memory.memory_per_gpu_gb if memory else None,
                "cap_gb": inputs.cluster.cap_gb,
                "config": trial,
                "nearest_legal": nearest,
            }
        )
    else:
        _print_check(inputs, trial, verdict, nearest)
        if memory:
            from flows.evaluation_view import print_evaluation

            print_evaluation(memory)
    if memory is None or not memory.fits:
        raise typer.Exit(NOT_RUNNABLE)


def _judge(inputs: "Inputs", trial: "NormalTrial", asked: Any) -> "tuple[Verdict, list[Neighbour]]":
    from projection import legality

    arguments = (inputs.workload, inputs.cluster, inputs.search)
    verdict = legality.check(trial, *arguments, proposal=False)
    return verdict, [] if verdict.legal else list(legality.neighbours(asked, *arguments))


def _print_check(
    inputs: "Inputs", trial: "NormalTrial", verdict: "Verdict", nearest: "list[Neighbour]"
) -> None:
    from flows.evaluation_view import configuration_line

    cluster = inputs.cluster
    print(f"workload  {inputs.workload.name} ({inputs.workload.source})")
    print(f"cluster   {cluster.name}: {cluster.world_size} × {cluster.gpu.name}")
    for warning in (*inputs.warnings, *verdict.warnings):
        print(f"warning: {warning}")
    if verdict.legal:
        return
    print(f"ILLEGAL   {configuration_line(trial.model_dump())}")
    for violation in verdict.violations:
        print(f"  {violation.code}: {violation.reason}")
    for neighbour in nearest:
        changes = ", ".join(
            f"{knob} {before} → {after}" for knob, (before, after) in neighbour.changed.items()
        )
        print(f"  nearest legal: {changes}")


AXES_EXAMPLES = examples(
    "refold axes workload.yaml cluster.yaml",
    "refold axes workload.yaml cluster.yaml --json | jq '.axes[].values'",
)


def axes(
    workload: WorkloadFile,
    cluster: ClusterFile,
    model_path: ModelPath = None,
    why: Annotated[
        bool, typer.Option("--why", help="Say why each absent neighbouring value is illegal.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the legal values of every knob."""
    from flows.terminal import print_json, print_table
    from projection.legality import derive_axes
    from tasks.inputs import resolve_pair

    inputs = resolve_pair(workload, cluster, model_path or ())
    legal = derive_axes(inputs.workload, inputs.cluster, inputs.search)
    if as_json:
        print_json(legal)
        return
    print_table(
        ("knob|", "legal values", "baseline|", "pinned|"),
        [
            (axis.name, _values(axis.values), str(axis.baseline), "pinned" if axis.pinned else "")
            for axis in legal.axes
        ],
        title=f"{inputs.workload.name} on {inputs.cluster.name}",
    )
    print_table(
        ("vpp", "schedules"),
        [(vpp, " ".join(names)) for vpp, names in sorted(legal.schedules_by_vpp.items())],
    )
    for axis in legal.axes:
        if axis.pinned_by:
            print(f"{axis.name} is pinned by {axis.pinned_by}")
    for axis in legal.axes if why else ():
        for absent in axis.absent:
            print(f"{axis.name} {absent.value}: {absent.violation.reason}")


def _values(values: "Sequence[object]") -> str:
    """The values in words; a long run of integers as its ends."""
    numbers = [value for value in values if type(value) is int]
    if len(numbers) > 8 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} … {numbers[-1]}"
    return " ".join(str(value) for value in values)


WORKLOADS_EXAMPLES = examples(
    "refold workloads examples/workloads",
    "refold workloads ~/Primus/examples/megatron/configs/MI355X --json",
)


def workloads(
    directory: Annotated[
        Path, typer.Argument(parser=place, metavar="DIR", help="Folder of workload files.")
    ],
    model_path: ModelPath = None,
    as_json: Json = False,
) -> None:
    """Resolve every file of a folder: billions, or why not."""
    from flows.terminal import print_json, print_table
    from tasks.survey_workloads import survey_workloads

    found = survey_workloads(directory, tuple(model_path or ()))
    if as_json:
        print_json([entry.as_dict() for entry in found])
        return
    print_table(
        ("file", "billions>", "active>", "verdict"),
        [
            (entry.file, _billions(entry.parameters), _billions(entry.active), entry.verdict)
            for entry in found
        ],
    )
    resolved = sum(entry.parameters is not None for entry in found)
    print(f"{len(found)} files: {resolved} resolved, {len(found) - resolved} refused")


def _billions(parameters: float | None) -> str:
    return "-" if parameters is None else f"{parameters / 1e9:,.2f}"
