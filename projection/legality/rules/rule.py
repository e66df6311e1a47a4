"""The shape of a legality rule."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from projection.legality.context import Context
from schemas.legality import Violation
from schemas.trial import NormalTrial

Elsewhere = Literal["refuse", "warn", "allow"]
"""What a broken rule means for a trial that nobody proposes: a user's file, a measured row."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: `broken(trial, context)` says in a sentence with numbers why not, or None."""

    code: str
    broken: Callable[[NormalTrial, Context], str | None]
    reads: tuple[str, ...]
    """Every knob `broken` looks at; a search applies the rule as soon as it has chosen them."""
    elsewhere: Elsewhere = "refuse"

    def violation(self, trial: NormalTrial, context: Context) -> Violation | None:
        """The violation, when the rule is broken."""
        reason = self.broken(trial, context)
        return None if reason is None else Violation(code=self.code, reason=reason, axes=self.reads)
