"""The legal configurations nearest to a request that is not legal."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from types import SimpleNamespace
from typing import Any

from projection.legality.axes import occurring_values
from projection.legality.factors import FACTORS, RECOMPUTE_KNOBS
from projection.legality.normal_form import KNOBS, short_request
from projection.legality.rules.request import UNKNOWN_SCHEDULE, read
from projection.legality.schedule_names import nearest_schedule
from projection.legality.space import LegalSpace, Node
from schemas.cluster import Cluster
from schemas.legality import AxisValue, Neighbour
from schemas.search import SearchSpec
from schemas.trial import NormalTrial, TrialConfig
from schemas.workload import Workload

_MOST_TIES = 512
"""Configurations at one distance that are compared; far more than anybody is shown."""


def neighbours(
    trial: TrialConfig | NormalTrial,
    workload: Workload,
    cluster: Cluster,
    search: SearchSpec,
    limit: int = 3,
) -> list[Neighbour]:
    """The `limit` legal configurations nearest to `trial`, nearest first; fewer if there are fewer.

    Distance is in steps along the axes: one per place in an axis's list of legal values, one for
    another word, truth value or number of recomputed layers, two for another kind of recomputation.
    A knob the request leaves open may also go back to the workload's value for nothing. At one
    distance, what changes least that nobody asked about comes first, then what is nearest to the
    workload. `changed` says for each knob what was asked (in normal form) and what is offered.
    """
    return nearest(trial, LegalSpace(workload, cluster, search), limit)


def nearest(trial: TrialConfig | NormalTrial, space: LegalSpace, limit: int = 3) -> list[Neighbour]:
    """`neighbours` in a space at hand."""
    asked = _Asked.of(trial, space.context.workload)
    root = space.root()
    if not root.count or limit < 1:
        return []
    distance = _Distance(asked, root)
    found: list[Neighbour] = []
    steps = distance.least(root)
    while len(found) < limit and steps <= distance.most:
        ties = islice(_at_distance(root, steps, distance, space), _MOST_TIES)
        offers = sorted((NormalTrial(**vars(draft)) for draft in ties), key=asked.unlikeness)
        found.extend(asked.offer(offer, steps) for offer in offers[: limit - len(found)])
        steps += 1
    return found


class Shapes:
    """For each parallel shape, the legal trial of that shape that is most like a given one.

    A shape is (tp, pp, cp, ep). What else must change (etp, mbs, vpp, sharding, …) changes as
    little as it can, by the distance of `neighbours`.
    """

    def __init__(self, like: NormalTrial, space: LegalSpace) -> None:
        self._asked = _Asked(like, space.context.workload, frozenset(KNOBS), {})
        self._space = space
        self._distance = _Distance(self._asked, space.root())

    def nearest(self, tp: int, pp: int, cp: int, ep: int) -> NormalTrial | None:
        """The most alike legal trial of a shape; None when the shape has none."""
        node, draft = self._space.root(), SimpleNamespace()
        for size in (tp, pp, cp, ep):
            chosen = next((b for b in node.branches if b.values == (size,)), None)
            if chosen is None:
                return None
            self._space.choose(node.level, chosen.values, draft)
            node = chosen.below
        steps = self._distance.least(node)
        ties = _at_distance(node, steps, self._distance, self._space, draft)
        alike = (NormalTrial(**vars(found)) for found in islice(ties, _MOST_TIES))
        return min(alike, key=self._asked.unlikeness)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request as understood: its normal form, what it sets, and what is wrong with its words."""

    trial: NormalTrial
    workload: Workload
    explicit: frozenset[str]
    wrong: dict[str, AxisValue]
    """Fields of the request that contradict others or are misspelt, as they were given."""

    @classmethod
    def of(cls, request: TrialConfig | NormalTrial, workload: Workload) -> "_Asked":
        """A misspelt schedule is read as the nearest one; a contradiction is left aside."""
        if isinstance(request, NormalTrial):
            base = workload.baseline
            changed = {knob for knob in KNOBS if getattr(request, knob) != getattr(base, knob)}
            return cls(request, workload, frozenset(changed), {})
        trial, violations = read(request, workload)
        given = request.model_dump(exclude_none=True)
        suspects = {knob for violation in violations for knob in violation.axes}
        wrong = {knob: value for knob, value in given.items() if knob in suspects}
        if any(violation.code == UNKNOWN_SCHEDULE for violation in violations):
            near = nearest_schedule(str(request.pp_schedule))
            trial, _ = read(request.model_copy(update={"pp_schedule": near}), workload)
        return cls(trial, workload, frozenset(given), wrong)

    def unlikeness(self, offer: NormalTrial) -> tuple[int, int, int]:
        """What orders offers at one distance: unasked changes, distance from the workload."""
        base = self.workload.baseline
        kept = [(getattr(self.trial, knob), getattr(base, knob)) for knob in KNOBS]
        values = [getattr(offer, knob) for knob in KNOBS]
        surprises = sum(value not in pair for value, pair in zip(values, kept, strict=True))
        moved = sum(value != pair[1] for value, pair in zip(values, kept, strict=True))
        return surprises, moved, abs(offer.recompute_num_layers - self.trial.recompute_num_layers)

    def offer(self, offer: NormalTrial, steps: int) -> Neighbour:
        """An offer as a neighbour of the request."""
        changed: dict[str, tuple[AxisValue | None, AxisValue | None]] = {
            knob: (getattr(self.trial, knob), getattr(offer, knob))
            for knob in KNOBS
            if getattr(self.trial, knob) != getattr(offer, knob)
        }
        for knob, value in self.wrong.items():
            offered = getattr(offer, knob, None)
            if value != offered:
                changed[knob] = (value, offered)
        config = short_request(offer, self.workload)
        return Neighbour(config=config, changed=changed, distance=steps + bool(self.wrong))


class _Distance:
    """Steps between a request and the choices of a space."""

    def __init__(self, asked: _Asked, root: Node) -> None:
        self._asked, self._base = asked, asked.workload.baseline
        occurring = occurring_values(root)
        self._numbers = {
            knob: sorted(values)
            for knob, values in occurring.items()
            if knob in KNOBS and type(getattr(asked.trial, knob)) is int and None not in values
        }
        self._least: dict[int, int] = {}
        self.most = len(KNOBS) + sum(len(values) for values in self._numbers.values())

    def least(self, node: Node) -> int:
        """Steps to the nearest trial below a node, counting only the knobs chosen there."""
        known = self._least.get(id(node))
        if known is None:
            known = min(
                (self.of(node.level, b.values) + self.least(b.below) for b in node.branches),
                default=0,
            )
            self._least[id(node)] = known
        return known

    def of(self, level: int, values: tuple[Any, ...]) -> int:
        """Steps of one choice."""
        knobs = FACTORS[level].knobs
        if knobs == RECOMPUTE_KNOBS:
            return self._recompute(values)
        return sum(
            self._knob(knob, value)
            for knob, value in zip(knobs, values, strict=True)
            if knob in KNOBS
        )

    def _knob(self, knob: str, value: Any) -> int:
        asked = getattr(self._asked.trial, knob)
        if value == asked or (
            knob not in self._asked.explicit and value == getattr(self._base, knob)
        ):
            return 0
        axis = self._numbers.get(knob)
        if axis is None:
            return 1
        here, there = bisect_left(axis, asked), bisect_left(axis, value)
        on_axis = here < len(axis) and axis[here] == asked
        # A value between two places of the axis is one step from either.
        return abs(there - here) + (1 if not on_axis and there >= here else 0)

    def _recompute(self, values: tuple[Any, ...]) -> int:
        asked = tuple(getattr(self._asked.trial, knob) for knob in RECOMPUTE_KNOBS)
        free = not self._asked.explicit.intersection(RECOMPUTE_KNOBS)
        base = tuple(getattr(self._base, knob) for knob in RECOMPUTE_KNOBS)
        if values == asked or (free and values == base):
            return 0
        return 1 if values[0] == asked[0] else 2


def _at_distance(
    root: Node,
    steps: int,
    distance: _Distance,
    space: LegalSpace,
    draft: SimpleNamespace | None = None,
) -> Iterator[SimpleNamespace]:
    """Every trial exactly `steps` away, in the order of the space; the draft is reused.

    `draft` holds what was chosen above `root`.
    """
    draft = SimpleNamespace() if draft is None else draft

    def walk(node: Node, left: int) -> Iterator[SimpleNamespace]:
        if not node.branches:
            if left == 0:
                yield draft
            return
        for branch in node.branches:
            rest = left - distance.of(node.level, branch.values)
            if rest < 0 or distance.least(branch.below) > rest:
                continue
            space.choose(node.level, branch.values, draft)
            yield from walk(branch.below, rest)

    return walk(root, steps)
