"""What one configuration's memory implies of another's holds against the oracle."""

from functools import cache
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from projection.legality import LegalSpace
from schemas.search import AxisToggles, SearchSpec
from tasks.dominance import at_least_as_much_memory
from tasks.inputs import Inputs
from tests.builders import cluster, deepseek_v3, llama_70b, mixtral_8x22b, small_moe, trial

WORKLOADS = {
    "mixtral_8x22b": mixtral_8x22b,
    "llama_70b": llama_70b,
    "deepseek_v3": deepseek_v3,
    "small_moe": small_moe,
}


@cache
def parts(name: str) -> tuple[Any, LegalSpace, int]:
    nodes = 16 if name == "deepseek_v3" else 4
    search = SearchSpec(gemm_backend="tile", axes=AxisToggles(gbs=True))
    inputs = Inputs(WORKLOADS[name](), cluster(num_nodes=nodes), search)
    space = LegalSpace(inputs.workload, inputs.cluster, search)
    return inputs.oracle(), space, space.count()


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(WORKLOADS)), data=st.data())
def test_what_is_implied_not_to_need_less_memory_does_not_need_less(name: str, data: Any):
    oracle, space, size = parts(name)
    known = space[data.draw(st.integers(0, size - 1))]
    changes: dict[str, Any] = {
        "mbs": known.mbs * data.draw(st.sampled_from([1, 2, 4])),
        "gbs": known.gbs * data.draw(st.sampled_from([1, 2, 4])),
        "use_distributed_optimizer": known.use_distributed_optimizer and data.draw(st.booleans()),
        "cross_entropy_loss_fusion": known.cross_entropy_loss_fusion and data.draw(st.booleans()),
    }
    if known.recompute_num_layers > 0:
        changes["recompute_num_layers"] = data.draw(st.integers(1, known.recompute_num_layers))
    elif known.recompute_granularity == "selective" and data.draw(st.booleans()):
        changes |= {"recompute_granularity": "none", "recompute_modules": ()}
    candidate = known.model_copy(update=changes)
    assume(at_least_as_much_memory(candidate, known) is not None)
    less, more = oracle.memory(known), oracle.memory(candidate)
    assume(less.legal and more.legal)
    assert more.memory_per_gpu_gb >= less.memory_per_gpu_gb * (1 - 1e-9), changes


@pytest.mark.parametrize(
    ("changes", "knobs"),
    [
        ({"mbs": 4}, ("mbs",)),
        ({"mbs": 1}, None),
        ({"gbs": 256}, ("gbs",)),
        ({"use_distributed_optimizer": False}, ("use_distributed_optimizer",)),
        ({"mbs": 4, "cross_entropy_loss_fusion": False}, ("mbs", "cross_entropy_loss_fusion")),
        ({"mbs": 4, "tp": 2}, None),
        ({"tp": 1, "pp": 2}, None),
        ({"recompute_num_layers": 3}, ("recompute_num_layers",)),
        ({"recompute_num_layers": 5}, None),
        ({"recompute_granularity": "none", "recompute_num_layers": 0}, None),
    ],
)
def test_only_knobs_that_can_only_raise_memory_imply_anything(
    changes: dict[str, Any], knobs: tuple[str, ...] | None
):
    known = trial(
        mbs=2,
        recompute_granularity="full",
        recompute_method="block",
        recompute_num_layers=4,
    )
    assert at_least_as_much_memory(known.model_copy(update=changes), known) == knobs
