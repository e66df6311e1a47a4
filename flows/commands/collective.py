"""`refold collective`: one collective, priced by every algorithm that could carry it."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.options import Json, examples
from schemas.errors import UserError, shown

if TYPE_CHECKING:
    from schemas.cluster import Network
    from schemas.gpu import GpuProfile

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
    from projection.placement import Group
    from projection.profiles import achievable

    if (size is None) == (size_option is None):
        raise UserError("say how many bytes once: refold collective allreduce 256MiB ...")
    size = size or size_option or ""
    profile, network, node_size = _hardware(gpu, target_cluster)
    per_node = per_node or min(gpus, node_size)
    if gpus % per_node:
        raise UserError(f"--gpus {gpus} is not a multiple of --per-node {per_node}")
    nodes = gpus // per_node
    pods = -(-nodes * node_size // max(network.pod_size, node_size))
    group = Group(size=gpus, ranks_per_node=per_node, num_nodes=nodes, num_pods=pods)
    num_bytes = parse_bytes(size)
    priced = sorted(
        candidates(kind, num_bytes, group, network, achievable(profile)), key=lambda p: p.time_ms
    )
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
        title=f"{kind} of {size} over {gpus} GPUs, {per_node} per node, {profile.name}: "
        f"{priced[0].algorithm} in {priced[0].protocol} wins",
    )


def _gb_per_s(num_bytes: int, time_ms: float) -> str:
    """Bytes over time; a group of one moves nothing, in no time."""
    return f"{num_bytes / time_ms / 1e6:,.1f}" if time_ms > 0 else "-"


def _hardware(gpu: str | None, target_cluster: Path | None) -> "tuple[GpuProfile, Network, int]":
    """The GPU, the network and the GPUs of a node."""
    from projection.profiles import gpu_profile, network_profile
    from tasks.resolve import resolve_cluster

    if (gpu is None) == (target_cluster is None):
        raise UserError("say which hardware: either --gpu NAME or --target-cluster FILE")
    if target_cluster is not None:
        cluster = resolve_cluster(target_cluster).cluster
        return cluster.gpu, cluster.network, cluster.gpus_per_node
    profile = gpu_profile(gpu or "")
    network = network_profile(gpu or "")
    return profile, network, network.node_size


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
