"""A table of workload files: what each one trains, or why it cannot be used."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from projection.parameters import model_size
from schemas.errors import RefoldError, UserError
from tasks.resolve import resolve_workload


@dataclass(frozen=True, slots=True)
class SurveyedWorkload:
    """One file; parameter counts are None when it was refused."""

    file: str
    """Relative to the surveyed folder."""
    parameters: int | None
    active: int | None
    """Parameters a token passes through."""
    verdict: str

    def as_dict(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)


def survey_workloads(directory: Path, model_path: Sequence[Path]) -> list[SurveyedWorkload]:
    """Every YAML file below `directory`, by path.

    Raises:
        UserError: it is not a folder, or holds no YAML file.
    """
    if not directory.is_dir():
        raise UserError(f"{directory} is not a folder")
    files = sorted(path for path in directory.rglob("*") if path.suffix in (".yaml", ".yml"))
    if not files:
        raise UserError(f"no YAML file below {directory}")
    return [_surveyed(path, directory, model_path) for path in files]


def _surveyed(path: Path, directory: Path, model_path: Sequence[Path]) -> SurveyedWorkload:
    name = str(path.relative_to(directory))
    try:
        workload = resolve_workload(path, model_path=model_path)
    except RefoldError as error:
        return SurveyedWorkload(name, None, None, f"refused: {error}")
    a = workload.architecture
    size = model_size(a)
    kind = f"MoE, {a.num_experts} experts, top {a.moe_router_topk}" if a.is_moe else "dense"
    return SurveyedWorkload(name, size.total, size.active, f"{kind}, {a.num_layers} layers")
