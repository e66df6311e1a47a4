"""The one description of a layer's work: parameters, GEMMs, saved tensors, collectives."""

from dataclasses import replace

import pytest

from projection import parameters
from projection.operations import (
    AttentionCore,
    Collective,
    Gemm,
    LayerWork,
    MemoryPass,
    SavedTensor,
    distinct_ranks,
)
from projection.parameters import Shards
from projection.work.layer import EMBEDDING, OUTPUT, LayerKind, kind_of_layer, layer_work
from projection.work.moe import exchange_bytes, routing
from projection.work.shape import Dispatcher, WorkShape
from schemas.architecture import Architecture
from tests.builders import deepseek_v3, llama_70b, mixtral_architecture

GPT = Architecture(
    name="gpt",
    num_layers=4,
    hidden_size=1024,
    ffn_hidden_size=4096,
    num_attention_heads=16,
    num_query_groups=16,
    kv_channels=64,
    vocab_size=51200,
    gated_mlp=False,
    normalization="LayerNorm",
    add_bias_linear=True,
)
LLAMA = llama_70b().architecture
DEEPSEEK = deepseek_v3().architecture
ARCHITECTURES = {
    "gpt": GPT,
    "gated-sandwich": LLAMA.model_copy(
        update={"attention_output_gate": True, "sandwich_norm": True, "qk_layernorm": True}
    ),
    "llama": LLAMA,
    "mixtral": mixtral_architecture(),
    "deepseek": DEEPSEEK,
}
SHAPE = WorkShape(micro_batch=2, seq_length=4096, padded_vocab=128256)


def sharded(**sizes: int) -> WorkShape:
    return replace(SHAPE, sequence_parallel=sizes.get("tp", 1) > 1, **sizes)


def gemm_flops(layer: LayerWork, phase: str) -> float:
    return sum(
        2.0 * op.m * op.n * op.k * op.batch
        for module in layer.modules
        for op in getattr(module, phase)
        if isinstance(op, Gemm)
    )


def saved(layer: LayerWork) -> dict[str, float]:
    tensors: list[SavedTensor] = [t for module in layer.modules for t in module.saved]
    assert len({t.name for t in tensors}) == len(tensors)
    return {tensor.name: tensor.num_bytes for tensor in tensors}


def collectives(layer: LayerWork, phase: str) -> list[Collective]:
    operations = [op for module in layer.modules for op in getattr(module, phase)]
    return [op for op in operations if isinstance(op, Collective)]


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("sizes", [{}, {"tp": 4, "etp": 4}, {"tp": 2, "ep": 4}, {"cp": 2, "ep": 8}])
def test_a_layers_modules_hold_exactly_the_layers_parameters(
    name: str, sizes: dict[str, int]
) -> None:
    architecture, shape = ARCHITECTURES[name], sharded(**sizes)
    moe = architecture.is_moe
    layer = layer_work(architecture, shape, LayerKind("decoder", moe))
    owned = parameters.add(*(module.parameters for module in layer.modules))
    shards = Shards(shape.tp, shape.ep, shape.etp)
    expected = parameters.layer(architecture, shards, moe=moe)
    assert owned.tp_sharded == pytest.approx(expected.tp_sharded)
    assert owned.replicated == pytest.approx(expected.replicated)
    assert owned.routed_experts == pytest.approx(expected.routed_experts)


@pytest.mark.parametrize("name", ["gpt", "llama", "gated-sandwich", "mixtral", "deepseek"])
def test_forward_gemms_do_two_flops_per_weight_a_token_passes_through(name: str) -> None:
    architecture = ARCHITECTURES[name]
    moe = architecture.is_moe
    layer = layer_work(architecture, SHAPE, LayerKind("decoder", moe))
    whole = parameters.layer(architecture, Shards(), moe=moe)
    share = architecture.moe_router_topk / architecture.num_experts if moe else 0
    active = whole.dense + whole.routed_experts * share
    # Norms and biases are parameters that no GEMM multiplies.
    assert gemm_flops(layer, "forward") == pytest.approx(2 * SHAPE.tokens * active, rel=2e-3)


@pytest.mark.parametrize("name", ["gpt", "llama", "mixtral", "deepseek"])
def test_backward_is_an_input_gradient_and_a_weight_gradient_of_the_same_size(name: str) -> None:
    kind = LayerKind("decoder", ARCHITECTURES[name].is_moe)
    layer = layer_work(ARCHITECTURES[name], SHAPE, kind)
    forward = gemm_flops(layer, "forward")
    assert gemm_flops(layer, "input_grad") == pytest.approx(forward)
    assert gemm_flops(layer, "weight_grad") == pytest.approx(forward)


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_tensor_parallelism_divides_widths_and_not_tokens(tp: int) -> None:
    whole = layer_work(LLAMA, SHAPE, LayerKind("decoder"))
    part = layer_work(LLAMA, sharded(tp=tp), LayerKind("decoder"))
    assert gemm_flops(part, "forward") * tp == pytest.approx(gemm_flops(whole, "forward"))
    rows = {op.m for m in part.modules for op in m.forward if isinstance(op, Gemm)}
    assert rows == {SHAPE.tokens}


def test_experts_are_shared_over_ranks_without_losing_a_token() -> None:
    architecture = mixtral_architecture()
    whole = gemm_flops(layer_work(architecture, SHAPE, LayerKind("decoder", True)), "forward")
    for sizes in ({"ep": 8}, {"ep": 4}, {"tp": 2, "ep": 4, "etp": 1}, {"tp": 2, "ep": 4, "etp": 2}):
        layer = layer_work(architecture, sharded(**sizes), LayerKind("decoder", True))
        tp = sizes.get("tp", 1)
        assert gemm_flops(layer, "forward") * tp == pytest.approx(whole, rel=1e-3), sizes


def test_context_parallelism_divides_attention_by_cp_and_not_by_its_square() -> None:
    for style in ("p2p", "a2a", "allgather"):
        shape = replace(SHAPE, cp=4, cp_comm=style)
        layer = layer_work(LLAMA, shape, LayerKind("decoder"))
        core = next(op for m in layer.modules for op in m.forward if isinstance(op, AttentionCore))
        pairs = core.batch * core.heads * core.seq_q * core.seq_kv
        assert pairs * 4 == 2 * 64 * 4096 * 4096, style


def test_ring_attention_sends_keys_and_values_once_per_step() -> None:
    layer = layer_work(LLAMA, replace(SHAPE, cp=4), LayerKind("decoder"))
    ring = [op for op in collectives(layer, "forward") if op.group == "cp"]
    tokens, key_value_width = 2 * 4096 // 4, 2 * 8 * 128
    assert [op.num_bytes for op in ring] == [2 * tokens * key_value_width] * 3
    assert all(op.overlappable for op in ring)


def test_sequence_parallelism_gathers_and_scatters_what_was_all_reduced() -> None:
    plain = layer_work(LLAMA, replace(SHAPE, tp=4), LayerKind("decoder"))
    split = layer_work(LLAMA, sharded(tp=4), LayerKind("decoder"))
    block = 2 * SHAPE.tokens * LLAMA.hidden_size
    assert [op.kind for op in collectives(plain, "forward")] == ["allreduce"] * 2
    assert [op.kind for op in collectives(split, "forward")] == [
        "allgather",
        "reduce_scatter",
    ] * 2
    assert {op.num_bytes for op in collectives(plain, "forward")} == {block}
    assert {op.num_bytes for op in collectives(split, "forward")} == {block}


@pytest.mark.parametrize("tp", [1, 8])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_unfused_attention_with_dropout_saves_the_published_closed_form(
    tp: int, sequence_parallel: bool
) -> None:
    """Korthikanti et al. 2022, eq. 1, 2, 4: s·b·h·(10 + 24/t + 5·a·s/(h·t)), or all of it / t."""
    shape = WorkShape(
        micro_batch=4,
        seq_length=2048,
        padded_vocab=51200,
        tp=tp,
        sequence_parallel=sequence_parallel and tp > 1,
        flash_attention=False,
        attention_dropout=True,
        hidden_dropout=True,
    )
    layer = layer_work(GPT, shape, LayerKind("decoder"))
    s, b, h, a = 2048, 4, 1024, 16
    scores = 5 * a * s / h
    split = sequence_parallel and tp > 1
    per_element = (34 + scores) / tp if split else 10 + (24 + scores) / tp
    assert sum(saved(layer).values()) == pytest.approx(s * b * h * per_element, rel=1e-3)


def test_flash_attention_saves_nothing_quadratic_in_the_sequence() -> None:
    def kept(seq: int) -> float:
        shape = replace(SHAPE, seq_length=seq)
        return sum(saved(layer_work(LLAMA, shape, LayerKind("decoder"))).values())

    assert kept(8192) == pytest.approx(2 * kept(4096))


def test_routed_tokens_are_kept_once_per_expert_they_visit() -> None:
    architecture = mixtral_architecture()
    tensors = saved(layer_work(architecture, sharded(ep=8), LayerKind("decoder", True)))
    tokens, k, hidden, ffn = SHAPE.tokens, 2, 6144, 16384
    assert tensors["expert_input"] == 2 * tokens * k * hidden
    assert tensors["experts_hidden"] == 2 * tokens * k * 2 * ffn
    assert tensors["experts_activation"] == 2 * tokens * k * ffn


def test_a_shared_expert_has_its_own_width() -> None:
    wide = DEEPSEEK.model_copy(update={"shared_expert_hidden_size": 3 * 2048})
    kind = LayerKind("decoder", True)
    narrow_saved, wide_saved = (
        saved(layer_work(architecture, sharded(ep=8), kind)) for architecture in (DEEPSEEK, wide)
    )
    assert wide_saved["shared_hidden"] == 3 * narrow_saved["shared_hidden"]
    assert wide_saved["experts_hidden"] == narrow_saved["experts_hidden"]


def test_fp8_keeps_linear_inputs_in_one_byte_and_attention_in_two() -> None:
    bf16 = saved(layer_work(LLAMA, SHAPE, LayerKind("decoder")))
    fp8 = saved(layer_work(LLAMA, replace(SHAPE, linear_dtype="fp8"), LayerKind("decoder")))
    for name in ("qkv_input", "projection_input", "mlp_input", "mlp_activation"):
        assert fp8[name] == bf16[name] / 2, name
    for name in ("query_key_value", "mlp_hidden", "attention_norm_input"):
        assert fp8[name] == bf16[name], name
    assert fp8["attention_out"] == bf16["projection_input"]


def test_fp8_runs_linear_layers_only_and_casts_only_when_it_is_on() -> None:
    layer = layer_work(LLAMA, replace(SHAPE, linear_dtype="fp8"), LayerKind("decoder"))
    dtypes = {op.dtype for m in layer.modules for op in m.forward if isinstance(op, Gemm)}
    assert dtypes == {"fp8"}
    head = layer_work(LLAMA, replace(SHAPE, linear_dtype="fp8"), OUTPUT)
    assert {o.dtype for m in head.modules for o in m.forward if isinstance(o, Gemm)} == {"bf16"}

    def casts(shape: WorkShape) -> list[str]:
        layer = layer_work(LLAMA, shape, LayerKind("decoder"))
        names = [op.name for m in layer.modules for op in (*m.forward, *m.input_grad)]
        return [name for name in names if name.endswith("_cast")]

    assert not casts(SHAPE)
    assert len(casts(replace(SHAPE, linear_dtype="fp8"))) == 8


def test_weights_that_fsdp_gathers_are_cast_to_fp8_after_every_gather() -> None:
    fp8 = replace(SHAPE, linear_dtype="fp8")
    gathered = replace(fp8, grad_accumulation="sharded")

    def cast_weights(shape: WorkShape, phase: str) -> float:
        layer = layer_work(LLAMA, shape, LayerKind("decoder"))
        passes = [op for m in layer.modules for op in getattr(m, phase)]
        named = [op for op in passes if op.name.endswith("_weight_cast")]
        return sum(op.num_bytes for op in named if isinstance(op, MemoryPass))

    whole = parameters.layer(LLAMA, Shards(1, 1, 1), moe=False)
    linear = whole.dense - 2 * LLAMA.hidden_size  # all but the two norms
    for phase in ("forward", "input_grad"):
        assert cast_weights(fp8, phase) == 0
        assert cast_weights(replace(gathered, linear_dtype="bf16"), phase) == 0
        assert cast_weights(gathered, phase) == 4 * linear
    assert cast_weights(gathered, "weight_grad") == 0


def test_unfused_loss_keeps_fp32_logits_and_fused_loss_a_bf16_gradient() -> None:
    logits = SHAPE.tokens * SHAPE.padded_vocab
    unfused = saved(layer_work(LLAMA, SHAPE, OUTPUT))
    fused = saved(layer_work(LLAMA, replace(SHAPE, loss_fusion=True), OUTPUT))
    assert unfused["softmax_fp32"] == 4 * logits
    assert fused["logits_gradient"] == 2 * logits


def test_the_embedding_keeps_token_ids_and_no_activation() -> None:
    assert saved(layer_work(LLAMA, SHAPE, EMBEDDING)) == {"token_ids": 8 * SHAPE.tokens}


def test_imbalance_scales_the_busiest_ranks_rows_and_message() -> None:
    architecture = mixtral_architecture()
    even, skewed = sharded(ep=8), replace(sharded(ep=8), routed_load=1.5, dispatch_ranks=8)
    even = replace(even, dispatch_ranks=8)
    assert routing(architecture, skewed).rows == 1.5 * routing(architecture, even).rows
    kind = LayerKind("decoder", True)
    sent = [
        next(o for o in collectives(layer_work(architecture, s, kind), "forward")).num_bytes
        for s in (even, skewed)
    ]
    assert sent[1] == 1.5 * sent[0]


def test_deepep_sends_a_token_once_per_rank_that_holds_one_of_its_experts() -> None:
    # 8 of 256 experts over 8 ranks: 8 · (1 - C(224, 8) / C(256, 8)) ranks on average.
    assert distinct_ranks(256, 8, 8) == pytest.approx(5.295, abs=0.001)
    assert distinct_ranks(8, 2, 8) == pytest.approx(2.0)
    assert distinct_ranks(64, 6, 1) == 1.0


def test_sync_free_stage_three_allocates_the_worst_case_for_every_expert_rank() -> None:
    architecture = mixtral_architecture()
    base = replace(sharded(ep=8), dispatcher="deepep", dispatch_ranks=8)
    kind = LayerKind("decoder", True)
    kept = {
        stage: saved(layer_work(architecture, replace(base, sync_free_stage=stage), kind))
        for stage in (1, 2, 3)
    }
    assert kept[2] == kept[1]
    assert kept[3]["experts_hidden"] == 8 * kept[2]["experts_hidden"]
    buffers = [
        exchange_bytes(architecture, replace(base, sync_free_stage=stage)) for stage in (1, 2, 3)
    ]
    assert buffers[0] < buffers[1] < buffers[2]


def test_kinds_follow_the_models_pattern_of_experts_and_windows() -> None:
    windowed = LLAMA.model_copy(
        update={"sliding_window": 128, "windowed_layers": (True, False) * 40}
    )
    assert kind_of_layer(windowed, 0) == LayerKind("decoder", False, 128)
    assert kind_of_layer(windowed, 1) == LayerKind("decoder", False, None)
    assert [kind_of_layer(DEEPSEEK, layer).moe for layer in (0, 2, 3, 60)] == [
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("sizes", [{}, {"ep": 4}, {"etp": 2}, {"ep": 4, "etp": 2}, {"ep": 8}])
def test_a_rank_sorts_what_arrives_by_expert_where_it_has_several(sizes: dict[str, int]) -> None:
    """Also what it sent to itself: Megatron's all-to-all dispatcher asks for the experts only."""
    layer = layer_work(ARCHITECTURES["mixtral"], sharded(**sizes), LayerKind("decoder", moe=True))
    names = {op.name for module in layer.modules for op in module.forward}
    assert ("moe_dispatch_sort" in names) == (sizes.get("ep", 1) < 8)


@pytest.mark.parametrize(("dispatcher", "rows"), [("alltoall", 2.0), ("deepep", 1.0)])
def test_expert_tensor_ranks_share_copies_or_with_deepep_whole_tokens(
    dispatcher: Dispatcher, rows: float
) -> None:
    shape = sharded(etp=4, dispatcher=dispatcher)
    layer = layer_work(ARCHITECTURES["mixtral"], shape, LayerKind("decoder", moe=True))
    gathers = [
        op
        for module in layer.modules
        for op in (*module.forward, *module.input_grad)
        if isinstance(op, Collective) and op.group == "etp"
    ]
    tokens = 4 * shape.residual_tokens
    assert sorted(op.kind for op in gathers) == ["allgather"] * 2 + ["reduce_scatter"] * 2
    assert {op.num_bytes for op in gathers} == {
        2 * mixtral_architecture().hidden_size * tokens * rows
    }
    assert {op.overlappable for op in gathers} == {dispatcher == "deepep"}
