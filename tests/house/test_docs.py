"""The reference pages name what there is, and nothing else."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from flows.cli import app
from schemas.cluster import Network
from schemas.cluster_file import Agent, Optimization, TargetCluster
from schemas.comparison import Comparison
from schemas.evaluation import Evaluation
from schemas.gpu import GpuProfile
from schemas.lineage import Lineage, TrialStory
from schemas.model import FrozenModel
from schemas.night import TargetDecided
from schemas.search import AxisToggles, BenchmarkHost, Budget, LlmSettings
from schemas.targets import TargetEntry, TargetSettings

DOCS = Path(__file__).resolve().parents[2] / "docs"
MODEL_OF_SECTION: dict[str, type[BaseModel]] = {
    "target_cluster": TargetCluster,
    "available_for_benchmark": BenchmarkHost,
    "optimization": Optimization,
    "optimization.budget": Budget,
    "optimization.axes": AxisToggles,
    "Hardware YAML": Network,
    "GPU profile YAML": GpuProfile,
    "Evaluation: project --json": Evaluation,
    "Lineage: lineage --json": Lineage,
    "Story": TrialStory,
    "Comparison: diff --json": Comparison,
}


def rows(section: str) -> dict[str, str]:
    """First column → second column of the table in a section of docs/formats.md."""
    text = (DOCS / "formats.md").read_text()
    body = re.split(rf"^#+ {re.escape(section)}$", text, flags=re.M)[1]
    body = re.split(r"^#+ ", body, flags=re.M)[0]
    return dict(re.findall(r"^\| `([\w.]+)` \| (.*?) ?\|", body, flags=re.M))


@pytest.mark.parametrize("section", MODEL_OF_SECTION)
def test_table_names_every_field(section: str) -> None:
    assert set(rows(section)) == set(MODEL_OF_SECTION[section].model_fields)


def test_table_of_the_agent_names_every_field() -> None:
    fields = {*Agent.model_fields, *(f"llm.{name}" for name in LlmSettings.model_fields)} - {"llm"}
    assert set(rows("agent")) == fields


@pytest.mark.parametrize("section", ["optimization.budget", "optimization.axes"])
def test_table_states_the_defaults(section: str) -> None:
    for name, field in MODEL_OF_SECTION[section].model_fields.items():
        words = {None: "null", True: "true", False: "false"}
        is_word = field.default is None or isinstance(field.default, bool)
        stated = words[field.default] if is_word else str(field.default)
        assert rows(section)[name] == stated, name


@pytest.mark.parametrize("model", [TargetEntry, TargetSettings, TargetDecided])
def test_the_page_names_every_field_of_a_night(model: type[FrozenModel]) -> None:
    page = (DOCS / "formats.md").read_text()
    for name in model.model_fields.keys() - {"type", "signature", "search"}:
        assert f"`{name}`" in page, name


def test_command_line_page_has_every_verb() -> None:
    headings = re.findall(r"^## refold ([\w-]+)$", (DOCS / "cli.md").read_text(), flags=re.M)
    assert headings == [command.name for command in app.registered_commands]


@pytest.mark.parametrize("page", ["formats.md", "cli.md", "operations.md"])
def test_lines_are_short(page: str) -> None:
    lines = (DOCS / page).read_text().splitlines()
    assert [line for line in lines if len(line) > 120] == []
