"""trials.png: the same trials are the same bytes, and the incumbent is the best fitting trial."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.draw_trials import TrialMark, TrialsPicture, draw_trials

CAP_GB = 259.2


def picture(*marks: TrialMark, cap_gb: float | None = CAP_GB) -> TrialsPicture:
    return TrialsPicture("workload on cluster", "mode full, simulate", cap_gb, marks)


def fits(number: int, tokens: float, memory: float = 200.0) -> TrialMark:
    return TrialMark(number, "schedule", "fits", tokens, memory)


def pixels(png: bytes) -> bytes:
    """The decompressed scan lines: what a picture shows, whatever the compressor did."""
    data, at = b"", 8
    while at < len(png):
        (length,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        if kind == b"IDAT":
            data += png[at + 8 : at + 8 + length]
        at += 12 + length
    return zlib.decompress(data)


RUN = picture(
    TrialMark(0, "baseline", "over", 3100.0, 301.0),
    fits(1, 2900.0),
    TrialMark(2, "fp8", "rejected", None, 280.0),
    TrialMark(3, "grid", "rejected", None, None),
    fits(4, 3300.0),
    TrialMark(5, "neighbour", "rejected", None, 2000.0),
)


def test_redrawing_gives_the_same_bytes():
    assert draw_trials(RUN) == draw_trials(RUN)


def test_a_users_own_style_does_not_change_the_picture():
    import matplotlib

    expected = draw_trials(RUN)
    with matplotlib.rc_context({"font.size": 22, "axes.facecolor": "black", "savefig.dpi": 40}):
        assert draw_trials(RUN) == expected


def test_it_is_a_png_of_the_stated_size_that_names_no_software():
    png = draw_trials(RUN)
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", png[16:24]) == (1200, 768)
    assert b"tEXt" not in png


@pytest.mark.parametrize(
    "changed",
    [
        picture(*RUN.marks[:-1]),
        picture(*RUN.marks, cap_gb=250.0),
        picture(*RUN.marks[:-1], TrialMark(5, "neighbour", "fits", 3000.0, 200.0)),
        picture(*RUN.marks[:-1], TrialMark(5, "another rule", "rejected", None, 2000.0)),
    ],
    ids=["a trial", "the cap", "an outcome", "a rule"],
)
def test_what_changes_is_seen(changed: TrialsPicture):
    assert pixels(draw_trials(changed)) != pixels(draw_trials(RUN))


@pytest.mark.parametrize(
    "marks",
    [
        (),
        (TrialMark(0, "baseline", "rejected", None, None),),
        (fits(0, 1.0),),
        tuple(fits(n, 1000.0 + n) for n in range(200)),
    ],
    ids=["none", "one rejected", "one", "two hundred"],
)
def test_any_number_of_trials_can_be_drawn(marks: tuple[TrialMark, ...]):
    assert draw_trials(picture(*marks, cap_gb=None if not marks else CAP_GB))


@given(st.lists(st.tuples(st.sampled_from(["fits", "over", "rejected"]), st.floats(1, 1e6))))
def test_the_incumbent_is_the_running_maximum_over_fitting_trials(found):
    marks = [
        TrialMark(n, "r", outcome, None if outcome == "rejected" else value, 1.0)
        for n, (outcome, value) in enumerate(found)
    ]
    best = picture(*marks).incumbents()
    values = [value for _, value in best]
    assert values == sorted(set(values))
    fitting = [value for outcome, value in found if outcome == "fits"]
    assert (values[-1] if values else None) == (max(fitting) if fitting else None)
