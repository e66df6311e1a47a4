import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.errors import UserError
from tasks.nightly.targets import folder_of, read_targets

ONE = {"workload": "w.yaml", "target_cluster": "c.yaml"}


def written(folder: Path, document: Any) -> Path:
    path = folder / "targets.yaml"
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return path


def test_a_target_has_its_own_settings_over_the_defaults_over_the_built_in(tmp_path: Path):
    document = {
        "defaults": {"top_k": 7, "seed_only": True, "model_path": ["models"]},
        "targets": [ONE, {**ONE, "name": "other", "top_k": 2, "seed_only": False}],
    }
    one, other = read_targets(written(tmp_path, document)).targets
    assert (one.name, one.top_k, one.seed_only) == ("w-c", 7, True)
    assert (other.top_k, other.seed_only) == (2, False)
    assert one.regression_percent == 1.0
    assert one.model_path == (tmp_path / "models",)


def test_paths_are_relative_to_the_file(tmp_path: Path):
    target = {"workload": "../w.yaml", "target_cluster": "/etc/c.yaml"}
    (found,) = read_targets(written(tmp_path, {"targets": [target]})).targets
    assert found.workload == tmp_path.parent / "w.yaml"
    assert found.target_cluster == Path("/etc/c.yaml")


def test_variables_are_replaced(tmp_path: Path):
    document = {"targets": [{**ONE, "name": "${STACK:none}", "top_k": "${K:3}"}]}
    path = written(tmp_path, document)
    (found,) = read_targets(path, env={"STACK": "rocm7"}).targets
    assert (found.name, found.top_k) == ("rocm7", 3)


def test_the_name_is_the_files_unless_it_has_one(tmp_path: Path):
    assert read_targets(written(tmp_path, {"targets": [ONE]})).name == "targets"
    assert read_targets(written(tmp_path, {"name": "lab", "targets": [ONE]})).name == "lab"


def test_another_text_of_a_named_file_is_another_night(tmp_path: Path):
    path = written(tmp_path, {"targets": [ONE]})
    before = read_targets(path).spec
    assert read_targets(path).spec == before
    (tmp_path / "c.yaml").write_text("a: 1")
    assert read_targets(path).spec != before


def test_a_night_is_the_same_wherever_it_is_fired_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "lab").mkdir()
    target = {**ONE, "workload": "../w.yaml", "model_path": ["models"]}
    path = written(tmp_path / "lab", {"targets": [target]})
    (tmp_path / "w.yaml").write_text("a: 1")
    spec = read_targets(path).spec
    for folder, spelled in ((tmp_path, "lab/targets.yaml"), (tmp_path / "lab", "targets.yaml")):
        monkeypatch.chdir(folder)
        assert read_targets(Path(spelled)).spec == spec


def test_the_schedule_is_no_part_of_what_is_looked_at(tmp_path: Path):
    before = read_targets(written(tmp_path, {"targets": [ONE]})).spec
    later = {"schedule": {"cron": "0 5 * * *"}, "targets": [ONE]}
    assert read_targets(written(tmp_path, later)).spec == before


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("", "the file is empty"),
        ("targets: []", "at least one target"),
        ("{}", "at least one target"),
        ("targets: {a: b}", "at least one target"),
        ("targets: [a]", r"targets\[0\]: expected a mapping"),
        ({"targets": [{"workload": "w.yaml"}]}, r"targets\[0\]: target_cluster must name a file"),
        ({"targets": [{**ONE, "workload": ""}]}, r"targets\[0\]: workload must name a file"),
        ({"targets": [{**ONE, "workload": 7}]}, r"targets\[0\]: workload must name a file"),
        ({"targets": [{**ONE, "top": 7}]}, "did you mean top_k"),
        ({"targets": [{**ONE, "top_k": 0}]}, "top_k"),
        ({"targets": [{**ONE, "mode": "real"}]}, "mode"),
        ({"targets": [{**ONE, "name": ""}]}, "name"),
        ({"target": [ONE]}, "at least one target"),
        ({"targets": [ONE], "defaults": {"regression": 2}}, "did you mean regression_percent"),
        ({"targets": [ONE], "defaults": {"workload": "w"}}, "unknown key"),
        ({"targets": [ONE], "schedule": {"cron": "never"}}, "is no schedule"),
        ({"targets": [ONE], "schedule": {"timezone": "Mars"}}, "no time zone"),
        ({"targets": [ONE], "schedul": {}}, "did you mean schedule"),
        ({"targets": [ONE, ONE]}, r"targets\[1\]: another target is called 'w-c' too"),
        ({"targets": [{**ONE, "name": "a b"}, {**ONE, "name": "A-B"}]}, "another target is called"),
        ({"targets": [{**ONE, "name": "é"}, {**ONE, "name": "e\u0301"}]}, "the same folder"),
        ({"targets": [{**ONE, "name": "History"}]}, "is what the report is called"),
        ({"targets": [{**ONE, "name": "report.md"}]}, "is what the report is called"),
        ({"targets": [{**ONE, "name": "a\x1b[2Jb"}]}, "cannot be a name"),
        ({"targets": [{**ONE, "name": "a\nb"}]}, "cannot be a name"),
        ({"targets": [{**ONE, "name": "  "}]}, "cannot be a name"),
        ({"targets": [{**ONE, "workload": "w" * 81}]}, "cannot be a name"),
        ({"targets": [ONE], "name": "a\tb"}, "cannot be a name"),
    ],
)
def test_a_mistake_is_one_line_that_names_its_place(tmp_path: Path, document: Any, says: str):
    with pytest.raises(UserError, match=says) as raised:
        read_targets(written(tmp_path, document))
    assert "targets.yaml" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["..", "../../x", "/", "a/b", "-", "💥", "x" * 80, ".hidden"])
def test_a_folder_is_a_name_and_no_path(name: str):
    folder = folder_of(name)
    assert folder
    assert Path(folder).name == folder
    assert folder not in (".", "..")


def test_names_in_any_script_have_folders_of_their_own(tmp_path: Path):
    names = ["日本", "中国"]
    found = read_targets(written(tmp_path, {"targets": [{**ONE, "name": n} for n in names]}))
    assert [folder_of(target.name) for target in found.targets] == names


def test_a_named_file_that_is_none_is_its_targets_mistake(tmp_path: Path):
    """A pipe would never end, a device neither; a night must not wait for them."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    named = ["pipe", "loop", "/dev/zero", ".", "~nobody-of-that-name/w", "a\0b"]
    targets = [{**ONE, "name": str(n), "workload": path} for n, path in enumerate(named)]
    assert len(read_targets(written(tmp_path, {"targets": targets})).targets) == len(named)


def test_the_shipped_example_reads():
    shipped = Path(__file__).parents[3] / "examples" / "nightly" / "targets.yaml"
    found = read_targets(shipped)
    assert len(found.targets) == 3
    for target in found.targets:
        assert target.workload.is_file()
        assert target.target_cluster.is_file()


def test_a_schedule_that_came_out_of_a_variable_is_not_repeated(tmp_path: Path):
    document = {"schedule": {"cron": "${SECRET_OF_MINE}"}, "targets": [ONE]}
    with pytest.raises(UserError, match="is no schedule") as raised:
        read_targets(written(tmp_path, document), env={"SECRET_OF_MINE": "planted"})
    assert "planted" not in str(raised.value)
    assert "${SECRET_OF_MINE}" in str(raised.value)
