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
        (
            request.UNKNOWN_SCHEDULE,
            *(rule.code for rule in VALUE_RULES),
            *(rule.code for rule in request.RULES),
            *(rule.code for rule in RULES),
        )
    )
)
"""Every reason code there is."""

__all__ = ["CODES", "RULES", "VALUE_RULES", "Rule"]
