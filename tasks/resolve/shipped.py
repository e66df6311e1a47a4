"""The tables that ship with this package, read once each. Callers do not change them."""

from functools import cache
from pathlib import Path
from typing import Any, Final

from schemas.errors import WorkloadError
from tasks.resolve.yaml_file import read_yaml

PRESETS: Final = Path(__file__).parent / "presets"


@cache
def shipped_table(name: str) -> dict[str, Any]:
    """The mapping in `presets/<name>`."""
    return read_yaml(PRESETS / name, f"refold:{name}", WorkloadError).document
