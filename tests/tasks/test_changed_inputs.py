from pathlib import Path

import pytest

from projection.legality import LegalSpace
from schemas.errors import UserError
from tasks.changed_inputs import with_cluster, with_settings, with_workload
from tasks.inputs import Inputs, resolve_pair
from tasks.seed_plan.pins import refuse_impossible_pins
from tests.end_to_end.files import write_inputs

CALLS = "search.budget.max_perf_calls"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    workload, cluster = write_inputs(tmp_path_factory.mktemp("inputs"))
    return resolve_pair(workload, cluster, gemm_backend="tile")


WRONG = {
    "": "is not search.PATH=VALUE",
    "=": "is not search.PATH=VALUE",
    "search=1": "is not search.PATH=VALUE",
    "search.=1": "is not search.PATH=VALUE",
    "ünïcode.x=1": "is not search.PATH=VALUE",
    f"{CALLS}": "is not search.PATH=VALUE",
    f"{CALLS}=": "is not search.PATH=VALUE",
    f"{CALLS}= ": "is not search.PATH=VALUE",
    "search..x=1": "there is no '' to set",
    "search.büdget.x=1": "there is no 'büdget' to set",
    "search.budget.nope=1": "there is no 'nope' to set",
    "search.budget={}": "set what is below it, as search.budget.seed_budget",
    "search.axes=false": "set what is below it, as search.axes.tp",
    "cluster.stack=7": "set what is below it, as cluster.stack.rocm",
    f"{CALLS}.x=1": "max_perf_calls has nothing below it",
    f"{CALLS}=abc": "expected a whole number, got 'abc'",
    f"{CALLS}=Ⅷ": "expected a whole number, got 'Ⅷ'",
    f"{CALLS}=1.5": "expected a whole number, got 1.5",
    f"{CALLS}=-1": "expected at least 0, got -1",
    f"{CALLS}=yes": "expected another value, got true",
    f"{CALLS}=[1]": "expected a whole number, got [1]",
    f"{CALLS}={{a: 1}}": "expected a whole number",
    f"{CALLS}=.nan": "is not a value a setting can have",
    f"{CALLS}=1{'0' * 30}": "expected at most 1000000000000",
    f"{CALLS}={'9' * 5000}": "is not a valid value",
    f"{CALLS}=2001-99-99": "expected a whole number",
    f"{CALLS}=&a [*a]": "the alias *a is inside its own anchor",
    f"{CALLS}=*a": "the alias *a has no anchor above it",
    f"{CALLS}={'[' * 3000}": "not YAML",
    f"{CALLS}=!!python/object:os.system x": "not YAML",
    f"{CALLS}=1\n---\n2": "a second YAML document",
    f"{CALLS}=\0": "not YAML",
    f"{CALLS}=\udcff": "not UTF-8 text",
    "search.budget.max_wall_clock_s=.inf": "is not a value a setting can have",
    "search.budget.seed_budget=0": "expected at least 1",
    "search.pinned=3": "expected a mapping",
    "search.pinned.nope=1": "search.pinned.nope: unknown key",
    "search.pinned.tp=abc": "search.pinned.tp: expected a whole number, got 'abc'",
    "search.pinned.tp=true": "search.pinned.tp: expected another value",
    "search.pinned.tp=0": "search.pinned.tp: expected at least 1",
    "search.pinned.tp.x=1": "there is no 'tp' to set",
    "search.pinned.tp=3": "pinned.tp: 3 is not legal on pod",
    "search.pinned.pp_schedule=nope": "'nope' is not a schedule",
    "search.axes.tpp=true": "there is no 'tpp' to set",
    "search.axes.tp=maybe": "expected true or false",
    "search.max_gbs=0": "expected more than 0",
    "search.mode=quick": "expected one of 'dry', 'memory-real', 'full'",
    "search.proposer=llm": "there is no 'proposer' to set",
    "search.prompt_extras=abc": "expected a list",
    "cluster.num_nodes=3": "there is no 'num_nodes' to set",
    "cluster.memory_safety_margin=1": "expected less than 1",
    "cluster.gpu_hour_price=1e30": "expected at most 1000000",
    f"cluster.stack.rocm={'x' * 500}: y: z": "not YAML",
    f"search.{'a.' * 3000}b=1": "there is no 'a' to set",
}


def possible(inputs: Inputs) -> None:
    """As a fork checks its inputs before it begins."""
    refuse_impossible_pins(LegalSpace(inputs.workload, inputs.cluster, inputs.search))


@pytest.mark.parametrize("assignment", WRONG, ids=range(len(WRONG)))
def test_a_wrong_setting_is_one_short_line_that_says_what(inputs: Inputs, assignment: str) -> None:
    with pytest.raises(UserError) as refused:
        possible(with_settings(inputs, [assignment]))
    line = str(refused.value)
    assert WRONG[assignment] in line
    assert "\n" not in line
    assert len(line) < 420
    assert refused.value.exit_code == 2


def test_the_nearest_right_name_is_offered(inputs: Inputs) -> None:
    with pytest.raises(UserError) as refused:
        with_settings(inputs, ["search.budget.max_perf_call=3"])
    assert refused.value.hint == "did you mean max_perf_calls?"


def test_settings_change_what_they_name_and_nothing_else(inputs: Inputs) -> None:
    changed = with_settings(
        inputs,
        [
            f"{CALLS}=60",
            "search.pinned.tp=2",
            "search.axes.ep=false",
            "search.prompt_extras=[one, two]",
            "cluster.gpu_hour_price=2.5",
            'cluster.stack.rocm="7.0"',
        ],
    )
    search, cluster = inputs.search, inputs.cluster
    assert changed.search == search.model_copy(
        update={
            "budget": search.budget.model_copy(update={"max_perf_calls": 60}),
            "pinned": {"tp": 2},
            "axes": search.axes.model_copy(update={"ep": False}),
            "prompt_extras": ("one", "two"),
        }
    )
    stack = cluster.stack.model_copy(update={"rocm": "7.0"})
    assert changed.cluster == cluster.model_copy(update={"gpu_hour_price": 2.5, "stack": stack})
    assert changed.workload == inputs.workload


def test_later_settings_go_over_earlier_ones_and_the_same_value_changes_nothing(
    inputs: Inputs,
) -> None:
    before = inputs.search.budget.max_perf_calls
    changed = with_settings(inputs, [f"{CALLS}=60", f"{CALLS}={before}"])
    assert (changed.search, changed.cluster) == (inputs.search, inputs.cluster)


def test_a_knob_is_unpinned_by_null_and_all_of_them_by_an_empty_mapping(inputs: Inputs) -> None:
    pinned = with_settings(inputs, ["search.pinned.tp=2", "search.pinned.pp=4"])
    assert pinned.search.pinned == {"tp": 2, "pp": 4}
    assert with_settings(pinned, ["search.pinned.tp=null"]).search.pinned == {"pp": 4}
    assert with_settings(pinned, ["search.pinned={}"]).search.pinned == {}
    assert with_settings(inputs, ["search.pinned.tp=null"]).search.pinned == {}


def test_another_cluster_file_brings_its_search_but_not_what_the_command_line_said(
    inputs: Inputs, tmp_path: Path
) -> None:
    _, cluster = write_inputs(tmp_path, nodes=8, optimization={"budget": {"seed_budget": 3}})
    changed = with_cluster(inputs, cluster)
    assert changed.cluster.num_nodes == 8
    assert changed.search.budget.seed_budget == 3
    assert changed.search.gemm_backend == "tile"
    assert set(changed.files) & set(inputs.files) == set(inputs.workload.files) & set(inputs.files)
    assert str(cluster) in changed.files


def test_another_workload_file_leaves_cluster_and_search(inputs: Inputs, tmp_path: Path) -> None:
    workload, _ = write_inputs(tmp_path, overrides={"seq_length": 4096})
    changed = with_workload(inputs, workload, ())
    assert changed.workload.seq_length == 4096
    assert (changed.cluster, changed.search) == (inputs.cluster, inputs.search)
    assert str(workload) in changed.files
    assert inputs.workload.source not in changed.files
