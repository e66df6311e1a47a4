"""Writing read models: each file whole or not at all, and only when its bytes change."""

import os
from collections.abc import Iterable
from pathlib import Path

from schemas.errors import UserError


def write_file(path: Path, content: str | bytes, *, executable: bool = False) -> None:
    """Put `content` into `path` by a temporary file and a rename; nothing, if it is there already.

    Text is written as UTF-8. Not flushed to the disk: read models come back from the log.

    Raises:
        UserError: the folder or the file cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.is_file() and path.read_bytes() == data:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_left_behind(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_bytes(data)
            if executable:
                temporary.chmod(0o755)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written: {error.strerror}",
            hint="choose another folder with --out-dir; the run itself is safe in the store",
        ) from error


def _remove_left_behind(path: Path) -> None:
    """Remove the temporary files of processes that were killed while they wrote `path`."""
    for name in os.listdir(path.parent):
        writer = name.removeprefix(f".{path.name}.")
        if writer != name and writer.isdecimal() and not _is_alive(int(writer)):
            (path.parent / name).unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def remove_files(paths: Iterable[Path]) -> None:
    """Remove files that are there, and the folders that this empties.

    Raises:
        UserError: one cannot be removed.
    """
    folders = set()
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise UserError(f"{path}: cannot be removed: {error.strerror}") from error
        folders.add(path.parent)
    for folder in folders:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def first_line(path: Path) -> str:
    """The first line of a text file, "" when it cannot be read as text."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.readline(4096).rstrip("\n")
    except (OSError, UnicodeDecodeError):
        return ""
