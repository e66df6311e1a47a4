"""A calibration as the YAML a person reads and the oracle loads."""

from collections.abc import Mapping
from typing import Any

import yaml

from schemas.calibration import Calibration

_HEAD = """\
# Refold calibration of {gpu} over the GEMM model {gemm}: {whose}.
# Factors multiply the published rates of {over}; see docs/calibration.md. Written by {by}.
"""


def calibration_yaml(calibration: Calibration, by: str) -> str:
    """The file's text; `by` names what wrote it."""
    whose = {
        "gpu": f"fitted to {sum(len(g.rows) for g in calibration.groups)} measured rows in"
        f" {len(calibration.groups)} groups of it, beside its kin's",
        "family": f"no measured row of it, so the factors of its family, {calibration.family}",
        "vendor": "no measured row of its family, so its vendor's factors",
    }[calibration.fitted_from]
    head = _HEAD.format(
        gpu=calibration.gpu, gemm=calibration.gemm, whose=whose, over=calibration.over, by=by
    )
    document = _Block(calibration.model_dump(mode="json"))
    for key in ("evidence", "groups"):
        document[key] = [_Block(each) for each in document[key]]
    document["factors"] = _Block({n: _Block(f) for n, f in document["factors"].items()})
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return head + text


class _Block(dict[str, Any]):
    """A mapping written one key a line; plain ones are written in one."""


class _Dumper(yaml.SafeDumper):
    """Writes `_Block` out, and every other collection in flow style."""


def _block(dumper: yaml.SafeDumper, data: Mapping[str, Any]) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", data.items(), flow_style=False)


def _flow_map(dumper: yaml.SafeDumper, data: Mapping[str, Any]) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", data.items(), flow_style=True)


def _list(dumper: yaml.SafeDumper, data: list[Any]) -> yaml.Node:
    blocks = any(isinstance(each, _Block) for each in data)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=not blocks)


_Dumper.add_representer(_Block, _block)
_Dumper.add_representer(dict, _flow_map)
_Dumper.add_representer(list, _list)
