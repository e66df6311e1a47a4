"""`refold placement`: which groups of ranks span nodes."""

from typing import TYPE_CHECKING

import typer

from flows.options import ClusterFile, Json, ModelPath, Settings, WorkloadFile, examples
from schemas.errors import UserError

if TYPE_CHECKING:
    from projection.placement import Placement
    from schemas.cluster import Cluster
    from schemas.trial import NormalTrial

EXAMPLES = examples(
    "refold placement workload.yaml cluster.yaml",
    "refold placement workload.yaml cluster.yaml --set tp=8 --set pp=4 --json",
)
MEANING = {
    "tp": "tensor parallel",
    "cp": "context parallel",
    "dp": "data parallel (with cp): dense gradients, optimizer shards",
    "pp": "pipeline",
    "etp": "tensor parallel inside experts",
    "ep": "expert parallel",
    "edp": "data parallel of experts",
}


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
    from tasks.inputs import resolve_pair
    from tasks.settings import configured

    inputs = resolve_pair(workload, cluster, model_path or ())
    trial = configured(settings or (), inputs.workload, inputs.cluster)
    groups = placement_of(trial, inputs.cluster)
    rows = []
    for name in MEANING:
        group = groups.group(name)  # type: ignore[arg-type]
        rows.append((name, group.size, group.ranks_per_node, group.num_nodes, group.num_pods))
    if as_json:
        keys = ("size", "ranks_per_node", "num_nodes", "num_pods")
        print_json({name: dict(zip(keys, values, strict=True)) for name, *values in rows})
        return
    print_table(
        ("group", "GPUs>", "per node>", "nodes>", "pods>", "what it shares"),
        [(*row, MEANING[row[0]]) for row in rows],
        title=f"{inputs.workload.name} on {inputs.cluster.name}: the widest group of each kind",
    )


def placement_of(trial: "NormalTrial", cluster: "Cluster") -> "Placement":
    """The groups `trial` makes of `cluster`.

    Raises:
        UserError: its sizes do not tile the cluster.
    """
    from projection.placement import Placement

    for knob in ("tp", "cp", "pp", "ep", "etp"):
        if getattr(trial, knob) < 1:
            raise UserError(f"{knob} {getattr(trial, knob)} is not at least 1")
    world = cluster.world_size
    return Placement(
        cluster,
        tp=trial.tp,
        cp=trial.cp,
        pp=trial.pp,
        dp=world // (trial.tp * trial.cp * trial.pp),
        ep=trial.ep,
        etp=trial.etp,
        edp=world // (trial.etp * trial.ep * trial.pp),
    )
