"""What holds for the repository as a whole: its layout, its contracts, its words, its commands."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("schemas", "projection", "storage", "tasks", "flows")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TEXT_SUFFIXES = {".py", ".md", ".toml", ".yaml", ".yml", ".txt", ".sh", ".json", ""}
UNTRACKED = {"build", "dist", "tuning_runs", "shared", "__pycache__"}


def run(*command: str, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).parent / "lint-imports"
    return run(str(command), "--no-logo", "--no-cache", cwd=folder, PYTHONPATH=str(folder))


def our_files() -> Iterator[Path]:
    """The files of the checkout: what git would track, found without git."""
    for path in ROOT.rglob("*"):
        inside = path.relative_to(ROOT).parts
        hidden = any(part.startswith(".") and part != ".ci" for part in inside)
        ours = UNTRACKED.isdisjoint(inside) and not inside[0].endswith(".egg-info")
        if path.is_file() and ours and not hidden:
            yield path


@pytest.mark.parametrize(
    "name",
    [
        *(f"{package}/__init__.py" for package in PACKAGES),
        *(f"{package}/py.typed" for package in PACKAGES),
        *("tests", "examples/workloads", "examples/clusters", "benchmarks", "docs"),
        *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"),
        *("pyproject.toml", "prefect.yaml", "Makefile", "constraints.txt", ".ci/run"),
        *("docs/architecture.md", "docs/dependencies.md"),
    ],
)
def test_layout(name: str) -> None:
    assert (ROOT / name).exists()


def test_import_contracts_hold() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("schemas/offender.py", "import projection"),
        ("projection/offender.py", "import storage"),
        ("storage/offender.py", "import tasks"),
        ("tasks/offender.py", "import flows"),
        ("projection/offender.py", "import time"),
        ("projection/offender.py", "import random"),
        ("projection/offender.py", "import prefect"),
        ("storage/offender.py", "import prefect"),
        ("tasks/fidelity/offender.py", "import projection.time"),
        ("tasks/evidence/offender.py", "import projection.kernels"),
    ],
)
def test_import_contracts_refuse(module: str, statement: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in (*PACKAGES, *named_in_contracts()):
        (tmp_path / package).mkdir(exist_ok=True)
        (tmp_path / package / "__init__.py").touch()
    assert lint_imports(tmp_path).returncode == 0
    (tmp_path / module).write_text(f"{statement}\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1
    assert "offender ->" in result.stdout


def named_in_contracts() -> Iterator[Path]:
    """Packages inside our own that a contract is about."""
    for contract in PYPROJECT["tool"]["importlinter"]["contracts"]:
        for name in (*contract.get("source_modules", ()), *contract.get("forbidden_modules", ())):
            if "." in name:
                yield Path(*name.split("."))


def test_no_module_is_a_drawer() -> None:
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert [path for path in our_files() if path.stem in drawers] == []


# Spelled in pieces, so that this file does not match itself. An issue of somebody else's project,
# named with the project ("Primus issue 349"), is a source like any other.
NOT_OURS = re.compile(
    "|".join(
        (
            r"(?<![\w.])/" + "work/",
            r"\.\./" + "shared",
            r"(?:^\W*|(?:^|\s)(?![^a-z]*[A-Z])\S+ )[Ii]ssues? " + r"#?\d",
            r"\b(?:[Tt]his|last|previous|earlier|next|another) " + "session",
            "pypi" + r"\.org",
            "pythonhosted" + r"\.org",
            "deb" + r"\.debian\.org",
        )
    )
)


def test_files_speak_of_the_project_and_not_of_how_it_was_made() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in our_files()
        if path.suffix in TEXT_SUFFIXES
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
        if NOT_OURS.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        ("as Primus issue 349 reports", True),
        ("(Primus issue 349, a report)", True),
        ("see issue " + "12 for the rest", False),
        ("Issue " + "#12", False),
        ("found in this " + "session", False),
        ("a file in /" + "work/main", False),
    ],
)
def test_words_of_the_making_are_told_from_sources(line: str, ours: bool) -> None:
    assert (NOT_OURS.search(line) is None) == ours


def test_data_files_of_the_packages_are_in_the_wheel() -> None:
    patterns: dict[str, list[str]] = PYPROJECT["tool"]["setuptools"]["package-data"]
    shipped = {
        path
        for package in PACKAGES
        for folder in [ROOT / package, *(ROOT / package).rglob("*/")]
        for pattern in [
            *patterns.get(".".join(folder.relative_to(ROOT).parts), []),
            *patterns["*"],
        ]
        for path in folder.glob(pattern)
    }
    data = {
        path
        for path in our_files()
        if path.relative_to(ROOT).parts[0] in PACKAGES and path.suffix != ".py"
    }
    assert data - shipped == set()


def test_every_folder_with_python_is_a_package() -> None:
    folders = {path.parent for name in PACKAGES for path in (ROOT / name).rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_paths_named_in_the_docs_exist() -> None:
    reference = (f"docs/{page}.md" for page in ("architecture", "formats", "cli", "operations"))
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", *reference)]
    tops = "|".join((*PACKAGES, "tests", "docs", "examples", "benchmarks", "scripts", r"\.ci"))
    missing = [
        f"{page.name}: {name}"
        for page in pages
        for name in re.findall(rf"`((?:{tops})/[\w./-]*)`", page.read_text())
        if not (ROOT / name).exists()
    ]
    assert missing == []


def test_links_between_the_docs_lead_somewhere() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    missing = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert missing == []


def test_command_line_loads_nothing_heavy() -> None:
    heavy = ("torch", "dspy", "litellm", "prefect", "polars", "pyarrow", "matplotlib")
    code = f"import sys, flows.cli; print(*sorted(set({heavy!r}) & set(sys.modules)))"
    result = run(sys.executable, "-c", code)
    assert (result.returncode, result.stdout.strip()) == (0, ""), result.stderr


def test_command_line_says_what_each_command_does() -> None:
    code = "from flows.cli import main; main()"
    result = run(sys.executable, "-c", code, "--help", NO_COLOR="1", COLUMNS="120")
    assert result.returncode == 0, result.stderr
    for command in ("tune", "axes", "check", "project", "runs", "show", "export"):
        assert re.search(rf"\b{command}\b +\w+", result.stdout), f"{command} has no line of help"


def test_make_lists_its_targets() -> None:
    result = run("make")
    assert result.returncode == 0
    for target in ("setup", "tune", "test", "check", "lint", "clean"):
        assert re.search(rf"make {target} +\w+", result.stdout)


def test_make_tune_runs_on_inputs_that_are_shipped() -> None:
    recipe = run("make", "--dry-run", "tune", WORKLOAD="", CLUSTER="", MAKEFLAGS="").stdout
    assert "refold tune" in recipe
    inputs = re.findall(r"examples/[\w./-]+\.yaml", (ROOT / "Makefile").read_text())
    assert len(inputs) == 2
    assert all((ROOT / name).is_file() for name in inputs)
