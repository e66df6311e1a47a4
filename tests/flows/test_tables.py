"""Tables on a terminal: at most 100 columns, and nothing of a number cut away."""

import pytest

from flows.terminal import print_table


def test_a_table_too_wide_is_printed_in_parts_each_with_its_first_column(
    capsys: pytest.CaptureFixture[str],
) -> None:
    columns = ("source|", *(f"figure {n}>" for n in range(12)))
    rows = [(f"row {r}", *(f"{r}{n:02d}.123%" for n in range(12))) for r in range(3)]
    print_table(columns, rows, title="figures")
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert all(len(line) <= 100 for line in lines)
    assert "…" not in out
    assert all(out.count(str(cell)) == 1 for row in rows for cell in row[1:])
    assert out.count("row 2") == out.count("source") == 2
    assert out.count("figures") == 1


def test_one_that_fits_is_printed_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("step", "change>"), [("a long step, with what goes with it " * 4, "+1.0%")])
    out = capsys.readouterr().out
    assert out.count("change") == 1
    assert " ".join(out.split()).count("goes") == 4
