"""Builders of small input files, and the resolver bound to an empty environment."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.workload import Workload
from tasks.resolve import ResolvedCluster, resolve_cluster, resolve_workload

WriteWorkload = Callable[..., Path]
Resolve = Callable[..., Workload]
ResolveCluster = Callable[..., ResolvedCluster]


@pytest.fixture
def workload_file(tmp_path: Path) -> WriteWorkload:
    """Writes `job/workload.yaml` with the given overrides on a shipped model."""

    def write(
        overrides: Mapping[str, Any] | None = None, model: str = "llama3.1_8B.yaml", **module: Any
    ) -> Path:
        folder = tmp_path / "job"
        folder.mkdir(exist_ok=True)
        trainer = {"framework": "megatron", "config": "pre_trainer.yaml", "model": model}
        document = {"modules": {"pre_trainer": trainer | module | {"overrides": overrides or {}}}}
        path = folder / "workload.yaml"
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return path

    return write


@pytest.fixture
def resolve(workload_file: WriteWorkload) -> Resolve:
    """Resolves a workload of the given overrides."""

    def run(
        overrides: Mapping[str, Any] | None = None,
        model: str = "llama3.1_8B.yaml",
        *,
        env: Mapping[str, str] | None = None,
        model_path: Sequence[Path] = (),
        **module: Any,
    ) -> Workload:
        path = workload_file(overrides, model, **module)
        return resolve_workload(path, env=env or {}, model_path=model_path)

    return run


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResolveCluster:
    """Resolves a cluster file of the given text, from a current folder without any .env."""
    (tmp_path / "cwd").mkdir()
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")

    def run(text: str, *, env: Mapping[str, str] | None = None) -> ResolvedCluster:
        (tmp_path / "clusters").mkdir(exist_ok=True)
        path = tmp_path / "clusters" / "cluster.yaml"
        path.write_text(text)
        return resolve_cluster(path, env={"HOME": str(tmp_path / "home")} | dict(env or {}))

    return run
