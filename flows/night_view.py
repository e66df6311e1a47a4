"""A night on the terminal: the line on top, a table, and what there is to say of each target."""

from flows.nightly import Done
from flows.terminal import print_table, wrapped
from storage.nights import Night
from tasks.nightly.report import (
    REPORT,
    details,
    findings,
    headline,
    row,
    worst_first,
)

MOST_ROWS = 40
_MOST_DETAILED = 20


def print_night(done: Done) -> None:
    """What a person looks at in the morning."""
    night = done.night
    if done.already:
        print(f"night {night.night_id} was done at {night.last_at:%Y-%m-%d %H:%M} UTC: no search")
    print_findings(night)
    print(f"the report is in {done.out_dir / REPORT}")


def print_findings(night: Night) -> None:
    """The line on top, the table, and what there is to say of each target that was not kept."""
    for line in wrapped(headline(night), indent=0):
        print(line)
    found = worst_first(findings(night))
    shown = found[:MOST_ROWS]
    print_table(
        ("target", "outcome|", "before>", "now>", "change>", "headroom GB>"),
        [row(finding) for finding in shown],
        title="tokens/s/GPU",
    )
    if len(found) > len(shown):
        print(f"and {len(found) - len(shown)} more: see the report")
    speaking = [finding for finding in found if finding.decided.outcome != "kept"]
    for finding in speaking[:_MOST_DETAILED]:
        print(finding.target.name)
        for line in details(finding):
            for part in wrapped(line, indent=4, label="  -"):
                print(part)
    if night.abandoned is not None:
        print(f"cut off; the night of {night.abandoned.slot:%Y-%m-%d %H:%M} UTC took its place")
