import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.errors import UnsupportedModel, WorkloadError
from tasks.resolve.hugging_face import FAMILIES, read_config
from tasks.resolve.sources import Source

# The keys of each model's published config.json that say what it is made of.
LLAMA = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-05,
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "vocab_size": 129280,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "num_nextn_predict_layers": 1,
    "tie_word_embeddings": False,
}
LLAMA4_TEXT = {
    "model_type": "llama4_text",
    "vocab_size": 202048,
    "hidden_size": 5120,
    "intermediate_size": 8192,
    "intermediate_size_mlp": 16384,
    "num_hidden_layers": 48,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_local_experts": 128,
    "num_experts_per_tok": 1,
    "interleave_moe_layer_step": 2,
    "attention_chunk_size": 8192,
    "tie_word_embeddings": False,
}
GPT_OSS = {
    "model_type": "gpt_oss",
    "vocab_size": 201088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "attention_bias": True,
    "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "mxfp4"},
}
QWEN3_MOE = {
    "model_type": "qwen3_moe",
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 94,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 1536,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "attention_bias": False,
    "use_sliding_window": False,
    "sliding_window": None,
    "tie_word_embeddings": False,
}
MIXTRAL = {
    "model_type": "mixtral",
    "vocab_size": 32000,
    "hidden_size": 6144,
    "intermediate_size": 16384,
    "num_hidden_layers": 56,
    "num_attention_heads": 48,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
    "tie_word_embeddings": False,
}
GROK_2 = {
    "architectures": ["Grok1ForCausalLM"],
    "model_type": "git",
    "vocab_size": 131072,
    "hidden_size": 8192,
    "intermediate_size": 32768,
    "moe_intermediate_size": 16384,
    "num_hidden_layers": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "residual_moe": True,
}
MINIMAX = {
    "architectures": ["MiniMaxM2ForCausalLM"],
    "model_type": "minimax_m2",
    "vocab_size": 200064,
    "hidden_size": 3072,
    "intermediate_size": 1536,
    "num_hidden_layers": 62,
    "num_attention_heads": 48,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_local_experts": 256,
    "num_experts_per_tok": 8,
    "use_qk_norm": True,
    "shared_intermediate_size": 0,
}
QWEN2 = {
    "model_type": "qwen2",
    "vocab_size": 152064,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "use_sliding_window": False,
    "sliding_window": 131072,
    "max_window_layers": 28,
    "tie_word_embeddings": False,
}
KIMI_K2 = DEEPSEEK_V3 | {
    "model_type": "kimi_k2",
    "vocab_size": 163840,
    "num_attention_heads": 64,
    "n_routed_experts": 384,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 0,
}
V2_LITE = DEEPSEEK_V3 | {
    "model_type": "deepseek_v2",
    "vocab_size": 102400,
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "q_lora_rank": None,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1408,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": None,
}


@pytest.fixture
def from_config(resolve, tmp_path: Path):
    """Resolves a workload whose model is `tmp_path/the_model/config.json`."""

    def run(config: Any, model: str = "the_model/config.json"):
        folder = tmp_path / "the_model"
        folder.mkdir(exist_ok=True)
        text = config if isinstance(config, str) else json.dumps(config)
        (folder / "config.json").write_text(text)
        return resolve(model=model, model_path=[tmp_path])

    return run


@pytest.mark.parametrize(
    ("config", "preset"),
    [
        (LLAMA, "llama3.1_8B"),
        (MIXTRAL, "mixtral_8x22B_v0.1"),
        (DEEPSEEK_V3, "deepseek_v3"),
        (V2_LITE, "deepseek_v2_lite"),
        (KIMI_K2, "kimi_k2"),
        (QWEN2, "qwen2.5_7B"),
        (QWEN3_MOE, "qwen3_235B_A22B"),
        (GPT_OSS, "gpt_oss_20B"),
        ({"model_type": "llama4", "text_config": LLAMA4_TEXT}, "llama4_17B128E"),
        (GROK_2, "grok2"),
        (MINIMAX, "minimax_m2.5"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_config_describes_the_same_model_as_the_preset(
    from_config, resolve, config: dict[str, Any], preset: str
) -> None:
    got = from_config(config).architecture
    want = resolve(model=preset).architecture
    assert got.model_copy(update={"name": preset}) == want
    assert got.name == "the_model"


def test_a_folder_means_its_config(from_config) -> None:
    assert from_config(LLAMA, model="the_model").architecture.num_layers == 32


def test_a_preset_may_extend_a_config(from_config, tmp_path: Path, resolve) -> None:
    from_config(LLAMA)
    (tmp_path / "short.yaml").write_text("extends: the_model/config.json\nnum_layers: 2\n")
    a = resolve(model="short.yaml", model_path=[tmp_path]).architecture
    assert (a.num_layers, a.hidden_size) == (2, 4096)


def test_windows_count_the_querys_own_key(from_config) -> None:
    a = from_config(LLAMA | {"model_type": "mistral", "sliding_window": 4096}).architecture
    assert a.window_of(0) == 4096
    qwen = QWEN2 | {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 20}
    a = from_config(qwen).architecture
    assert [a.window_of(i) for i in (0, 19, 20, 27)] == [None, None, 64, 64]


def test_long_sequences_over_chunked_attention_are_warned_of(resolve) -> None:
    workload = resolve({"seq_length": 16384}, model="llama4_17B16E")
    assert "chunks of 8192 is projected as attention over all 16384" in workload.warnings[0]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("{", "not JSON"),
        ('{"model_type": "llama",\n "a": }', "config.json:2: not JSON"),
        ("[]", "expected a JSON object"),
        ('{"vocab_size": NaN}', "NaN is not a number"),
        ("[" * 100_000, "nested more than"),
        ({}, "no model_type"),
        ({"model_type": 3}, "no model_type"),
        ({"model_type": "llama"}, "vocab_size is missing"),
        (LLAMA | {"num_hidden_layers": "32"}, "num_hidden_layers: expected a count, got '32'"),
        (LLAMA | {"num_hidden_layers": True}, "expected a count, got True"),
        (LLAMA | {"num_hidden_layers": 0}, "num_hidden_layers: expected 1 to"),
        (LLAMA | {"num_hidden_layers": 10**9}, "num_hidden_layers: expected 1 to"),
        (LLAMA | {"hidden_size": -1}, "hidden_size: expected a count, got -1"),
        (LLAMA | {"tie_word_embeddings": "no"}, "expected true or false, got 'no'"),
        (GPT_OSS | {"layer_types": "all"}, "layer_types: expected a list"),
        (LLAMA | {"num_key_value_heads": 5}, "5 does not divide num_attention_heads 32"),
    ],
)
def test_a_config_that_cannot_be_read_is_one_line(from_config, config: Any, says: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        from_config(config)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("model_type", "what"),
    [
        ("mamba2", "Mamba"),
        ("jamba", "hybrid"),
        ("lfm2", "short-convolution"),
        ("qwen3_next", "gated delta net"),
        ("glm_moe_dsa", "DeepSeek sparse attention"),
        ("deepseek_v32", "DeepSeek sparse attention"),
        ("t5", "encoder"),
        ("my_new_net", "is not one Refold reads; it reads deepseek_v2, deepseek_v3"),
    ],
)
def test_other_model_types_are_refused_by_name(from_config, model_type: str, what: str) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        from_config(LLAMA | {"model_type": model_type})
    assert model_type in str(caught.value)
    assert what in str(caught.value)


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 10**6)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.lists(st.integers(0, 5) | st.text(max_size=3), max_size=3)
)
KEYS = sorted({key for one in (LLAMA, DEEPSEEK_V3, LLAMA4_TEXT, GPT_OSS, QWEN3_MOE) for key in one})


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.sampled_from(sorted(FAMILIES)),
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3),
)
def test_any_config_is_read_or_refused(model_type: str, changed: dict[str, Any]) -> None:
    everything = LLAMA | DEEPSEEK_V3 | LLAMA4_TEXT | GPT_OSS | QWEN3_MOE | changed
    config = everything | {"num_hidden_layers": 8, "model_type": model_type}
    source = Source(Path("config.json"), "config.json")
    problem = ""
    try:
        read_config(json.dumps(config).encode(), source)
    except WorkloadError as refused:
        problem = str(refused)
    assert "\n" not in problem
