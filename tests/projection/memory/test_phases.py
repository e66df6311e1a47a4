"""Phases of a step, what passes through it, and what a cluster file may set."""

import pytest

from projection.memory.lines import LINES
from schemas.cluster import MemoryOverheads
from schemas.workload import Precision
from tests.builders import llama_70b, mixtral_8x22b, small_dense, small_moe
from tests.projection.memory.reports import GIB, components, parameters_of, report, static_gb

PLAIN = {"use_torch_fsdp2": False, "use_distributed_optimizer": True}


def test_every_phase_has_a_total_and_the_largest_is_the_ranks() -> None:
    for rank in report(mixtral_8x22b()).ranks:
        assert set(rank.phases_gb) == {
            "init",
            "checkpoint_load",
            "first_step",
            "steady",
            "optimizer_step",
        }
        assert rank.phases_gb[rank.phase] == max(rank.phases_gb.values())
        assert rank.total_gb == pytest.approx(rank.phases_gb[rank.phase])


def test_loading_a_checkpoint_needs_every_state_and_no_activation() -> None:
    rank = report(mixtral_8x22b()).peak
    assert rank.phases_gb["checkpoint_load"] < rank.phases_gb["steady"]
    assert static_gb(rank) == pytest.approx(rank.phases_gb["optimizer_step"] - 1.3 - 1.0 - 3 * 0.65)


def test_a_model_that_shards_its_states_far_can_peak_while_it_is_built() -> None:
    """States over 64 GPUs, almost no activations: 2 + 2 + 4 B beat 2 + 4 + 12/64."""
    base = llama_70b(**PLAIN, tp=2, recompute_num_layers=80)
    short = base.model_copy(update={"seq_length": 128})
    peak = report(short, num_nodes=16).peak
    assert peak.phase == "init"
    parameters = parameters_of(short, 16)[0].parameters.total
    assert peak.components["weights_being_moved"] == pytest.approx(2 * parameters / GIB)
    assert "activations" not in peak.components
    unsharded = report(short, num_nodes=16, use_distributed_optimizer=False).peak
    assert unsharded.phase == "steady"


def test_gradients_reduced_in_bf16_halve_their_buffer_and_are_copied_to_step() -> None:
    workload = llama_70b(**PLAIN, tp=8, pp=4)
    halved = workload.model_copy(update={"precision": Precision(grad_reduce_in_bf16=True)})
    wide, narrow = report(workload).ranks[0], report(halved).ranks[0]
    assert narrow.components["gradients"] == pytest.approx(wide.components["gradients"] / 2)
    owned = narrow.components["optimizer"] + narrow.components["vocabulary_optimizer"]
    step = narrow.phases_gb["optimizer_step"] - narrow.phases_gb["checkpoint_load"]
    assert step == pytest.approx(owned / 12 * 4 * 1.055, rel=1e-6)
    plain = wide.phases_gb["optimizer_step"] - wide.phases_gb["checkpoint_load"]
    assert plain == pytest.approx(0)


def test_muon_orthogonalises_one_matrix_at_a_time() -> None:
    workload = llama_70b(**PLAIN, tp=8, pp=4)
    muon = workload.model_copy(update={"precision": Precision(optimizer="muon")})
    rank = report(muon).peak
    step = rank.phases_gb["optimizer_step"] - rank.phases_gb["checkpoint_load"]
    # The largest matrix is gate and up of the MLP, an eighth of it: [7168, 8192].
    newton_schulz = 2 * (2 * 7168 * 8192 + 2 * 7168 * 7168) / GIB
    assert step == pytest.approx(newton_schulz * 1.055)


def test_what_the_loss_saved_is_free_when_the_layers_run_backward() -> None:
    """Unfused: 6 B per logit at the loss, then none; the layers' transients do not come on top."""
    wide = small_dense(cross_entropy_loss_fusion=False)
    lines = components(report(wide, num_nodes=1))
    logits = 1024 * 32000 / GIB
    assert lines["logits"] == pytest.approx(2 * logits)
    assert lines["vocabulary_activations"] == pytest.approx(4 * logits, rel=0.05)
    assert "gradient_working_set" not in lines
    narrow = wide.model_copy(
        update={"architecture": wide.architecture.model_copy(update={"vocab_size": 128})}
    )
    lines = components(report(narrow, num_nodes=1))
    assert lines["gradient_working_set"] > 0
    assert lines["vocabulary_activations"] < 0.01


def test_recomputation_begins_when_the_layers_behind_it_are_done() -> None:
    """Block 13 of 14: the last layer's backward comes first, so its tensors and the recomputed
    layer's never exist together."""
    block = {"recompute_granularity": "full", "recompute_method": "block"}
    none = report(mixtral_8x22b(mbs=1), pp=1, ep=8, num_nodes=1, gbs=64).peak
    most = report(
        mixtral_8x22b(mbs=1), pp=1, ep=8, num_nodes=1, gbs=64, **block, recompute_num_layers=55
    ).peak
    layer = none.components["activations"] / 56
    assert most.components["activations"] == pytest.approx(layer)
    assert "recompute_working_set" not in most.components


def test_transients_move_with_what_they_are_made_of() -> None:
    base = small_moe(ep=2, etp=1, gbs=64)

    def lines(**knobs: object) -> dict[str, float]:
        narrow = base.architecture.model_copy(update={"vocab_size": 128})
        workload = base.model_copy(update={"architecture": narrow})
        return components(report(workload, num_nodes=1, **knobs))

    for name in ("expert_exchange", "gradient_working_set", "fragmentation"):
        assert lines(mbs=2)[name] > 1.5 * lines(mbs=1)[name]
    assert lines(ep=1).get("expert_exchange") is None
    assert lines(ep=4, use_turbo_deepep=True)["deepep_buffer"] == pytest.approx(
        2 * lines(ep=2, use_turbo_deepep=True)["deepep_buffer"]
    )
    assert lines(tp=2)["communicator_buffers"] == pytest.approx(
        lines()["communicator_buffers"] + 0.65
    )
    shards = {"use_torch_fsdp2": True, "use_distributed_optimizer": False}
    assert lines(**shards, ep=1)["fsdp_gather"] > lines(**shards, ep=2)["fsdp_gather"]


OVERRIDDEN = {
    "expert_exchange": {"ep": 8},
    "gradient_working_set": {},
    "recompute_working_set": {
        "recompute_granularity": "full",
        "recompute_method": "uniform",
        "recompute_num_layers": 14,
    },
    "deepep_buffer": {"use_turbo_deepep": True},
    "fsdp_gather": {"use_torch_fsdp2": True, "use_distributed_optimizer": False},
}


@pytest.mark.parametrize("name", sorted(OVERRIDDEN))
def test_a_transient_can_be_set_in_the_cluster_file(name: str) -> None:
    overheads = MemoryOverheads.model_validate({f"{name}_gb": 33.0})
    knobs = {**OVERRIDDEN[name], "mbs": 1}
    assert components(report(mixtral_8x22b(), overheads=overheads, **knobs))[name] == 33.0
    assert components(report(mixtral_8x22b(), **knobs))[name] != 33.0


def test_overheads_are_what_the_cluster_file_says() -> None:
    overheads = MemoryOverheads(
        framework_context_gb=2, first_communicator_gb=3, further_communicator_gb=1, fragmentation=0
    )
    lines = components(report(mixtral_8x22b(), overheads=overheads))
    # World, pipeline, data, expert: four communicators; expert data parallelism is one rank.
    assert lines["framework_context"] == 2
    assert lines["communicator_buffers"] == 3 + 3 * 1
    assert "fragmentation" not in lines


def test_every_override_is_a_field_of_the_cluster_file() -> None:
    named = {key for line in LINES.values() if line.override for key in line.override.split(", ")}
    # `logits_gb` and its like replace a line; the others feed one.
    assert named == set(MemoryOverheads.model_fields)
