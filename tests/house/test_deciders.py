"""What decides in a search sees no clock, no randomness and no I/O: those enter as events (P6)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DECIDERS = sorted(
    [
        *(ROOT / "projection").rglob("*.py"),
        *(ROOT / "tasks" / "seed_plan").glob("*.py"),
        *(
            ROOT / "tasks" / f"{name}.py"
            for name in (
                "carry", "dominance", "evaluators", "finish", "memory_filter", "score",
                "seed_batch", "synthetic",
            )
        ),
        *(
            ROOT / "storage" / f"{name}.py"
            for name in ("cutting", "folding", "ranking", "state", "summary", "upcasting")
        ),
    ]
)  # fmt: skip
OUTSIDE = {
    "asyncio", "http", "io", "multiprocessing", "os", "random", "secrets", "select", "shutil",
    "signal", "socket", "subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip
ASKING = {"now", "utcnow", "today", "open", "input", "getenv", "read_bytes", "write_text"}
SHIPPED_DATA = {"projection/profiles.py"}
"""May read the files that ship beside them, and nothing else."""


def outside(tree: ast.AST) -> Iterator[str]:
    """Every import from outside and every call that asks it something."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.split(".")[0] in OUTSIDE)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            if node.module.split(".")[0] in OUTSIDE:
                yield node.module
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ASKING:
                yield f"{name}()"


@pytest.mark.parametrize("path", DECIDERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_decider_asks_nothing_of_the_world(path: Path):
    found = list(outside(ast.parse(path.read_text())))
    if str(path.relative_to(ROOT)) in SHIPPED_DATA:
        found = [name for name in found if name in OUTSIDE]
    assert found == []


@pytest.mark.parametrize(
    "code", ["import time", "from random import choice", "datetime.now()", "Path('x').open()"]
)
def test_the_check_sees_what_it_forbids(code: str):
    assert list(outside(ast.parse(code)))
