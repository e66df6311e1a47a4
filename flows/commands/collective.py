"""`refold collective`: one collective, priced by every algorithm that could carry it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.options import Json, examples
from schemas.errors import UserError, shown

if TYPE_CHECKING:
    from projection.collectives import Priced
    from projection.placement import Group
    from schemas.cluster import Network
    from schemas.gpu import Achievable

EXAMPLES = examples(
    "refold collective allreduce 512MB --gpu mi355x --gpus 32",
    "refold collective alltoall 64MiB --target-cluster cluster.yaml --gpus 16 --per-node 4 --json",
)
MAX_GPUS = 2**20
MAX_BYTES = 2**60
"""No message is larger: it is more than a million GPUs hold."""
UNITS = {"": 1, "B": 1}
UNITS |= {prefix + "B": 1000**power for power, prefix in enumerate("KMG", start=1)}
UNITS |= {prefix + "IB": 1024**power for power, prefix in enumerate("KMG", start=1)}

Kind = Literal["allreduce", "allgather", "reduce_scatter", "alltoall", "sendrecv"]


def add_to(app: typer.Typer) -> None:
    """Registers the verb."""
    app.command("collective", epilog=EXAMPLES)(collective)


def collective(
    kind: Annotated[Kind, typer.Argument(metavar="KIND", help="Which collective.")],
    gpus: Annotated[
        int, typer.Option("--gpus", "--group", min=1, max=MAX_GPUS, help="Ranks in the group.")
    ],
    size: Annotated[
        str | None,
        typer.Argument(metavar="BYTES", help="Message as its API counts it: 512MB, 64MiB, 4096."),
    ] = None,
    size_option: Annotated[
        str | None, typer.Option("--bytes", metavar="BYTES", help="The message, if not said above.")
    ] = None,
    per_node: Annotated[
        int | None, typer.Option(min=1, help="Ranks per node; default: as many as fit.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="A shipped GPU (mi355x, h100, …), wired as it ships.")
    ] = None,
    target_cluster: Annotated[
        Path | None,
        typer.Option(
            "--target-cluster",
            "--cluster",
            help="Take the GPU and the network from this file instead.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Price one collective by every algorithm, fastest first."""
    from flows.terminal import print_json, print_table
    from projection.collectives import candidates

    if (size is None) == (size_option is None):
        raise UserError("say how many bytes once: refold collective allreduce 256MiB ...")
    size = size or size_option or ""
    hardware = _hardware(gpu, target_cluster)
    group = _group(hardware, gpus, per_node)
    num_bytes = parse_bytes(size)
    priced = candidates(kind, num_bytes, group, hardware.network, hardware.rates)
    if as_json:
        print_json(
            [
                {"algorithm": p.algorithm, "protocol": p.protocol, "time_ms": p.time_ms}
                for p in priced
            ]
        )
        return
    print_table(
        ("algorithm|", "protocol|", "ms>", "bytes/time GB/s>"),
        [
            (p.algorithm, p.protocol, f"{p.time_ms:.4f}", _gb_per_s(num_bytes, p.time_ms))
            for p in priced
        ],
        title=f"{kind} of {size} over {gpus} GPUs, {_spread(group)}, {hardware.rates.gpu} "
        f"({'calibrated' if hardware.rates.calibrated else 'published rates'}): "
        + _winner(priced[0]),
    )


@dataclass(frozen=True, slots=True)
class _Hardware:
    """What collectives run on, and the rates a projection of it would use."""

    network: "Network"
    rates: "Achievable"
    node_size: int
    """GPUs that share a node's fabric."""
    pod_size: int
    world: int | None
    """GPUs there are; None: as many as asked for."""


def _group(hardware: _Hardware, gpus: int, per_node: int | None) -> "Group":
    """So many ranks, node after node or `per_node` on each.

    Raises:
        UserError: the hardware has no room for them.
    """
    from projection.placement import consecutive

    node, world = hardware.node_size, hardware.world
    if per_node is not None and per_node > node:
        raise UserError(f"--per-node {per_node} is more than the {node} GPUs of a node")
    if per_node is not None and gpus % per_node:
        raise UserError(f"--gpus {gpus} is not a multiple of --per-node {per_node}")
    # Ranks that leave part of each node free lie as if nodes were that small.
    small = per_node or node
    if world is not None and (gpus > world or -(-gpus // small) > -(-world // node)):
        where = f" with {per_node} on each node" if per_node else ""
        raise UserError(f"--gpus {gpus}{where} is more than the cluster's {world} GPUs hold")
    return consecutive(gpus, small, hardware.pod_size // node * small)


def _spread(group: "Group") -> str:
    """How the ranks lie on nodes, for people."""
    if group.fewest_per_node is None:
        return f"{group.ranks_per_node} per node"
    return f"{group.fewest_per_node} to {group.ranks_per_node} per node"


def _winner(fastest: "Priced") -> str:
    """What to read off the first row."""
    if fastest.time_ms == 0:
        return "nothing is sent"
    return f"{fastest.algorithm} in {fastest.protocol} wins"


def _gb_per_s(num_bytes: int, time_ms: float) -> str:
    """Bytes over time; a group of one moves nothing, in no time."""
    return f"{num_bytes / time_ms / 1e6:,.1f}" if time_ms > 0 else "-"


def _hardware(gpu: str | None, target_cluster: Path | None) -> _Hardware:
    """The hardware named, as a projection would take it."""
    from projection.calibration import calibration_of, rates, shipped_calibration
    from projection.gemm import gemm_model
    from projection.placement import node_domain_size, whole_nodes
    from projection.profiles import gpu_profile, network_profile
    from schemas.calibration import Calibration
    from tasks.resolve import resolve_cluster

    if (gpu is None) == (target_cluster is None):
        raise UserError("say which hardware: either --gpu NAME or --target-cluster FILE")
    if target_cluster is not None:
        cluster = resolve_cluster(target_cluster).cluster
        profile, network, own = cluster.gpu, cluster.network, cluster.calibration
        # Links have no GEMM model: one that a calibration was not fitted over is no hindrance.
        gemm = own.gemm if isinstance(own, Calibration) else gemm_model(profile).name
        calibration = calibration_of(cluster, gemm)
        node, world = node_domain_size(cluster), cluster.world_size
    else:
        profile, network = gpu_profile(gpu or ""), network_profile(gpu or "")
        gemm = gemm_model(profile).name
        calibration = shipped_calibration(profile, gemm)
        node, world = network.node_size, None
    return _Hardware(
        network=network,
        rates=rates(profile, gemm, calibration),
        node_size=node,
        pod_size=whole_nodes(network.pod_size, node),
        world=world,
    )


def parse_bytes(text: str) -> int:
    """Bytes in "4096", "512MB" (10^6) or "64MiB" (2^20).

    Raises:
        UserError: it is none of these, less than one byte, or beyond all measure.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    factor = UNITS.get(match.group(2).upper()) if match else None
    if match is None or factor is None:
        raise UserError(f"{shown(text)} is not a number of bytes: write 4096, 512MB or 64MiB")
    num_bytes = float(match.group(1)) * factor
    if not 1 <= num_bytes <= MAX_BYTES:
        raise UserError(f"{shown(text)} is not between 1 and 2^60 bytes")
    return round(num_bytes)
