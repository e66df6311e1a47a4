"""What is assumed of a measured row where its source is silent: by rule, never by row.

A rule sees what ran (source, model, GPU, precision, framework, and settings the source states) and
never an id or a measured figure. Rules are applied in order, each over those before; what a source
states overrides all of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import Field

from schemas.architecture import Architecture
from schemas.measured import SETTINGS, Assumption, Setting
from schemas.model import FrozenModel

SEEN: Final = ("source", "model", "gpu", "precision", "framework", "moe", "interleaved")
"""What a rule may look at, beside settings."""


class Rule(FrozenModel):
    """`when` must all hold; text ending in `*` matches a beginning, a list any of its members."""

    when: dict[str, Any] = Field(default_factory=dict)
    why: str
    settings: dict[str, Setting]
    plausible: dict[str, tuple[Setting, ...]] = Field(default_factory=dict)

    def applies(self, seen: Mapping[str, Any]) -> bool:
        """Whether a row that shows `seen` is one of those this rule is about."""
        return all(name in seen and _matches(seen[name], want) for name, want in self.when.items())


def assume(
    rules: Sequence[Rule], raw: Mapping[str, Any], architecture: Architecture | None
) -> dict[str, Assumption]:
    """Settings that `raw`, a row of evidence, does not state, by the rules that apply to it."""
    stated = raw["stated"]
    seen = stated | {name: raw[name] for name in SEEN if name in raw}
    seen |= {"moe": architecture is not None and architecture.is_moe}
    found: dict[str, Assumption] = {}
    for rule in rules:
        seen["interleaved"] = (seen.get("vpp") or 1) > 1
        if not rule.applies(seen):
            continue
        for name, value in rule.settings.items():
            if name not in stated:
                others = rule.plausible.get(name, ())
                found[name] = Assumption(value=value, why=rule.why, plausible=others)
                seen[name] = value
    return found


def _matches(value: Any, want: Any) -> bool:
    if isinstance(want, list):
        return any(_matches(value, each) for each in want)
    if isinstance(want, str) and want.endswith("*"):
        return str(value).startswith(want[:-1])
    return bool(value == want)


def check(rules: Sequence[Rule]) -> None:
    """Raises ValueError for a rule about something it may not see, or an unknown setting."""
    for rule in rules:
        for name in rule.when:
            if name not in SETTINGS and name not in SEEN:
                raise ValueError(f"a rule cannot look at {name!r}")
        unknown = (rule.settings.keys() | rule.plausible.keys()) - SETTINGS
        if unknown or rule.plausible.keys() - rule.settings.keys():
            raise ValueError(f"{rule.why}: unknown or unused: {', '.join(sorted(unknown))}")
