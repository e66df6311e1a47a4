"""A night's report: what is different, worst first. A read model of the night's log."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.night import Moved, Standing, TargetDecided
from schemas.targets import Target
from storage.exports.files import write_file
from storage.exports.knobs import in_words, knobs_apart
from storage.nights import Night

REPORT, REPORT_JSON = "report.md", "report.json"
_SMALLEST_MS = 0.05
"""Of an iteration: parts that moved by less are not named."""
_MOST_LINES = 8
_CALIBRATION, _FACTORS = "cluster.calibration.", "cluster.calibration.factors."


@dataclass(frozen=True, slots=True)
class Finding:
    """A target and what the night says of it."""

    target: Target
    decided: TargetDecided

    @property
    def change_percent(self) -> float | None:
        """Tokens/s/GPU of the recipe from tonight on over the one before, less one, in percent."""
        return _percent(self.decided.before, self.decided.after)

    @property
    def moved_percent(self) -> float | None:
        """The same of the recipe before, as it scores tonight: what the change itself did."""
        return _percent(self.decided.before, self.decided.again)

    @property
    def failed(self) -> bool:
        """It could not be looked at."""
        return self.decided.outcome == "failed"

    @property
    def drifted(self) -> bool:
        """Nothing changed, and the score on record did not come out: somebody must look."""
        return self.decided.outcome == "drifted"

    @property
    def regressed(self) -> bool:
        """It lost more than its threshold, or has no recipe any more."""
        if self.failed or self.decided.before is None:
            return False
        change = self.change_percent
        return change is None or change < -self.target.regression_percent

    @property
    def recipe_changed(self) -> bool:
        """Another configuration wins."""
        before, after = self.decided.before, self.decided.after
        return before is not None and after is not None and before.trial_id != after.trial_id


def findings(night: Night) -> list[Finding]:
    """What was decided, in the order of the targets file."""
    decided = night.decided
    return [Finding(t, decided[t.name]) for t in night.started.targets if t.name in decided]


def worst_first(found: Iterable[Finding]) -> list[Finding]:
    """Regressions, then failures, then what was searched, then the rest."""

    def place(finding: Finding) -> tuple[int, float]:
        change = finding.change_percent
        if finding.regressed:
            return 0, -100.0 if change is None else change
        if finding.failed or finding.drifted:
            return 1, 0.0
        return (3 if finding.decided.outcome == "kept" else 2), change or 0.0

    return sorted(found, key=place)


def headline(night: Night) -> str:
    """The line on top: what somebody must look at, or that nobody must."""
    found = findings(night)
    regressed = [finding for finding in found if finding.regressed]
    drifted = [finding for finding in found if finding.drifted]
    failed = [finding for finding in found if finding.failed]
    parts = []
    if regressed:
        parts.append(f"REGRESSION in {_names(regressed)}")
    if drifted:
        parts.append(f"DRIFTED though nothing changed: {_names(drifted)}")
    if failed:
        parts.append(f"FAILED: {_names(failed)}")
    changed = sum(finding.recipe_changed for finding in found)
    searched = sum(f.decided.outcome in ("re-tuned", "first") for f in found)
    counts = (
        f"{len(found)} target{'' if len(found) == 1 else 's'}: {searched} searched,"
        f" {len(found) - searched - len(failed)} unchanged, {changed} with another recipe"
    )
    return "; ".join([*parts, counts])


def _names(found: list[Finding]) -> str:
    names = [finding.target.name for finding in found]
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def knobs_changed(finding: Finding) -> dict[str, tuple[Any, Any]]:
    """Knobs that the recipe before and the one from tonight on have differently."""
    before, after = finding.decided.before, finding.decided.after
    if before is None or after is None:
        return {}
    return knobs_apart(before.config, after.config)


def parts_moved(before: Standing, after: Standing) -> list[tuple[str, float, float]]:
    """Parts of the iteration time that differ, (name, before, after) in ms, the largest first."""
    names = dict.fromkeys((*before.time_breakdown_ms, *after.time_breakdown_ms))
    pairs = [
        (name, before.time_breakdown_ms.get(name, 0.0), after.time_breakdown_ms.get(name, 0.0))
        for name in names
    ]
    moved = [pair for pair in pairs if abs(pair[2] - pair[1]) >= _SMALLEST_MS]
    return sorted(moved, key=lambda pair: -abs(pair[2] - pair[1]))


def details(finding: Finding, *, quoting: bool = True) -> Iterator[str]:
    """What there is to say of a target beside its line in the table, a line each.

    `quoting`: with the messages of errors, which may quote the user's files.
    """
    decided = finding.decided
    if decided.failure is not None:
        said = decided.failure.message if quoting else "refold nights latest says what"
        yield f"{decided.failure.error}: {said}"
    moved = [known for known in decided.moved if not _is_detail(known, decided.moved)]
    for known in moved[:_MOST_LINES]:
        yield f"changed: {_words(known)}"
    if len(moved) > _MOST_LINES:
        yield f"changed: {len(moved) - _MOST_LINES} more values, see refold diff"
    yield from _same_recipe(finding)
    knobs = knobs_changed(finding)
    if knobs:
        words = (f"{name} {in_words(a)} → {in_words(b)}" for name, (a, b) in knobs.items())
        yield f"recipe: {', '.join(words)}"
    elif decided.before is not None and decided.after is not None and decided.run is not None:
        yield "recipe: the same"
    if finding.recipe_changed and decided.before is not None and decided.after is not None:
        yield f"new recipe against the old one as it was: {_parts(decided.before, decided.after)}"
    yield from decided.notes
    if decided.after is not None:
        run = decided.after.run_id
        yield f"run {run}, trial {decided.after.trial}: refold lineage {run}"


def _is_detail(moved: Moved, among: Sequence[Moved]) -> bool:
    """Of a calibration, its factors' values say what there is to say; beside them not its hash, how
    sure they are, nor the evidence."""
    if moved.path == "stack.calibration":
        return any(known.path.startswith(_FACTORS) for known in among)
    if moved.path.startswith(_FACTORS):
        return not moved.path.endswith(".value")
    return moved.path.startswith(_CALIBRATION)


def _same_recipe(finding: Finding) -> Iterator[str]:
    """What the change did to the recipe that was."""
    decided = finding.decided
    if decided.before is None or decided.outcome in ("kept", "better known", "failed"):
        return
    if decided.again is None:
        yield f"the recipe before is no longer one: {decided.again_why}"
        return
    change = finding.moved_percent
    if change is not None:
        parts = _parts(decided.before, decided.again)
        yield f"the recipe before scores {change:+.1f} % tonight: {parts}"


def _parts(before: Standing, after: Standing) -> str:
    moved = parts_moved(before, after)
    if not moved:
        return "no part of its time moved"
    words = [f"{name} {a:,.1f} → {b:,.1f} ms" for name, a, b in moved[:5]]
    return ", ".join(words) + (f" and {len(moved) - 5} more" if len(moved) > 5 else "")


def _words(moved: Moved) -> str:
    return f"{moved.path}: {_short(moved.before)} → {_short(moved.after)}"


def _short(value: Any) -> str:
    text = "-" if value is None else " ".join(str(value).split())
    return text if len(text) <= 40 else f"{text[:39]}…"


def _percent(before: Standing | None, after: Standing | None) -> float | None:
    if before is None or after is None:
        return None
    return 100 * (after.tokens_per_s_per_gpu / before.tokens_per_s_per_gpu - 1)


def as_json(night: Night) -> dict[str, Any]:
    """The night for machines."""
    started = night.started
    return {
        "night": night.night_id,
        "name": started.name,
        "slot": started.slot.isoformat(),
        "before": started.before,
        "missed": started.missed,
        "as_of_event": night.head_seq,
        "head_hash": night.head_hash,
        "finished": night.finished is not None,
        "headline": headline(night),
        "regressions": [f.target.name for f in findings(night) if f.regressed],
        "failures": [f.target.name for f in findings(night) if f.failed],
        "targets": [_target_json(finding) for finding in findings(night)],
    }


def _target_json(finding: Finding) -> dict[str, Any]:
    decided = finding.decided
    before, again = decided.before, decided.again
    return {
        **decided.model_dump(mode="json", exclude={"type"}),
        "regression": finding.regressed,
        "change_percent": finding.change_percent,
        "same_recipe_percent": finding.moved_percent,
        "knobs": {name: list(pair) for name, pair in knobs_changed(finding).items()},
        "parts_ms": (
            {}
            if before is None or again is None
            else {name: [a, b] for name, a, b in parts_moved(before, again)}
        ),
    }


def markdown(night: Night, *, longest: int | None = None, quoting: bool = True) -> str:
    """The report as a page, of at most about `longest` lines; None: all of it. `quoting`: as
    `details`."""
    started = night.started
    found = worst_first(findings(night))
    lines = [
        f"# {headline(night)}",
        "",
        f"Night {night.night_id} of {started.name}, due {started.slot:%Y-%m-%d %H:%M} UTC;"
        f" the night before: {started.before or 'none'}; as of event {night.head_seq},"
        f" head {night.head_hash[:12]}.",
    ]
    if started.missed:
        lines += ["", f"It stands for {started.missed} slots before it at which nothing ran."]
    lines += ["", *_table(found)]
    for finding in found:
        if finding.decided.outcome == "kept":
            continue
        lines += ["", f"## {_cell(finding.target.name)}", ""]
        lines += [f"- {_cell(line)}" for line in details(finding, quoting=quoting)]
        if longest is not None and len(lines) > longest:
            lines += ["", "There is more: `refold nights` shows all of it."]
            break
    return "\n".join(lines) + "\n"


COLUMNS = ("target", "outcome", "before", "now", "change", "headroom GB")


def row(finding: Finding) -> tuple[str, ...]:
    """A target's line in the table."""
    decided, change = finding.decided, finding.change_percent
    mark = "REGRESSION" if finding.regressed else decided.outcome
    return (
        finding.target.name,
        mark,
        _score(decided.before),
        _score(decided.after),
        "-" if change is None else f"{change:+.1f} %",
        _headrooms(decided),
    )


def _headrooms(decided: TargetDecided) -> str:
    before = None if decided.before is None else decided.before.headroom_gb
    after = None if decided.after is None else decided.after.headroom_gb
    if before is None or after is None or round(before, 1) == round(after, 1):
        return _gb(before if after is None else after)
    return f"{_gb(before)} → {_gb(after)}"


def _gb(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _score(known: Standing | None) -> str:
    return "-" if known is None else f"{known.tokens_per_s_per_gpu:,.1f}"


def _table(found: list[Finding]) -> list[str]:
    """What was kept is counted where there is more of it than one wants to read."""
    kept = [finding for finding in found if finding.decided.outcome == "kept"]
    shown = found if len(kept) <= 50 else [f for f in found if f.decided.outcome != "kept"]
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    lines += [f"| {' | '.join(_cell(cell) for cell in row(finding))} |" for finding in shown]
    if len(shown) < len(found):
        lines.append(f"| {len(kept)} more | kept | | | | |")
    return lines


def _cell(text: str) -> str:
    """Text that means nothing to Markdown."""
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def has_report(night: Night, out_dir: Path) -> bool:
    """Whether the report of this night was written there, as of its last event."""
    kept = _kept(out_dir, night, REPORT)
    return kept.is_file() and kept.read_bytes() == markdown(night).encode()


def write_report(night: Night, out_dir: Path, *, newest: bool = True) -> Path:
    """The report, as `report.md` and `report.json`, and kept by the night's name below `history/`.

    `newest`: over the report of another night that is there.

    Raises:
        UserError: the folder cannot be written.
    """
    texts: Mapping[str, str] = {
        REPORT_JSON: json.dumps(as_json(night), indent=2, ensure_ascii=False) + "\n",
        REPORT: markdown(night),
    }
    for name, text in texts.items():
        if newest or not (out_dir / name).exists():
            write_file(out_dir / name, text)
        write_file(_kept(out_dir, night, name), text)
    return out_dir / REPORT


def _kept(out_dir: Path, night: Night, name: str) -> Path:
    return out_dir / "history" / f"{night.night_id}{Path(name).suffix}"
