"""What of a model's candidates is one."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projection.legality import normalise
from schemas.errors import UserError
from schemas.trial import TrialConfig
from schemas.workload import Workload
from tasks.llm.proposals import read_candidates, read_config
from tests.builders import llama_70b, mixtral_8x22b

ANY = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=10),
    st.lists(st.integers(-2, 99), max_size=4),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.sampled_from(["auto", "zbv-formatted", "full", "block", "hybrid", "Et*3|t", "core_attn"]),
)
KNOBS = st.dictionaries(st.sampled_from(sorted(TrialConfig.model_fields)), ANY, max_size=5)


@settings(max_examples=300, deadline=None)
@given(knobs=KNOBS, workload=st.sampled_from([mixtral_8x22b(), llama_70b()]))
def test_whatever_is_taken_for_a_configuration_has_a_normal_form(
    knobs: dict[str, Any], workload: Workload
):
    try:
        config = read_config(knobs)
    except UserError:
        return
    normalise(config, workload)


@pytest.mark.parametrize("number", ["4", " +4 ", "04"])
def test_numbers_may_be_spelled_as_words(number: str):
    assert read_config({"tp": number}).tp == 4


@pytest.mark.parametrize("word", ["²", "+-4", "٤", "4.5", "four"])
def test_what_only_looks_like_a_number_is_refused(word: str):
    with pytest.raises(UserError):
        read_config({"tp": word})


def test_an_unknown_schedule_costs_its_own_candidate_and_no_other():
    sent = [{"pp_schedule": "zbv formated", "vpp": 2}, {"mbs": 1}]
    taken, refused = read_candidates(sent, "llm")
    assert [candidate.config for candidate in taken] == [TrialConfig(mbs=1)]
    assert "did you mean 'zbv-formatted'" in refused[0].why
