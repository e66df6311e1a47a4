"""The options and arguments that several verbs share, each declared once."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

MAX_NAME_BYTES = 255
"""Longest name of a file or folder that Linux's file systems take."""


def place(text: str) -> Path:
    """A folder as typed. An empty text is a variable that is not set, never the current folder.

    Raises:
        typer.BadParameter: it is empty, or a name in it is longer than any can be.
    """
    if not text.strip():
        raise typer.BadParameter("is empty; for the current folder say .")
    path = Path(text)
    if any(len(os.fsencode(part)) > MAX_NAME_BYTES for part in path.parts):
        raise typer.BadParameter(f"has a name of more than {MAX_NAME_BYTES} bytes")
    return path


def _store(text: str) -> str:
    place(text)
    return text


WorkloadFile = Annotated[
    Path,
    typer.Argument(metavar="WORKLOAD", help="Primus pretrain YAML.", show_default=False),
]
ClusterFile = Annotated[
    Path,
    typer.Argument(metavar="CLUSTER", help="Target-cluster YAML.", show_default=False),
]
WorkloadIfAny = Annotated[
    Path | None,
    typer.Argument(metavar="[WORKLOAD]", help="Primus pretrain YAML.", show_default=False),
]
ClusterIfAny = Annotated[
    Path | None,
    typer.Argument(metavar="[CLUSTER]", help="Target-cluster YAML.", show_default=False),
]
ModelPath = Annotated[
    list[Path] | None,
    typer.Option(
        "--model-path",
        parser=place,
        metavar="DIR",
        help="Directory to look for model presets in, before the shipped ones; repeatable.",
        show_default=False,
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        parser=_store,
        metavar="DIR",
        help="Where runs are kept: a folder, or s3://, gs:// or az://BUCKET/FOLDER.",
        show_default="REFOLD_STORE, else ./.refold",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, nothing else.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KNOB=VALUE",
        help="Override one knob of the workload (pp=4, fp8=hybrid); repeatable.",
        show_default=False,
    ),
]
GemmBackend = Annotated[
    Literal["auto", "origami", "tile"],
    typer.Option(help="Model behind GEMM times; auto: Origami on AMD when installed, else tile."),
]
SearchMode = Annotated[
    Literal["dry", "memory-real", "full"] | None,
    typer.Option(
        "--mode",
        help="dry: everything made up; memory-real: projected memory, made-up time.",
        show_default="full",
    ),
]
MemoryRegime = Annotated[
    Literal["config", "paper"],
    typer.Option(help="Bytes per parameter: the workload's own precision, or the paper's."),
]
ScoringEngine = Annotated[
    Literal["auto", "inline", "processes", "dask", "ray"] | None,
    typer.Option(
        "--scoring",
        help="Where batches are scored; auto: in this process, or in several if it pays.",
        show_default="REFOLD_SCORING, else auto",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", min=1, help="Processes that score, if several do.", show_default="one per CPU"
    ),
]
ScoringAddress = Annotated[
    str | None,
    typer.Option(
        "--scoring-address",
        metavar="ADDRESS",
        help="A Dask scheduler (tcp://…) or Ray cluster (ray://…, HOST:PORT, auto) to score on.",
        show_default="REFOLD_SCORING_ADDRESS, else one is started",
    ),
]
RunId = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="Run id, or an unambiguous beginning of one.", show_default=False
    ),
]


def examples(*lines: str) -> str:
    r"""An `--help` epilog: the lines as they are (`\b` keeps click from re-wrapping them)."""
    return "\b\nExamples:\n" + "\n".join("  " + line for line in lines)
