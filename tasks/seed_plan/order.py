"""The order of seeds inside a budget."""

from collections.abc import Sequence

from schemas.trial import Candidate

_EARLY = 3
"""Candidates of one rule that may come before every rule has had its first."""


def order_for_budget(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Candidates by expected value, for a budget to cut.

    `candidates` come by rule, the rules by what is expected of them, and within a rule the most
    promising first. The baseline is first; then each rule's first candidate, then the second and
    third of each, then what is left, rule by rule: every rule gets its first before any its fourth.
    """
    by_rule: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_rule.setdefault(candidate.rule, []).append(candidate)
    ordered = [
        found[turn] for turn in range(_EARLY) for found in by_rule.values() if turn < len(found)
    ]
    ordered.extend(candidate for found in by_rule.values() for candidate in found[_EARLY:])
    return ordered
