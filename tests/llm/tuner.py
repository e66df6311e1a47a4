"""A competent tuner as a script: it reads the prompt it is sent, and knows no configuration.

It looks at which changes of the baseline paid, puts them together, and steps along the axes from
the best combination.
"""

import json
import re
from itertools import combinations

TRIAL = re.compile(r"^\s*#(\d+) (.*) \| (.*)$", re.M)
SPEED = re.compile(r"(\d+) tokens/s/GPU")
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


def trials(prompt: str) -> dict[Knobs, float | None]:
    """What was tried: its knobs apart from the baseline → speed, None when it may not win."""
    found: dict[Knobs, float | None] = {}
    for _, verdict, knobs in TRIAL.findall(section(prompt, "TRIALS")):
        pairs = tuple(sorted(tuple(p.split("=", 1)) for p in knobs.split() if "=" in p))
        speed = SPEED.search(verdict)
        fits = speed is not None and "ABOVE" not in verdict
        found[pairs] = float(speed.group(1)) if fits and speed else None
    return found


def axes(prompt: str) -> dict[str, list[str]]:
    found = {}
    for line in section(prompt, "AXES").splitlines():
        name, colon, values = line.strip().partition(": ")
        if colon and not name.startswith("schedules"):
            found[name] = [value.rstrip("*") for value in values.split()]
    return found


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


def candidates(prompt: str, most: int = 8) -> list[dict[str, str]]:
    known = trials(prompt)
    scored = sorted(
        ((speed, knobs) for knobs, speed in known.items() if speed is not None and knobs),
        reverse=True,
    )
    ideas: list[Knobs] = []
    for (_, one), (_, other) in combinations(scored[:6], 2):
        merged = {**dict(other), **dict(one)}
        ideas.append(tuple(sorted(merged.items())))
    if scored:
        ideas += neighbours(scored[0][1], axes(prompt))
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
