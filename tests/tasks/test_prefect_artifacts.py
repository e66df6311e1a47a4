"""What Prefect's pages show of a search: what its exports hold, in Prefect's own forms."""

import base64
import re
from dataclasses import replace

import pytest

from flows.artefacts import closing_text, workload_of
from schemas.workload import Workload
from storage import EventLog
from tasks.prefect_artifacts import (
    BEST_TRIALS,
    artifact_key,
    best_trials_table,
    escaped,
    fenced,
    picture_markdown,
    search_summary,
)
from tests.end_to_end.made_once import Uninterrupted


@pytest.fixture
def workload(uninterrupted: Uninterrupted) -> Workload:
    return workload_of(
        EventLog.open(uninterrupted.store, uninterrupted.run_id), uninterrupted.state
    )


def test_the_table_has_the_best_trials_best_first_and_what_they_change(
    uninterrupted: Uninterrupted, workload: Workload
):
    table = best_trials_table(uninterrupted.state, workload)
    ranked = uninterrupted.state.ranked()
    assert [row["trial"] for row in table] == [trial.number for trial in ranked][:BEST_TRIALS]
    best = ranked[0].evaluation
    assert best is not None
    assert best.memory_per_gpu_gb is not None
    first = table[0]
    assert first["tokens/s/GPU"] == pytest.approx(best.tokens_per_s_per_gpu, abs=0.05)
    assert first["GB/GPU"] == pytest.approx(best.memory_per_gpu_gb, abs=0.05)
    assert first["headroom GB"] == pytest.approx(best.cap_gb - best.memory_per_gpu_gb, abs=0.05)
    assert first["provenance"] == best.provenance
    changes = str(first["differs from the workload"])
    assert f"mbs={ranked[0].proposed.config.mbs}" in changes.split(", ")
    assert "tp=" not in changes


def test_a_run_in_which_nothing_may_win_has_an_empty_table_and_says_why(
    uninterrupted: Uninterrupted, workload: Workload
):
    rejected = {n: t for n, t in uninterrupted.state.trials.items() if t.rejected is not None}
    state = replace(uninterrupted.state, trials=rejected, incumbent=None)
    assert best_trials_table(state, workload) == []
    assert "NO LEGAL CONFIGURATION" in search_summary(state, workload)


def test_the_summary_holds_what_the_command_line_says_and_how_to_go_on(
    uninterrupted: Uninterrupted, workload: Workload
):
    state = uninterrupted.state
    summary = search_summary(state, workload)
    assert closing_text(state, workload).rstrip() in summary
    for verb in ("lineage", "show", "export", "verify"):
        assert f"`refold {verb} {state.run_id}`" in summary
    assert "refold resume" not in summary
    unfinished = replace(state, finished=None)
    assert f"`refold resume {state.run_id}`" in search_summary(unfinished, workload)


def test_the_picture_is_a_small_png_in_markdown(uninterrupted: Uninterrupted):
    text = picture_markdown(uninterrupted.state)
    match = re.fullmatch(r"!\[trials\]\(data:image/png;base64,([A-Za-z0-9+/=]+)\)\n", text)
    assert match is not None
    assert base64.b64decode(match[1]).startswith(b"\x89PNG")
    assert len(text) < 100_000


def test_a_key_names_the_pair_in_the_letters_prefect_takes():
    assert artifact_key("best", "mixtral_8x22B-pretrain", "mi355x_4nodes") == (
        "refold-mixtral-8x22b-pretrain-mi355x-4nodes-best"
    )


def test_names_that_lose_their_letters_or_are_long_keep_keys_of_their_own():
    strange = [("混合", "a"), ("模型", "a"), ("x" * 300, "a"), ("x" * 301, "a"), ("_", "_")]
    keys = [artifact_key("best", *names) for names in strange]
    assert len(set(keys)) == len(keys)
    for key in keys:
        assert re.fullmatch(r"refold-[a-z0-9]+(-[a-z0-9]+)*-best", key)
        assert len(key) < 150


def test_a_name_cannot_become_markdown_nor_end_a_block():
    assert escaped("a_b <img src=x>\n# c") == r"a\_b \<img src=x\> \# c"
    text = "one\n```\ntwo\n````"
    fence, *lines, end = fenced(text).splitlines()
    assert fence == "`````text"
    assert end == "`````"
    assert lines == text.splitlines()
