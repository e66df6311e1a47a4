"""Measured rows: stated and assumed apart, assumptions by rule, nothing lost on the way."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.errors import UserError
from schemas.measured import SETTINGS, MeasuredRow
from tasks.evidence import evidence, read_rows, sources
from tasks.evidence.read import assumption_rules
from tasks.evidence.rules import Rule, assume, check
from tasks.fidelity.cases import case_of, left_out
from tasks.fidelity.predict import Projector, Refused

ROW = {
    "id": "mine-1",
    "model": "llama3.1_8B",
    "architecture": "llama3.1_8B",
    "gpu": "mi355x",
    "precision": "fp8",
    "world_size": 8,
    "gpus_per_node": 8,
    "framework": "Primus (Megatron-LM)",
    "stated": {"tp": 2, "mbs": 2, "gbs": 128},
    "tokens_per_s_per_gpu": 20000.0,
}


def read(folder: Path, *rows: dict[str, Any]) -> list[MeasuredRow]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return list(read_rows(path))


def test_every_shipped_row_says_where_it_is_from_and_what_was_measured() -> None:
    rows = evidence()
    assert len({row.id for row in rows}) == len(rows) > 700
    assert all(row.citation for row in rows)
    assert {"paper-points", "megatron-a100", "vtrain", "llm-foundry"} <= {*sources(rows)}


def test_every_comparable_row_has_every_setting_of_a_trial() -> None:
    from schemas.trial import NormalTrial

    needed = NormalTrial.model_fields.keys()
    for row in evidence():
        known = row.stated.keys() | row.assumed.keys()
        assert needed - known <= {"mbs", "gbs"}, row.id


def test_what_is_stated_is_never_assumed() -> None:
    assert all(not row.stated.keys() & row.assumed.keys() for row in evidence())
    with pytest.raises(ValidationError, match="stated and assumed: tp"):
        MeasuredRow.model_validate(
            evidence()[0].model_dump()
            | {"stated": {"tp": 1}, "assumed": {"tp": {"value": 1, "why": "because"}}}
        )


def test_a_setting_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"rows\.jsonl:1: no such setting: 'tpp'"):
        read(tmp_path, ROW | {"stated": {"tpp": 2}})


def test_the_same_run_is_not_counted_twice() -> None:
    seen: set[tuple[object, ...]] = set()
    for row in evidence():
        figure = row.iteration_ms or row.tokens_per_s_per_gpu
        stated = tuple(sorted((name, str(value)) for name, value in row.stated.items()))
        if figure is not None:
            assert (row.group, figure, stated) not in seen, row.id
            seen.add((row.group, figure, stated))


def test_paper_and_public_collection_are_merged_where_they_print_one_run() -> None:
    merged = {row.id: row for row in evidence()}["llama70b-fp8-mi325x-64"]
    assert merged.also == ("primus-projection-blog-0003",)


@given(st.floats(1, 1e6), st.text(max_size=20))
def test_assumptions_do_not_depend_on_what_was_measured(figure: float, name: str) -> None:
    rules = assumption_rules()
    changed = ROW | {"id": name, "tokens_per_s_per_gpu": figure, "iteration_ms": figure}
    assert assume(rules, ROW, None) == assume(rules, changed, None)


def test_a_rule_about_a_figure_is_refused() -> None:
    for name in ("id", "tokens_per_s_per_gpu", "iteration_ms", "memory_gb"):
        rule = Rule(when={name: 1}, why="to fit", settings={"mbs": 1})
        with pytest.raises(ValueError, match=f"a rule cannot look at '{name}'"):
            check([rule])


def test_every_assumption_has_a_reason_and_a_known_name() -> None:
    for rule in assumption_rules():
        assert rule.why
        assert rule.settings.keys() <= SETTINGS
        for name, values in rule.plausible.items():
            assert rule.settings[name] in values, rule.why


def test_later_rules_see_what_earlier_ones_assumed_and_no_rule_moves_what_is_stated() -> None:
    rules = [
        Rule(why="first", settings={"vpp": 2, "tp": 4}),
        Rule(when={"interleaved": True}, why="then", settings={"pp_schedule": "interleaved"}),
        Rule(when={"tp": 4}, why="never", settings={"cp": 8}),
    ]
    found = assume(rules, ROW, None)
    assert {name: each.value for name, each in found.items()} == {
        "vpp": 2,
        "pp_schedule": "interleaved",
    }


def test_the_recipe_of_model_and_gpu_fills_in_what_is_unstated(tmp_path: Path) -> None:
    (row,) = read(tmp_path, ROW)
    assert row.assumed["seq_length"].value == 8192
    assert "MI355X/llama3.1_8B-FP8" in row.assumed["seq_length"].why
    assert row.settings()["mbs"] == 2


def test_a_recipe_of_megatron_says_nothing_of_another_framework(tmp_path: Path) -> None:
    (row,) = read(tmp_path, ROW | {"framework": "torchtitan"})
    assert "seq_length" not in row.assumed


def test_changes_move_what_is_assumed_alone(tmp_path: Path) -> None:
    (row,) = read(tmp_path, ROW)
    changed = row.settings({"vpp": 4, "mbs": 99})
    assert (changed["vpp"], changed["mbs"]) == (4, 2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "rows.jsonl:1: not JSON"),
        ("[]", "rows.jsonl:1: expected an object with the settings under `stated`"),
        ('{"stated": {}, "assumed": {}}', "assumptions come from rules, not from rows"),
        ('{"stated": {}}', "rows.jsonl:1: id: "),
        ('{"stated": {}, "id": "a", "id": "b"}', "the key 'id' is set twice"),
        ("[" * 100_000, "rows.jsonl:1: not JSON"),
        ('{"id": ' + "9" * 5000 + "}", "rows.jsonl:1: not JSON"),
        ('{"stated": {}, "architecture": "gpt5"}', "gpt5"),
    ],
)
def test_a_row_that_is_none_says_which_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(text + "\n")
    with pytest.raises(UserError) as caught:
        list(read_rows(path))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


GARBAGE: tuple[object, ...] = (None, True, "x", "8", 1.5, (1,), ("a",), float("nan"), {"a": 1})


@pytest.mark.parametrize(
    "name", ["tp", "vpp", "gbs", "seq_length", "pod_bw", "fp8", "params_dtype"]
)
def test_no_setting_takes_a_value_of_another_kind(tmp_path: Path, name: str) -> None:
    kinds = {"pod_bw": (1.5,), "fp8": (), "params_dtype": ()}.get(name, ())
    for value in GARBAGE:
        if value in kinds:
            continue
        with pytest.raises(UserError, match=rf"rows\.jsonl:1: stated\.{name}: expected "):
            read(tmp_path, ROW | {"stated": {name: value}})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"id": "a\nb"}, "id: expected one line"),
        ({"id": "a\x1b[31m"}, "id: expected one line"),
        ({"source": "\ud800"}, "source: expected one line"),
        ({"model": " "}, "model: expected a name"),
        ({"tokens_per_s_per_gpu": 0}, "expected at least"),
        ({"tokens_per_s_per_gpu": 1e300}, "expected at most"),
        ({"iteration_ms": 1e-300}, "expected at least"),
        ({"tokens_per_s_per_gpu": float("inf")}, "expected a finite number"),
        ({"architecture": "llama3.1_8"}, "no architecture is called 'llama3.1_8'"),
        ({"architecture": "../models/llama3.1_8B"}, "no architecture is called"),
        ({"architecture": [1]}, "architecture: expected a name"),
        ({"architecture": {"preset": "grok1", "num_layers": "x"}}, "expected a whole number"),
        ({"stated": {"node_bw": 0}}, "stated.node_bw: expected at least"),
    ],
)
def test_a_row_no_run_can_have_is_refused_in_one_line(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError) as caught:
        read(tmp_path, ROW | changes)
    assert says in str(caught.value)
    assert str(caught.value).isprintable()


def test_two_rows_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"rows\.jsonl:2: id 'mine-1' is that of line 1"):
        read(tmp_path, ROW, ROW | {"gpu": "mi325x"})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"world_size": 12}, "no whole number of nodes"),
        ({"stated": ROW["stated"] | {"pp": 2, "vpp": 10**12}}, "stages of 32 layers"),
    ],
)
def test_a_row_that_contradicts_itself_is_left_out(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    (row,) = read(tmp_path, ROW | changes)
    assert reason in str(left_out(row))


def test_a_time_and_a_rate_of_two_runs_are_left_out(tmp_path: Path) -> None:
    (row,) = read(tmp_path, ROW | {"iteration_ms": 3.0})
    found = Projector(backend="tile").row(row)
    assert isinstance(found, Refused)
    assert "not of one run" in found.reason


def test_fewer_gpus_than_a_node_has_are_projected_as_so_many(tmp_path: Path) -> None:
    (row,) = read(tmp_path, ROW | {"world_size": 4})
    assert case_of(row).cluster.world_size == 4


def test_a_proxy_of_a_preset_has_as_many_layers_of_each_kind_as_layers(tmp_path: Path) -> None:
    proxy = {"preset": "grok1", "name": "grok1 (proxy)", "num_layers": 2}
    (row,) = read(tmp_path, ROW | {"architecture": proxy})
    assert row.architecture is not None
    assert len(row.architecture.moe_layers) == row.architecture.num_layers == 2
