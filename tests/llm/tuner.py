"""A competent tuner as a script: it reads the prompt it is sent, and knows no configuration.

It looks at which changes of the baseline paid, puts them together, and steps along the axes from
the best combination.
"""

import json
import re
from collections.abc import Iterator
from itertools import combinations, zip_longest
from typing import NamedTuple

TRIAL = re.compile(r"^\s*#(\d+) (.*) \| (.*)$", re.M)
SPEED = re.compile(r"(\d+) tokens/s/GPU")
OVER = re.compile(r"\(does_not_fit\): ([\d.]+) GB over the cap")
RANGE = re.compile(r"(\d+)\.\.(\d+)")
SECTION = re.compile(r"^([A-Z][A-Z ]+)(?: \(.*)?$", re.M)

Knobs = tuple[tuple[str, str], ...]


def section(prompt: str, name: str) -> str:
    """The lines of the last section of that name."""
    starts = [match for match in SECTION.finditer(prompt) if match.group(1).strip() == name]
    if not starts:
        return ""
    rest = prompt[starts[-1].end() :]
    end = re.search(r"^\S", rest[1:], re.M)
    return rest[: end.start() + 1] if end else rest


class Tried(NamedTuple):
    speed: float | None
    """None: it may not win."""
    over_gb: float | None
    """How much too large, when that is what ruled it out."""


def trials(prompt: str) -> dict[Knobs, Tried]:
    """What was tried, by its knobs apart from the baseline."""
    found: dict[Knobs, Tried] = {}
    for _, verdict, knobs in TRIAL.findall(section(prompt, "TRIALS")):
        pairs = tuple(sorted(tuple(p.split("=", 1)) for p in knobs.split() if "=" in p))
        speed, over = SPEED.search(verdict), OVER.search(verdict)
        fits = speed is not None and "ABOVE" not in verdict
        found[pairs] = Tried(
            float(speed.group(1)) if fits and speed else None,
            float(over.group(1)) if over else None,
        )
    return found


def axes(prompt: str) -> dict[str, list[str]]:
    found = {}
    for line in section(prompt, "AXES").splitlines():
        name, colon, values = line.strip().partition(": ")
        if colon and not name.startswith("schedules"):
            found[name] = [one for value in values.split() for one in expanded(value.rstrip("*"))]
    return found


def expanded(value: str) -> list[str]:
    """`3..6` as its integers."""
    ends = RANGE.fullmatch(value)
    return [str(n) for n in range(int(ends[1]), int(ends[2]) + 1)] if ends else [value]


def neighbours(knobs: Knobs, legal: dict[str, list[str]]) -> list[Knobs]:
    """One step along each axis of the combination."""
    current = dict(knobs)
    steps: list[Knobs] = []
    for name, values in legal.items():
        at = values.index(current[name]) if current.get(name) in values else 0
        for position in (at - 1, at + 1):
            if 0 <= position < len(values):
                steps.append(tuple(sorted({**current, name: values[position]}.items())))
    return steps


def lighter(knobs: Knobs, legal: dict[str, list[str]]) -> Iterator[Knobs]:
    """The same with some layers recomputed: memory for time."""
    if "full" not in legal.get("recompute_granularity", []):
        return
    for count in legal.get("recompute_num_layers", [])[1:5]:
        full = {
            "recompute_granularity": "full",
            "recompute_method": "block",
            "recompute_num_layers": count,
        }
        yield tuple(sorted({**dict(knobs), **full}.items()))


def merged(one: Knobs, other: Knobs) -> Knobs:
    return tuple(sorted({**dict(other), **dict(one)}.items()))


def candidates(prompt: str, most: int = 8) -> list[dict[str, str]]:
    known, legal = trials(prompt), axes(prompt)
    scored = sorted(
        ((tried.speed, knobs) for knobs, tried in known.items() if tried.speed and knobs),
        reverse=True,
    )
    misses = sorted(
        (tried.over_gb, knobs) for knobs, tried in known.items() if tried.over_gb and knobs
    )
    best = scored[0][1] if scored else ()
    pairs = [merged(one, other) for (_, one), (_, other) in combinations(scored[:6], 2)]
    rescued = [
        lean
        for leans in zip(
            *(lighter(merged(miss, best), legal) for _, miss in misses[:3]), strict=False
        )
        for lean in leans
    ]
    steps = neighbours(best, legal) if scored else []
    # A few of each kind: nobody knows beforehand which pays.
    ideas = [idea for turn in zip_longest(pairs, rescued, steps) for idea in turn if idea]
    fresh = [knobs for knobs in dict.fromkeys(ideas) if knobs not in known]
    return [{**dict(knobs), "why": "puts together what paid"} for knobs in fresh[:most]]


def tune(prompt: str, number: int) -> str:
    """The script of a competent model."""
    found = candidates(prompt)
    return json.dumps(
        {
            "reasoning": "Look at what paid, and put it together.",
            "rationale": f"{len(found)} combinations are untried.",
            "hypotheses": ["what paid alone pays together"] if found else [],
            "candidates": found,
            "polish": "step along each axis from the best",
        }
    )
