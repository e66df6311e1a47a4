"""`scripts/setup` says what is wrong in a line or two, and does nothing that was done."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def setup(*arguments: str, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["scripts/setup", *arguments],
        cwd=cwd,
        env={**os.environ, "REFOLD_REQUIRE_ORIGAMI": "0", "REFOLD_SKIP_SANDBOX": "1", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What setup reads, in a folder of its own."""
    for name in ("pyproject.toml", "constraints.txt", "build-constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    return tmp_path


def program(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_missing_interpreter_is_named_with_the_fix(checkout: Path) -> None:
    result = setup(cwd=checkout, PYTHON="python-of-nowhere")
    assert result.returncode == 3
    assert "there is no 'python-of-nowhere' here" in result.stderr
    assert "apt-get install python3" in result.stderr
    assert not (checkout / ".venv").exists()


def test_old_interpreter_is_refused(checkout: Path) -> None:
    old = program(checkout / "python", '[ "$1" = --version ] && echo Python 3.9.2 || exit 1')
    result = setup(cwd=checkout, PYTHON=old)
    assert result.returncode == 3
    assert "Python 3.9.2 is too old: Refold needs Python 3.11 or newer" in result.stderr


def test_missing_venv_module_is_named_with_the_fix(checkout: Path) -> None:
    bare = program(checkout / "python", 'case "$2" in *ensurepip*) exit 1;; esac')
    result = setup(cwd=checkout, PYTHON=bare)
    assert result.returncode == 3
    assert "apt-get install python3-venv" in result.stderr


def test_unknown_argument_is_refused(checkout: Path) -> None:
    result = setup("--dve", cwd=checkout)
    assert result.returncode == 2
    assert "--dve" in result.stderr


def test_scripts_are_executable_and_parse() -> None:
    for script in ("scripts/setup", "scripts/pins", ".ci/run"):
        assert os.access(ROOT / script, os.X_OK)
    sourced = ("scripts/origami.sh", "scripts/sandbox.sh")
    for script in ("scripts/setup", *sourced, "scripts/pins", ".ci/run"):
        subprocess.run(["bash", "-n", ROOT / script], check=True)


class TestOrigami:
    """An environment complete but for Origami, where no package can be installed."""

    @pytest.fixture
    def machine(self, checkout: Path) -> dict[str, str]:
        """A PATH without compiler, apt and sudo, and an environment that setup has finished."""
        tools = (
            "bash",
            "env",
            "cat",
            "cut",
            "dirname",
            "echo",
            "head",
            "id",
            "mkdir",
            "sha256sum",
            "xargs",
        )
        path = checkout / "bin"
        path.mkdir()
        for tool in (*tools, "realpath"):
            (path / tool).symlink_to(shutil.which(tool) or tool)
        python = 'case "$2" in *get_path*) echo /nowhere;; *version_info*) echo python3.11-dev;;'
        program(checkout / ".venv/bin/python", f'{python} *origami*) exit 1;; esac; [ "$1" != -m ]')
        env = {"PATH": str(path), "ROCM_PATH": str(checkout / "no-rocm")}
        script = (
            f"set -- ; VENV=.venv; {_fingerprint_of(checkout)}; fingerprint > .venv/.refold-setup"
        )
        subprocess.run(["bash", "-c", script], cwd=checkout, env=env, check=True)
        return env

    def test_absence_is_explained_in_full_once_and_in_a_line_later(
        self, checkout: Path, machine: dict[str, str]
    ) -> None:
        first = setup(cwd=checkout, **machine)
        again = setup(cwd=checkout, **machine)
        assert (first.returncode, again.returncode) == (0, 0)
        assert "missing here, and only root can install it: g++ python3.11-dev" in first.stdout
        assert "Refold's own tile model" in first.stdout
        assert "apt-get install --no-install-recommends g++ python3.11-dev" in first.stdout
        assert again.stdout.splitlines()[-1] == "setup: ready"
        assert len(again.stdout.splitlines()) == 2

    def test_demand_for_it_fails_setup(self, checkout: Path, machine: dict[str, str]) -> None:
        result = setup(cwd=checkout, **machine, REFOLD_REQUIRE_ORIGAMI="1")
        assert result.returncode == 3
        assert "Origami cannot be imported" in result.stderr
        assert "ready" not in result.stdout

    def test_skipping_it_says_nothing(self, checkout: Path, machine: dict[str, str]) -> None:
        result = setup(cwd=checkout, **machine, REFOLD_SKIP_ORIGAMI="1")
        assert (result.returncode, result.stdout) == (0, "setup: ready\n")

    def test_a_missing_sandbox_is_said_once(self, checkout: Path, machine: dict[str, str]) -> None:
        env = {**machine, "REFOLD_SKIP_ORIGAMI": "1", "REFOLD_SKIP_SANDBOX": "0"}
        first, again = setup(cwd=checkout, **env), setup(cwd=checkout, **env)
        assert (first.returncode, again.returncode) == (0, 0)
        assert "apt-get install bubblewrap" in first.stdout
        assert "agent.driver rlm will be refused" in first.stdout
        assert again.stdout == "setup: ready\n"


def _fingerprint_of(checkout: Path) -> str:
    """The shell function by which setup knows that an environment is current."""
    script = (checkout / "scripts" / "setup").read_text()
    start = script.index("fingerprint() {")
    return script[start : script.index("\n}\n", start) + 2]
