"""What becomes of many workload files: a table of parameters and verdicts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from projection.parameters import ModelSize, model_size
from schemas.errors import UnsupportedModel, UserError
from tasks.resolve.effective import effective_settings
from tasks.resolve.workload import architecture_from, resolve_workload


@dataclass(frozen=True, slots=True)
class Row:
    """One workload file. Parameters in units of 10^9, without multi-token prediction.

    A file can be refused as a workload and still have an architecture, so a row may have both.
    """

    file: str
    parameters_b: float | None
    active_b: float | None
    verdict: str
    """"resolved", "unsupported" or "refused"."""
    reason: str = ""
    warnings: tuple[str, ...] = ()


def classify(
    paths: Iterable[Path],
    *,
    model_path: Sequence[Path] = (),
    env: Mapping[str, str] | None = None,
) -> list[Row]:
    """One row per file, in the order given; a refusal is a row, never an exception.

    A file is called by its last two path parts, so that tables compare across machines.
    """
    return [_row(Path(path), model_path, env) for path in paths]


def workload_files(folder: Path) -> list[Path]:
    """The YAML files under `folder`, sorted by path."""
    found = [path for path in folder.rglob("*") if path.suffix in {".yaml", ".yml"}]
    return sorted(path for path in found if path.is_file())


def _row(path: Path, model_path: Sequence[Path], env: Mapping[str, str] | None) -> Row:
    file = "/".join(path.parts[-2:])
    size: ModelSize | None = None
    warnings: tuple[str, ...] = ()
    verdict, reason = "resolved", ""
    try:
        resolved = effective_settings(path, model_path=model_path, env=env)
        size = model_size(architecture_from(resolved))
        warnings = resolve_workload(path, model_path=model_path, env=env).warnings
    except UserError as error:
        verdict = "unsupported" if isinstance(error, UnsupportedModel) else "refused"
        reason = _without_folders(str(error), path, model_path)
    return Row(
        file=file,
        parameters_b=size.total / 1e9 if size else None,
        active_b=size.active / 1e9 if size else None,
        verdict=verdict,
        reason=reason,
        warnings=warnings,
    )


def _without_folders(message: str, path: Path, model_path: Sequence[Path]) -> str:
    """`message` with the workload and the presets called by name, the same on every machine."""
    message = message.replace(str(path), path.name)
    for folder in model_path:
        message = message.replace(f"{folder}/", "")
    return message


def render_markdown(rows: Iterable[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| file | parameters, 10⁹ | active, 10⁹ | verdict |",
        "|---|---:|---:|---|",
    ]
    for row in rows:
        verdict = row.verdict if not row.reason else f"{row.verdict}: {row.reason}"
        cells = (row.file, _number(row.parameters_b), _number(row.active_b), verdict)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
