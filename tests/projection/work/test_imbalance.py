"""Expert load imbalance: what is assumed, and what there can be at most."""

import pytest

from projection.work.imbalance import moe_imbalance, most_uneven
from schemas.cluster import MoeImbalance
from tests.builders import cluster, deepseek_v3, small_moe
from tests.projection.time.cases import with_architecture


@pytest.mark.parametrize(
    ("experts", "topk", "ep", "most"),
    [
        (256, 8, 8, 8.0),  # 32 experts on a rank can take all eight copies of every token
        (8, 2, 8, 4.0),  # one expert takes one of two copies
        (64, 8, 64, 8.0),
        (4, 4, 2, 1.0),  # every token goes to every expert
        (8, 2, 1, 1.0),
    ],
)
def test_no_rank_gets_more_copies_than_there_are(
    experts: int, topk: int, ep: int, most: float
) -> None:
    workload = with_architecture(small_moe(), num_experts=experts, moe_router_topk=topk)
    assert most_uneven(workload.architecture, ep) == most
    given = cluster(moe_imbalance=MoeImbalance(layer=100.0, pooled=50.0))
    capped = moe_imbalance(workload, given, ep)
    assert (capped.layer, capped.pooled) == (most, most)
    assert moe_imbalance(workload, cluster(), ep).layer <= most


def test_what_there_can_be_is_taken_as_given() -> None:
    ratios = MoeImbalance(layer=2.5, pooled=1.2)
    assert moe_imbalance(deepseek_v3(), cluster(moe_imbalance=ratios), 8) == ratios
    assumed = moe_imbalance(deepseek_v3(), cluster(), 8)
    assert (assumed.layer, assumed.pooled) == (1.38, 1.05)
