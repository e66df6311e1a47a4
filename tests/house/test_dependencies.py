"""Every import is declared, every declaration is pinned and has its reason."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("schemas", "projection", "storage", "tasks", "flows")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
DECLARED = [Requirement(text) for text in (*PROJECT["dependencies"], *chain(*EXTRAS.values()))]


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text().splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(package): version for package, version in pairs}


def reasons() -> dict[str, str]:
    """The tables' rows, without their heads: package → its reason."""
    rows = re.findall(
        r"^\| (?!package)([\w.+-]+) \|(?: `\w+` \|)? (.+) \|$", _dependencies_page(), flags=re.M
    )
    return {canonicalize_name(package): why for package, why in rows}


def _dependencies_page() -> str:
    return (ROOT / "docs" / "dependencies.md").read_text()


def imported(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from ((alias.name.split(".")[0], path) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                yield node.module.split(".")[0], path


def undeclared(folders: tuple[str, ...], requirements: list[Requirement]) -> set[str]:
    """Third-party modules that the folders import though no requirement brings them."""
    ours = {*PACKAGES, "tests", "benchmarks", "scripts", *sys.stdlib_module_names}
    known = {canonicalize_name(requirement.name) for requirement in requirements}
    known_modules = {
        "origami",  # rocm-origami, which need not be installed to be declared
        "cyllama",  # in a folder of its own, for `make test-llm` alone
    }
    providers = packages_distributions()
    return {
        f"{module} in {path.relative_to(ROOT)}"
        for folder in folders
        for module, path in imported(ROOT / folder)
        if module not in ours | known_modules
        and canonicalize_name(module) not in known
        and not known & {canonicalize_name(name) for name in providers.get(module, ())}
    }


def test_packages_import_only_what_they_declare() -> None:
    dev = {Requirement(text).name for text in EXTRAS["dev"]}
    assert undeclared(PACKAGES, [r for r in DECLARED if r.name not in dev]) == set()


def test_tests_import_only_what_is_declared() -> None:
    assert undeclared(("tests",), DECLARED) == set()


@pytest.mark.parametrize("requirement", DECLARED, ids=lambda requirement: requirement.name)
def test_dependency_is_pinned_within_its_range(requirement: Requirement) -> None:
    version = pins("constraints.txt")[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(version), f"{requirement} does not admit {version}"


@pytest.mark.parametrize("requirement", DECLARED, ids=lambda requirement: requirement.name)
def test_dependency_has_an_upper_bound_unless_it_only_checks(requirement: Requirement) -> None:
    runtime = {Requirement(text).name for text in PROJECT["dependencies"]}
    if requirement.name in runtime:
        assert any(clause.operator.startswith("<") for clause in requirement.specifier)


def test_every_dependency_has_a_line_of_reason_and_every_line_a_dependency() -> None:
    debian = {"g++", "python3-x-dev", "libamdhip64-dev", "hipcc", "rocm-cmake", "bubblewrap"}
    debian.add("postgresql")
    declared = {canonicalize_name(requirement.name) for requirement in DECLARED}
    assert set(reasons()) - debian == declared | set(pins("build-constraints.txt"))


def test_system_packages_of_the_setup_are_documented() -> None:
    script = (ROOT / "scripts" / "origami.sh").read_text()
    for package in ("g++", "hipcc", "libamdhip64-dev", "rocm-cmake"):
        assert f"echo {package}" in script
        assert f"| {package} |" in _dependencies_page()
