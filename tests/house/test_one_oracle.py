"""No formula of the oracle exists twice: outside `projection/` nobody computes with its quantities.

What a kernel or a tensor takes is a product or a quotient of model widths, data-sheet rates and
achieved fractions. Such an expression outside the oracle is a second implementation, which would
drift from the first.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.architecture import Architecture
from schemas.cluster import Network
from schemas.gpu import Achievable, GpuProfile

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = ("schemas", "storage", "tasks", "flows", "benchmarks")
COUNTS = {"num_layers", "num_experts", "compute_units", "num_xcd", "node_size", "pod_size"}
COUNTS |= {"nics_per_node", "mtp_num_layers", "attention", "gpu", "hbm_capacity_gb", "sources"}
"""Fields that everybody may count with, or whose names mean other things elsewhere."""
QUANTITIES = {
    name
    for model in (Architecture, GpuProfile, Network, Achievable)
    for name, field in model.model_fields.items()
    if name not in COUNTS and field.annotation not in (str, bool)
} | {"seq_length", "qk_dim", "v_dim"}
ARITHMETIC = (ast.Mult, ast.Div, ast.FloorDiv, ast.Pow)

ALLOWED = {
    "tasks/synthetic.py": "dry runs: made-up numbers, marked synthetic",
    "tasks/resolve/hugging_face.py": "a head's width where a config.json leaves it out",
    "benchmarks/gemm_factors.py": "turns published rates, casts included, into factors",
    "benchmarks/attention_efficiency.py": "prints a published rate as a share of peak",
}


def computations(path: Path) -> Iterator[str]:
    """Products and quotients in a file that have one of the quantities as an operand."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ARITHMETIC):
            named = {*names(node.left), *names(node.right)}
            if named & QUANTITIES:
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"


def names(node: ast.expr) -> Iterator[str]:
    """Attributes, variables and keys in an expression."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute):
            yield each.attr
        elif isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def test_only_the_oracle_computes_with_its_quantities() -> None:
    found = [
        line
        for folder in OUTSIDE
        for path in sorted((ROOT / folder).rglob("*.py"))
        if str(path.relative_to(ROOT)) not in ALLOWED
        for line in computations(path)
    ]
    assert found == []


@pytest.mark.parametrize("path", ALLOWED)
def test_an_exception_that_is_no_longer_needed_is_taken_off_the_list(path: str) -> None:
    assert list(computations(ROOT / path)) != []


def test_the_search_finds_a_second_implementation(tmp_path: Path) -> None:
    assert any(computations(ROOT / "projection/work/attention.py"))
    assert any(computations(ROOT / "projection/kernels.py"))


def test_one_class_projects() -> None:
    """`Oracle` alone makes evaluations of time, and nobody else builds a time or memory model."""
    builders = [
        str(path.relative_to(ROOT))
        for folder in ("projection", *OUTSIDE)
        for path in sorted((ROOT / folder).rglob("*.py"))
        if any(called in ("TimeModel", "KernelModels") for called in calls(path))
    ]
    assert builders == ["projection/oracle.py"]


def calls(path: Path) -> Iterator[str]:
    """Names of what a file calls."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id
