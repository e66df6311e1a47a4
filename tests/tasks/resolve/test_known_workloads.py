"""A workload is resolved again when, and only when, something it was made of is different."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.errors import WorkloadError
from schemas.workload import Workload
from tasks.resolve import known_workload, known_workloads, resolve_workload
from tests.end_to_end.files import write_inputs

PRESET = "mixtral_8x22B_v0.1.yaml"


@pytest.fixture
def resolutions(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were really resolved."""
    done: list[Path] = []
    real = known_workloads.effective_settings

    def counting(path: Path, **kwargs: Any) -> Any:
        done.append(path)
        return real(path, **kwargs)

    monkeypatch.setattr(known_workloads, "effective_settings", counting)
    return done


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    return write_inputs(tmp_path)[0]


def asked(workload: Path, folders: tuple[Path, ...] = (), **env: str) -> Workload:
    """The answer, which is what a resolution says now."""
    found = known_workload(workload, model_path=folders, env=env)
    assert found == resolve_workload(workload, model_path=folders, env=env)
    return found


def own_preset(path: Path, layers: int) -> None:
    path.parent.mkdir(exist_ok=True)
    extends = {"extends": ["mixtral_8x7B_v0.1.yaml"], "num_layers": layers}
    path.write_text(yaml.safe_dump(extends))


def test_the_same_files_are_resolved_once(workload: Path, resolutions: list[Path]) -> None:
    first = asked(workload)
    first.document["modules"]["pre_trainer"]["model"] = "spoilt by whoever asked"
    assert asked(workload).document["modules"]["pre_trainer"]["model"] == PRESET
    assert len(resolutions) == 1


def edit(workload: Path) -> dict[str, str]:
    write_inputs(workload.parent, overrides={"seq_length": 4096})
    return {}


def set_a_variable(workload: Path) -> dict[str, str]:
    return {"PRIMUS_TEAM": "another"}


def put_a_preset_beside(workload: Path) -> dict[str, str]:
    own_preset(workload.parent / PRESET, layers=40)
    return {}


def put_a_preset_among_models(workload: Path) -> dict[str, str]:
    own_preset(workload.parent / "presets/models" / PRESET, layers=44)
    return {}


def name_a_folder(workload: Path) -> dict[str, str]:
    own_preset(workload.parent / "others" / PRESET, layers=48)
    return {"REFOLD_MODEL_PATH": str(workload.parent / "others")}


@pytest.mark.parametrize(
    "change",
    [edit, set_a_variable, put_a_preset_beside, put_a_preset_among_models, name_a_folder],
)
def test_what_a_resolution_asked_for_has_it_asked_again(
    workload: Path, resolutions: list[Path], change: Callable[[Path], dict[str, str]]
) -> None:
    folders = (workload.parent / "presets",)
    (folders[0] / "models").mkdir(parents=True)
    before = asked(workload, folders)
    env = change(workload)
    assert asked(workload, folders, **env) != before
    assert len(resolutions) == 2
    asked(workload, folders, **env)
    assert len(resolutions) == 2


def test_a_preset_that_changes_or_goes_is_noticed(workload: Path, resolutions: list[Path]) -> None:
    preset = workload.parent / PRESET
    own_preset(preset, layers=40)
    assert asked(workload).architecture.num_layers == 40
    own_preset(preset, layers=48)
    assert asked(workload).architecture.num_layers == 48
    preset.unlink()
    assert asked(workload).architecture.num_layers == 56
    assert len(resolutions) == 3


def test_a_link_to_another_place_is_another_file(
    workload: Path, resolutions: list[Path], tmp_path: Path
) -> None:
    preset = workload.parent / PRESET
    for name in ("one", "two"):
        own_preset(tmp_path / name / PRESET, layers=40)
    preset.symlink_to(tmp_path / "one" / PRESET)
    first = asked(workload)
    preset.unlink()
    preset.symlink_to(tmp_path / "two" / PRESET)
    assert asked(workload).document != first.document  # it names the file itself
    assert len(resolutions) == 2


def test_a_variable_that_no_file_names_changes_nothing(
    workload: Path, resolutions: list[Path]
) -> None:
    asked(workload, PRIMUS_TEAM="a")
    asked(workload, PRIMUS_TEAM="a", HOME="/elsewhere", UNRELATED="1")
    assert len(resolutions) == 1


def test_a_relative_path_is_of_the_current_folder(
    tmp_path: Path, resolutions: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, length in (("one", 8192), ("two", 4096)):
        (tmp_path / name).mkdir()
        write_inputs(tmp_path / name, overrides={"seq_length": length})
        monkeypatch.chdir(tmp_path / name)
        assert asked(Path("workload.yaml")).seq_length == length
    assert len(resolutions) == 2


def test_what_is_wrong_is_wrong_each_time(workload: Path, resolutions: list[Path]) -> None:
    asked(workload)
    text = workload.read_text()
    workload.write_text("modules: {}\n")
    for _ in range(2):
        with pytest.raises(WorkloadError):
            known_workload(workload, env={})
    os.unlink(workload)
    with pytest.raises(WorkloadError, match="no such file"):
        known_workload(workload, env={})
    workload.write_text(text)
    asked(workload)
    assert len(resolutions) == 4  # the first answer still stands


def test_a_file_that_changes_while_it_is_read_is_not_remembered(
    workload: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = known_workloads.effective_settings

    def slowly(*args: Any, **kwargs: Any) -> Any:
        read = real(*args, **kwargs)
        write_inputs(workload.parent, overrides={"seq_length": 4096})
        return read

    monkeypatch.setattr(known_workloads, "effective_settings", slowly)
    assert known_workload(workload, env={}).seq_length == 8192
    monkeypatch.setattr(known_workloads, "effective_settings", real)
    assert asked(workload).seq_length == 4096
