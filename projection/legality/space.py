"""The space of legal trials: iterated lazily, counted and indexed without being written out.

Knobs are chosen factor by factor, and each rule is applied as soon as every knob it reads has been
chosen, so there is one statement of each rule and none of the illegal product is ever built. What
remains below a partial choice depends only on the chosen knobs that later rules and factors still
read; those sub-spaces are shared, which is what makes counting cheap.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, cast

from projection.legality.context import Context
from projection.legality.factors import FACTORS, Factor
from projection.legality.rules import RULES, VALUE_RULES, Rule
from schemas.cluster import Cluster
from schemas.search import SearchSpec
from schemas.trial import NormalTrial
from schemas.workload import Workload


@dataclass(frozen=True, slots=True)
class Level:
    """One factor, the rules that can be asked once it is chosen, and what those below depend on."""

    factor: Factor
    rules: tuple[Rule, ...]
    needs: tuple[str, ...]
    """Knobs chosen before that this or a later level reads."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One choice at a level that some legal trial makes."""

    values: tuple[Any, ...]
    below: "Node"


@dataclass(frozen=True, slots=True)
class Node:
    """All legal ways to choose one level and those below it."""

    level: int
    branches: tuple[Branch, ...]
    count: int


_LEAF = Node(len(FACTORS), (), 1)


def reachable(root: Node) -> Iterator[Node]:
    """Every node with a choice at or below `root`, each once."""
    seen, stack = {id(root)}, [root]
    while stack:
        node = stack.pop()
        yield node
        for branch in node.branches:
            if branch.below.branches and id(branch.below) not in seen:
                seen.add(id(branch.below))
                stack.append(branch.below)


ALL_RULES: Final = (*VALUE_RULES, *RULES)
"""The rules on single values come first: the others divide by them."""


def levels(
    factors: Sequence[Factor] = FACTORS, rules: Sequence[Rule] = ALL_RULES
) -> tuple[Level, ...]:
    """Each factor with the rules that become answerable there, and what it depends on."""
    chosen: set[str] = set()
    remaining, at_level = list(rules), []
    for factor in factors:
        chosen |= set(factor.knobs)
        ready = [rule for rule in remaining if chosen.issuperset(rule.reads)]
        remaining = [rule for rule in remaining if rule not in ready]
        at_level.append(tuple(ready))
    built: list[Level] = []
    needed: set[str] = set()
    for factor, ready_here in zip(reversed(factors), reversed(at_level), strict=True):
        needed |= set(factor.reads).union(*(rule.reads for rule in ready_here))
        needed -= set(factor.knobs)
        built.append(Level(factor, ready_here, tuple(sorted(needed))))
    return tuple(reversed(built))


class LegalSpace:
    """Every legal trial of a workload on a cluster, as proposals may make them.

    `only` narrows knobs to given values: `{"fp8": ("none", "hybrid"), "recompute_method": …}`; a
    value that a trial does not need (the method of a trial without recompute, None) always passes.
    The order is fixed: the first factor varies slowest, values ascend. Nothing is computed before
    it is asked for; counting keeps what it worked out, so that iterating after it is cheaper.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        search: SearchSpec,
        *,
        only: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        self.context = Context.of(workload, cluster, search)
        self._only = {knob: frozenset(values) for knob, values in (only or {}).items()}
        unknown = set(self._only) - set(NormalTrial.model_fields)
        if unknown:
            raise ValueError(f"no knob is called {sorted(unknown)[0]!r}")
        self._levels = levels()
        self._nodes: dict[tuple[Any, ...], Node] = {}

    def __iter__(self) -> Iterator[NormalTrial]:
        """Every legal trial, lazily, in the fixed order."""
        return self._trials(0, SimpleNamespace())

    def count(self) -> int:
        """How many legal trials there are."""
        return self.root().count

    def __getitem__(self, index: int) -> NormalTrial:
        """The trial at a position of the fixed order, without making those before it.

        Raises:
            IndexError: the space has not that many.
        """
        node, draft = self.root(), SimpleNamespace()
        left = index + node.count if index < 0 else index
        if not 0 <= left < node.count:
            raise IndexError(f"trial {index} of {node.count}")
        while node.branches:
            for branch in node.branches:
                if left < branch.below.count:
                    break
                left -= branch.below.count
            self.choose(node.level, branch.values, draft)
            node = branch.below
        return NormalTrial(**vars(draft))

    def root(self) -> Node:
        """All legal trials as choices of the first factor, of the second, …"""
        return self._node(0, SimpleNamespace())

    def choose(self, level: int, values: tuple[Any, ...], draft: SimpleNamespace) -> None:
        """Set the knobs of a level on a draft."""
        for knob, value in zip(self._levels[level].factor.knobs, values, strict=True):
            setattr(draft, knob, value)

    def _trials(self, level: int, draft: SimpleNamespace) -> Iterator[NormalTrial]:
        if level == len(self._levels):
            yield NormalTrial(**vars(draft))
            return
        known = self._nodes.get(self._key(level, draft))
        if known is not None:
            choices: Iterator[tuple[Any, ...]] = (branch.values for branch in known.branches)
        else:
            choices = self._legal_choices(level, draft)
        for values in choices:
            self.choose(level, values, draft)
            yield from self._trials(level + 1, draft)

    def _node(self, level: int, draft: SimpleNamespace) -> Node:
        if level == len(self._levels):
            return _LEAF
        key = self._key(level, draft)
        node = self._nodes.get(key)
        if node is None:
            branches, count = [], 0
            for values in self._legal_choices(level, draft):
                self.choose(level, values, draft)
                below = self._node(level + 1, draft)
                if below.count:
                    branches.append(Branch(values, below))
                    count += below.count
            node = self._nodes[key] = Node(level, tuple(branches), count)
        return node

    def _legal_choices(self, level: int, draft: SimpleNamespace) -> Iterator[tuple[Any, ...]]:
        """The values of a level that break no rule that can be asked by then."""
        here, context = self._levels[level], self.context
        trial = cast(NormalTrial, draft)  # the rules only read the knobs chosen so far
        for values in here.factor.values(trial, context):
            if not self._wanted(here.factor.knobs, values):
                continue
            self.choose(level, values, draft)
            if all(rule.broken(trial, context) is None for rule in here.rules):
                yield values

    def _wanted(self, knobs: tuple[str, ...], values: tuple[Any, ...]) -> bool:
        return all(
            value is None or knob not in self._only or value in self._only[knob]
            for knob, value in zip(knobs, values, strict=True)
        )

    def _key(self, level: int, draft: SimpleNamespace) -> tuple[Any, ...]:
        return (level, *(getattr(draft, knob) for knob in self._levels[level].needs))
