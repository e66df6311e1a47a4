import pytest

from schemas.errors import UnsupportedModel, WorkloadError

MOE = {"num_experts": 8, "moe_router_topk": 2}


def refusal(resolve, overrides, **more) -> str:
    with pytest.raises(WorkloadError) as caught:
        resolve(overrides, **more)
    return str(caught.value)


def test_groups_count_only_with_grouped_attention(resolve) -> None:
    assert resolve().architecture.num_query_groups == 8
    a = resolve({"group_query_attention": False}).architecture
    assert a.num_query_groups == a.num_attention_heads == 32
    assert resolve({"num_query_groups": None}).architecture.num_query_groups == 32


def test_head_width_is_hidden_over_heads_unless_set(resolve) -> None:
    assert resolve().architecture.kv_channels == 128
    assert resolve({"kv_channels": 96}).architecture.kv_channels == 96
    message = refusal(resolve, {"num_attention_heads": 24, "hidden_size": 4100})
    assert "num_attention_heads: 24 does not divide hidden_size 4100; set kv_channels" in message


def test_an_absent_ffn_is_megatrons_default(resolve) -> None:
    assert resolve({"ffn_hidden_size": None}).architecture.ffn_hidden_size == 10880
    plain = resolve({"ffn_hidden_size": None, "swiglu": False}).architecture
    assert (plain.ffn_hidden_size, plain.gated_mlp) == (16384, False)


def test_expert_width_is_the_dense_one_unless_set(resolve) -> None:
    assert resolve(MOE).architecture.moe_ffn_hidden_size == 14336
    assert resolve(MOE | {"moe_ffn_hidden_size": 512}).architecture.moe_ffn_hidden_size == 512


@pytest.mark.parametrize("none", [{}, {"num_experts": 0}, MOE | {"moe_layer_freq": [0] * 32}])
def test_no_expert_layer_is_a_dense_model(resolve, none) -> None:
    a = resolve(none).architecture
    assert (a.is_moe, a.num_experts, a.moe_layers) == (False, None, ())


def test_layer_patterns(resolve) -> None:
    a = resolve(MOE | {"num_layers": 6, "moe_layer_freq": 3}).architecture
    assert a.moe_layers == (True, False, False) * 2
    a = resolve(MOE | {"num_layers": 3, "moe_layer_freq": "([0]*1+[1]*2)"}).architecture
    assert a.moe_layers == (False, True, True)
    hostile = MOE | {"moe_layer_freq": "__import__('os').system('x')"}
    assert ": modules.pre_trainer.overrides.moe_layer_freq: " in refusal(resolve, hostile)


def test_latent_attention_takes_its_ranks(resolve) -> None:
    a = resolve({"multi_latent_attention": True, "kv_lora_rank": 512}).architecture
    assert (a.attention, a.kv_lora_rank, a.qk_dim, a.v_dim, a.q_lora_rank) == (
        "mla",
        512,
        192,
        128,
        None,
    )


def test_a_switched_off_latent_attention_is_an_ordinary_one(resolve) -> None:
    a = resolve({"multi_latent_attention": False}, model="deepseek_v2_lite").architecture
    assert (a.attention, a.num_query_groups, a.kv_channels) == ("gqa", 16, 128)


def test_window_of_the_framework_counts_the_querys_own_key(resolve) -> None:
    overrides = {"window_size": [128, 0], "window_attn_skip_freq": [1, 0] * 16}
    a = resolve(overrides).architecture
    assert [a.window_of(i) for i in range(3)] == [129, None, 129]
    assert resolve({"window_size": [-1, 0]}).architecture.sliding_window is None
    assert resolve({"window_size": [64, 0]}).architecture.window_of(31) == 65


def test_sink_attention_has_a_window_of_its_own(resolve) -> None:
    sinks = {
        "enable_primus_turbo": True,
        "use_turbo_attention": True,
        "use_sink_attention": True,
        "sink_sliding_window": 128,
    }
    a = resolve(sinks).architecture
    assert [a.window_of(i) for i in range(3)] == [128, None, 128]
    assert a.attention_sinks
    a = resolve(sinks | {"sink_sliding_window": 0}, model="gpt_oss_20B").architecture
    assert a.sliding_window is None
    a = resolve(sinks | {"sink_window_even_layers_only": False}).architecture
    assert a.window_of(1) == 128


def test_learned_positions_have_rows(resolve) -> None:
    learned = {"position_embedding_type": "learned_absolute"}
    assert resolve(learned).architecture.learned_positions == 131072
    rotary = learned | {"use_rotary_position_embeddings": True}
    assert resolve(rotary).architecture.learned_positions is None
    message = refusal(resolve, learned | {"max_position_embeddings": None})
    assert "learned_absolute needs max_position_embeddings" in message


def test_a_norm_on_one_side_of_one_block_is_refused(resolve) -> None:
    both = {"post_self_attn_layernorm": True, "post_mlp_layernorm": True}
    assert resolve(both).architecture.sandwich_norm
    assert "is not modelled" in refusal(resolve, {"post_mlp_layernorm": True})


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"num_query_groups": 5}, "num_query_groups: 5 does not divide num_attention_heads 32"),
        (MOE | {"moe_router_topk": 9}, "moe_router_topk: 9 is more than num_experts 8"),
        ({"window_size": [1, 2, 3]}, "window_size: expected (before, after), got 3 numbers"),
        (
            {"window_size": [64, 0], "window_attn_skip_freq": [1, 0]},
            "window_attn_skip_freq: describes 2 layers, num_layers is 32",
        ),
        ({"num_layers": 10**6}, "num_layers: expected at most 10000, got 1000000"),
        ({"normalization": "RMSnorm2"}, "did you mean 'RMSNorm'?"),
    ],
)
def test_values_at_odds_name_their_place(resolve, overrides, says: str) -> None:
    message = refusal(resolve, overrides)
    assert says in message
    assert message.count("\n") == 0


@pytest.mark.parametrize(
    ("overrides", "what"),
    [
        ({"model_type": "mamba"}, "Mamba state-space layers"),
        ({"model_type": "deepseek_v4"}, "compressed sparse attention"),
        ({"model_type": "novel"}, "model_type novel"),
        ({"is_hybrid_model": True}, "hybrid of attention and Mamba"),
        ({"hybrid_override_pattern": "*-M-"}, "hybrid of attention and Mamba"),
        ({"experimental_attention_variant": "gated_delta_net"}, "gated delta net"),
        ({"experimental_attention_variant": "dsa"}, "DeepSeek sparse attention"),
        ({"experimental_attention_variant": "new"}, "attention variant 'new'"),
        ({"linear_attention_freq": "([1]*3+[0])*8"}, "linear attention"),
        ({"hybrid_attention_enabled": True}, "compressed sparse attention"),
        ({"hc_mult": 4}, "hyper-connections"),
        ({"moe_latent_size": 512}, "latent space"),
        ({"lfm_layer_types": ["conv", "full_attention"]}, "short-convolution"),
        ({"spec": ["megatron.core.models.mamba.mamba_layer_specs", "mamba_stack_spec"]}, "Mamba"),
        ({"heterogeneous_layers_config_path": "layers.json"}, "differing shapes"),
    ],
)
def test_layers_of_another_kind_are_refused_by_name(resolve, overrides, what: str) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        resolve(overrides)
    assert "modules.pre_trainer.overrides" in str(caught.value)
    assert what in str(caught.value)


def test_switched_off_markers_are_no_refusal(resolve) -> None:
    off = {"is_hybrid_model": False, "hybrid_override_pattern": None, "moe_latent_size": None}
    assert resolve(off | {"lfm_layer_types": ["full_attention"] * 32}).architecture.num_layers == 32
