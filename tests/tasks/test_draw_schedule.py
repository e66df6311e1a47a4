"""The picture of a schedule: the same run is the same bytes, of any length."""

import struct
import xml.etree.ElementTree as ElementTree

import pytest

from projection.schedules import EqualStages
from schemas.trial import Schedule
from tasks.draw_schedule import COLOURS, DPI, WIDTHS_IN, draw_schedule, windows
from tasks.schedule_runs import ImpossibleRun, compare_plain, run_plain


def picture(name: Schedule = "1f1b", pp: int = 4, m: int = 8, f: float = 1.0):
    return run_plain(EqualStages(pp, m, f, 1.2 * f, 0.8 * f, 0.1 * f), name).picture()


def svg(name: Schedule = "1f1b", pp: int = 4, m: int = 8) -> str:
    return draw_schedule(picture(name, pp, m), "svg").decode()


@pytest.mark.parametrize("file_format", ["png", "svg"])
def test_redrawing_gives_the_same_bytes_whatever_the_style(file_format):
    import matplotlib

    expected = draw_schedule(picture("zbv-formatted"), file_format)
    with matplotlib.rc_context({"font.size": 22, "axes.facecolor": "black", "savefig.dpi": 40}):
        assert draw_schedule(picture("zbv-formatted"), file_format) == expected
    assert b"matplotlib.org" not in expected.replace(b"http://www.w3.org", b"")[:300]


def test_every_kind_of_pass_and_idle_is_drawn_in_its_colour():
    whole, split = svg("1f1b"), svg("zero-bubble")
    assert COLOURS["BW"].lower() in whole
    assert COLOURS["W"].lower() not in whole
    assert all(COLOURS[kind].lower() in split for kind in "FBW")
    assert ElementTree.fromstring(split).tag.endswith("svg")


def test_a_second_chunk_is_lighter():
    assert "#73b1d5" in svg("interleaved")
    assert "#73b1d5" not in svg("1f1b")


def width_px(png: bytes) -> int:
    width: int = struct.unpack(">I", png[16:20])[0]
    return width


def test_a_picture_widens_with_its_passes_up_to_a_limit():
    few, more, most = (draw_schedule(picture(m=m), "png") for m in (2, 30, 200))
    assert width_px(few) == WIDTHS_IN[0] * DPI
    assert width_px(few) < width_px(more) < width_px(most) == WIDTHS_IN[1] * DPI


def test_of_a_long_run_start_and_end_are_drawn():
    short, long = picture(m=30), picture(m=400)
    assert windows(short) == [(0.0, short.makespan_ms)]
    (begin, left), (right, end) = windows(long)
    assert (begin, end) == (0.0, long.makespan_ms)
    assert 0 < left < right < end
    # As many passes as have room, so that each is as wide as in the fullest picture of a whole run.
    assert left / long.makespan_ms == pytest.approx(90 / 800)


def test_a_pipeline_of_one_rank_and_one_that_takes_no_time_can_be_drawn():
    assert width_px(draw_schedule(picture(pp=1, m=1), "png")) > 0
    assert width_px(draw_schedule(picture(f=0.0), "png")) > 0


def test_the_title_says_how_good_a_solved_order_is():
    assert "gap 0.0%" in picture("ilp").subtitle


def test_comparing_says_which_schedule_cannot_have_these_chunks():
    runs = compare_plain(EqualStages(4, 8, 1, 1, 1), ("1f1b", "interleaved"), vpp=1)
    assert isinstance(runs[1], ImpossibleRun)
    assert runs[1].as_dict()["impossible"] == "schedule 'interleaved' needs VPP above 1, not VPP 1"
