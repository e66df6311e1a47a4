"""The folder of a search's artefacts: proved before the search, and one search's at a time."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from flows.out_dir import LOCK, cannot_write, held
from schemas.errors import EnvironmentMissing, UserError
from tests.flows.command import ROOT, environment

HOLDER = """
import sys
from pathlib import Path
from flows.out_dir import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_it_is_made_and_nothing_of_ours_stays(tmp_path: Path):
    folder = tmp_path / "a" / "b"
    with held(folder):
        assert (folder / LOCK).is_file()
    assert list(folder.iterdir()) == []


def test_a_second_search_is_refused_while_the_first_lives_and_let_in_after_its_death(
    tmp_path: Path,
):
    holder = subprocess.Popen(
        [sys.executable, "-P", "-c", HOLDER, str(tmp_path)],
        env=environment(),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match="another search is writing there"), held(tmp_path):
            pass
    finally:
        holder.kill()
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()
    assert (tmp_path / LOCK).is_file()
    with held(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["file", "file/below", "x" * 300, "o\udce9"])
def test_what_cannot_be_a_folder_is_the_users_mistake(tmp_path: Path, name: str):
    (tmp_path / "file").touch()
    with pytest.raises(UserError), held(tmp_path / name):
        pass


def test_a_folder_of_the_system_is_refused():
    with pytest.raises((UserError, EnvironmentMissing), match="cannot be written"):  # noqa: SIM117
        with held(Path("/proc/zz")):
            pass


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, EnvironmentMissing),
        (errno.EDQUOT, EnvironmentMissing),
        (errno.EROFS, EnvironmentMissing),
        (errno.EACCES, UserError),
        (errno.ENAMETOOLONG, UserError),
    ],
)
def test_a_full_disk_is_not_the_users_mistake(number: int, kind: type[Exception]):
    assert isinstance(cannot_write(Path("x"), OSError(number, "why")), kind)
