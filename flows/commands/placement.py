"""`refold placement`: which groups of ranks span nodes."""

from typing import TYPE_CHECKING

import typer

from flows.options import ClusterFile, Json, ModelPath, Settings, WorkloadFile, examples
from schemas.errors import UserError

if TYPE_CHECKING:
    from projection.operations import GroupName

EXAMPLES = examples(
    "refold placement workload.yaml cluster.yaml",
    "refold placement workload.yaml cluster.yaml --set tp=8 --set pp=4 --json",
)
MEANING: "dict[GroupName, str]" = {
    "tp": "tensor parallel",
    "cp": "context parallel",
    "dp": "data parallel (with cp): dense gradients, optimizer shards",
    "pp": "pipeline",
    "etp": "tensor parallel inside experts",
    "ep": "expert parallel",
    "edp": "data parallel of experts",
}
OF_EXPERTS = ("etp", "ep", "edp")
"""Groups that a dense model does not have."""


def add_to(app: typer.Typer) -> None:
    """Registers the verb."""
    app.command("placement", epilog=EXAMPLES)(placement)


def placement(
    workload: WorkloadFile,
    cluster: ClusterFile,
    settings: Settings = None,
    model_path: ModelPath = None,
    as_json: Json = False,
) -> None:
    """Show which parallel groups span nodes and pods."""
    from flows.terminal import print_json, print_table
    from projection.degrees import placement_of
    from tasks.inputs import resolve_pair
    from tasks.settings import configured

    inputs = resolve_pair(workload, cluster, model_path or ())
    trial = configured(settings or (), inputs.workload, inputs.cluster)
    architecture = inputs.workload.architecture
    if trial.ep > 1 and not architecture.is_moe:
        raise UserError(f"ep {trial.ep}: a dense model has no experts to share out")
    groups = placement_of(trial, inputs.cluster, architecture)
    named = [name for name in MEANING if architecture.is_moe or name not in OF_EXPERTS]
    rows = [(name, *groups.group(name)[:4]) for name in named]
    if as_json:
        keys = ("size", "ranks_per_node", "num_nodes", "num_pods")
        print_json({name: dict(zip(keys, values, strict=True)) for name, *values in rows})
        return
    print_table(
        ("group", "GPUs>", "per node>", "nodes>", "pods>", "what it shares"),
        [(*row, MEANING[row[0]]) for row in rows],
        title=f"{inputs.workload.name} on {inputs.cluster.name}: the widest group of each kind",
    )
