"""`docs/fidelity.md` from the code: `python -m benchmarks.fidelity_page`, with Origami installed.

Projects every measured row (some seconds; with the ranges of what is assumed, half a minute),
stores the report in `benchmarks/data/fidelity.json`, and writes the page from it. `--page` writes
the page alone, from the stored report. Prose that no code can know is in
`benchmarks/data/fidelity_notes.md`.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from schemas.fidelity import Fidelity, RowFidelity
from schemas.measured import MeasuredRow
from tasks.calibrate.shipped import left_out_rates
from tasks.evidence import evidence
from tasks.evidence.read import assumption_rules
from tasks.evidence.rules import Rule
from tasks.fidelity import tables
from tasks.fidelity.cases import left_out
from tasks.fidelity.report import fidelity
from tasks.fidelity.tables import Table

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "benchmarks/data/fidelity.json"
NOTES = ROOT / "benchmarks/data/fidelity_notes.md"
PAGE = ROOT / "docs/fidelity.md"
HEAD = """# Projected against measured

Written by `python -m benchmarks.fidelity_page`; `refold fidelity` prints the same figures, with
plots and one source at a time. The rows are in `tasks/evidence/`, each with its source. Errors are
projected over measured, less one: of the iteration time where a source prints one, else of
tokens/s/GPU. Memory and schedules have pages of their own:
[memory](fidelity-memory.md), [schedules](fidelity-schedules.md),
[collectives](fidelity-collectives.md).
"""


def page(report: Fidelity) -> str:
    """The page, as text."""
    parts = [HEAD, *_parts(report), NOTES.read_text(encoding="utf-8")]
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _parts(report: Fidelity) -> Iterator[str]:
    models = sorted(f"{gpu} {gemm}" for gpu, gemm in report.gemm.items())
    yield f"GEMM models: {', '.join(models)}."
    if report.fitted is not None:
        yield (
            f"A prime (') marks figures under factors that never saw the row's group (model, GPU,"
            f" precision, GPUs; {report.fitted}); the others are under published rates."
        )
    yield "## Held to\n\n" + markdown(tables.target_table(report))
    yield "## Errors by source\n\n" + markdown(tables.accuracy_table(report))
    yield "## Order within sweeps\n\n" + _orders(report)
    yield "## The paper's points\n\n" + _points(report)
    yield "## Rows on another GPU's factors\n\n" + _borrowed(report)
    yield "## What is assumed\n\n" + _assumed()
    yield "## Rows left out\n\n" + markdown(tables.exclusion_table(report))


def _orders(report: Fidelity) -> str:
    lines = [
        "k: median of projected over measured rate, and its coefficient of variation. top-1 and",
        "top-3: what is lost by running the best of so many projected best. > 9 %: pairs measured",
        "that far apart which are in order. Sources with many sweeps: means, weighted by rows.",
        "",
        markdown(tables.ranking_table(report)),
        "",
        markdown(tables.discordance_table(report)),
        "",
        "The paper's sweeps under other plausible values of what they leave unstated:",
        "",
        markdown(tables.alternative_table(report)),
    ]
    return "\n".join(lines)


def _points(report: Fidelity) -> str:
    rows = [row for row in report.rows if row.source == "paper-points"]
    rows.sort(key=lambda row: not row.stated_in_full)
    return (
        "Stated in full first. Ranges are over the plausible values of what is assumed.\n\n"
        + markdown(tables.row_table(report, rows))
    )


def _borrowed(report: Fidelity) -> str:
    noted: dict[str, list[RowFidelity]] = {}
    for row in report.rows:
        if row.note is not None:
            noted.setdefault(row.note, []).append(row)
    if not noted:
        return "None."
    return "\n".join(
        f"- {note}: {', '.join(row.id for row in rows)}" for note, rows in sorted(noted.items())
    )


def _assumed() -> str:
    """Rules with their reasons and the rows they say something of; recipes by name alone."""
    lines = [
        "By rules that see what ran and never what was measured, in `tasks/evidence/`. Rows",
        "each says something of, why, what it assumes, and what may as well have been:",
        "",
    ]
    recipes, rows = [], [row for row in evidence() if left_out(row) is None]
    for rule in assumption_rules():
        count = sum(_speaks_of(rule, row) for row in rows)
        if not count:
            continue
        if rule.why.startswith("Primus "):
            recipes.append(f"  - {rule.why}: {count}")
        else:
            lines.append(f"- {count}: {rule.why}: {_settings(rule)}.")
    lines.append("- Published recipes, of the model on the GPU (or its sibling) in that precision:")
    return "\n".join(lines + recipes)


def _speaks_of(rule: Rule, row: MeasuredRow) -> bool:
    """Whether something assumed of `row` is by `rule`."""
    return any(
        name in row.assumed
        and row.assumed[name].why == rule.why
        and row.assumed[name].value == value
        for name, value in rule.settings.items()
    )


def _settings(rule: Rule) -> str:
    said = []
    for name, value in rule.settings.items():
        others = [other for other in rule.plausible.get(name, ()) if other != value]
        instead = f" (or {', '.join(map(_word, others))})" if others else ""
        said.append(f"`{name}` {_word(value)}{instead}")
    return ", ".join(said)


def _word(value: object) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def markdown(table: Table) -> str:
    """A table in Markdown."""
    if not table.rows:
        return "None."
    names = [name.rstrip(">|") for name in table.columns]
    marks = ["---:" if name.endswith(">") else "---" for name in table.columns]
    lines = [names, marks, *([cell.replace("|", "\\|") for cell in row] for row in table.rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def stored() -> Fidelity:
    """The report the page is of."""
    return Fidelity.model_validate_json(STORED.read_text(encoding="utf-8"))


def main() -> None:
    if "--page" not in sys.argv:
        report = fidelity(
            evidence(), rates=left_out_rates, fitted="the shipped calibrations", ranges=True
        )
        text = json.dumps(report.model_dump(mode="json"), indent=0, default=str)
        STORED.write_text(text + "\n", encoding="utf-8")
    PAGE.write_text(page(stored()), encoding="utf-8")
    print(f"written: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
