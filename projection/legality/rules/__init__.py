"""All legality rules, in the order their reasons are given: the first is the one to lead with."""

from projection.legality.rules import batch, levers, pins, pipeline, tensor, values, world
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

__all__ = ["RULES", "VALUE_RULES", "Rule"]
