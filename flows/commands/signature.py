"""What a score depends on, part by part, and where each part came from."""

from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.options import ClusterFile, GemmBackend, Json, ModelPath, WorkloadFile, examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.inputs import Inputs
    from tasks.signature_parts import Part

LONGEST_VALUE = 44
"""Characters of a value that are shown; `--json` has the rest."""
SECTIONS = {
    "model": "what is trained: architecture and the workload's own settings",
    "cluster": "what it is trained on: GPU, network, size, capacity and margin",
    "stack": "what prices it: software, this Refold's models, calibration",
}


def add_to(app: typer.Typer) -> None:
    """Registers the verb."""
    app.command("signature", epilog=EXAMPLES)(signature)


EXAMPLES = examples(
    "refold signature workload.yaml cluster.yaml",
    "refold signature workload.yaml cluster.yaml --detect",
    "refold signature workload.yaml cluster.yaml --json | jq .hashes",
)


def signature(
    workload: WorkloadFile,
    cluster: ClusterFile,
    model_path: ModelPath = None,
    gemm_backend: GemmBackend = "auto",
    detect: Annotated[
        bool,
        typer.Option(
            "--detect",
            help="Look for the software on this host, as if the file said it was the one.",
        ),
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="Also the parts that no file sets.")] = False,
    as_json: Json = False,
) -> None:
    """Print what a score depends on, part by part, and where each part came from."""
    from flows.terminal import print_json, say
    from tasks.inputs import resolve_pair
    from tasks.signature_parts import parts_of

    inputs = resolve_pair(
        workload, cluster, model_path or (), gemm_backend=gemm_backend, detect=detect
    )
    parts = parts_of(inputs, cluster)
    if as_json:
        print_json(_whole(inputs, parts))
        return
    for warning in inputs.warnings:
        say(f"warning: {warning}")
    print(f"{inputs.workload.name} on {inputs.cluster.name}")
    for section, digest in inputs.signature.hashes.model_dump().items():
        print(f"\n{section:<8} {digest}   {SECTIONS[section]}")
        _print_section([part for part in parts if part.section == section], every=every)
    for line in inputs.lesser_paths:
        print(f"note: {line}")


def _whole(inputs: "Inputs", parts: "Sequence[Part]") -> dict[str, Any]:
    found = inputs.signature
    return {
        "hashes": found.hashes,
        **found.model_dump(mode="json"),
        "parts": [
            {
                "section": part.section,
                "name": part.name,
                "value": part.value,
                "from": part.origin,
            }
            for part in parts
        ],
        "workload_files": inputs.workload.files,
        "lesser_paths": inputs.lesser_paths,
        "warnings": inputs.warnings,
    }


def _print_section(parts: "Sequence[Part]", *, every: bool) -> None:
    """The software as a table; the rest by where it came from."""
    from flows.terminal import wrapped

    shown = [part for part in parts if every or not part.is_default]
    if parts[0].section == "stack":
        width = 2 + max(len(_words(part.value)) for part in parts)
        for part in parts:
            label = f"  {part.name:<14}{_words(part.value):<{width}}"
            print("\n".join(wrapped(part.origin, indent=len(label), label=label)))
        return
    groups: dict[str, list[Part]] = {}
    for part in shown:
        groups.setdefault(part.origin, []).append(part)
    for origin, group in groups.items():
        for line in wrapped(f"from {origin}:", indent=2):
            print(line)
        for section, below in groupby(group, key=lambda part: part.name.rpartition(".")[0]):
            said = f"{section}: " if section else ""
            print("\n".join(wrapped(said + _listed(list(below)), indent=4)))
    if len(shown) < len(parts):
        print(f"  and {len(parts) - len(shown)} that no file sets (--all)")


def _listed(parts: "Sequence[Part]") -> str:
    """`num_nodes=4, gpus_per_node=8, …`; of `gpu.name` the last word."""
    return ", ".join(f"{part.name.rpartition('.')[2]}={_words(part.value)}" for part in parts)


def _words(value: Any) -> str:
    """A value on one line, not all of a long one; equal entries of a list in a row as their
    count."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    text = _runs(value) if isinstance(value, list) else str(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def _runs(values: "Sequence[Any]") -> str:
    runs = [(entry, len(list(same))) for entry, same in groupby(values)]
    return "[" + ", ".join(f"{n} × {_words(v)}" if n > 1 else _words(v) for v, n in runs) + "]"
