"""All legality rules, in the order their reasons are given: the first is the one to lead with."""

from projection.legality.rules import (
    batch,
    levers,
    pins,
    pipeline,
    request,
    tensor,
    values,
    world,
)
from projection.legality.rules.rule import Rule

VALUE_RULES: tuple[Rule, ...] = values.RULES
"""Single values; where one is broken the others cannot be asked."""

RULES: tuple[Rule, ...] = (
    *world.RULES,
    *tensor.RULES,
    *pipeline.RULES,
    *batch.RULES,
    *levers.RULES,
    *pins.RULES,
)
"""Everything else."""

CODES: tuple[str, ...] = tuple(
    dict.fromkeys(
        [rule.code for rule in (*VALUE_RULES, *request.RULES, *RULES)] + [request.UNKNOWN_SCHEDULE]
    )
)
"""Every reason code there is."""

__all__ = ["CODES", "RULES", "VALUE_RULES", "Rule"]
