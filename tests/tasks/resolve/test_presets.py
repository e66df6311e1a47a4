"""Shipped presets against published figures; each preset names the source of its own."""

import pytest

from projection.parameters import model_size
from schemas.errors import UnsupportedModel
from tasks.resolve.sources import shipped_presets

PUBLISHED_B = {
    "deepseek_v2": 235.7,
    "deepseek_v2_lite": 15.7,
    "deepseek_v3": 671.0,
    "gpt3_1.7B": 1.7,
    "gpt3_3.6B": 3.6,
    "gpt3_7.5B": 7.5,
    "gpt3_18.4B": 18.4,
    "gpt3_22B": 22,
    "gpt3_39.1B": 39.1,
    "gpt3_76.1B": 76.1,
    "gpt3_145.6B": 145.6,
    "gpt3_175B": 174.6,
    "gpt3_310.1B": 310.1,
    "gpt3_529.6B": 529.6,
    "gpt3_1T": 1008.0,
    "gpt_oss_20B": 20.91,
    "gpt_oss_120B": 116.83,
    "grok1": 316,
    "grok2": 269.515,
    "kimi_k2": 1026.41,
    "llama2_7B": 6.74,
    "llama2_13B": 13.02,
    "llama2_70B": 68.98,
    "llama3_8B": 8.03,
    "llama3_70B": 70.55,
    "llama3.1_8B": 8.03,
    "llama3.1_70B": 70.55,
    "llama3.1_405B": 405.85,
    "llama3.2_1B": 1.24,
    "llama3.2_3B": 3.21,
    "llama3.3_70B": 70.55,
    "llama4_17B16E": 107.77,
    "llama4_17B128E": 400.71,
    "minimax_m2.5": 228.7,
    "mixtral_8x7B_v0.1": 46.7,
    "mixtral_8x22B_v0.1": 140.6,
    "qwen2.5_3B": 3.09,
    "qwen2.5_7B": 7.62,
    "qwen2.5_14B": 14.77,
    "qwen2.5_32B": 32.76,
    "qwen2.5_72B": 72.71,
    "qwen3_4B": 4.02,
    "qwen3_8B": 8.19,
    "qwen3_14B": 14.77,
    "qwen3_32B": 32.76,
    "qwen3_30B_A3B": 30.5,
    "qwen3_235B_A22B": 235.1,
}
"""Parameters in 10^9, without multi-token prediction.

Llama 4's are those of the text model alone. Grok-1's release says 314, which is less than the sum
of its checkpoint's own shapes; 316 is that sum, rounded as the release rounds.
"""

ACTIVE_B = {
    "mixtral_8x7B_v0.1": 12.9,
    "mixtral_8x22B_v0.1": 39,
    "deepseek_v2": 21.4,
    "kimi_k2": 32.9,
    "grok2": 115,
    "qwen3_30B_A3B": 3.3,
    "qwen3_235B_A22B": 22.2,
}
"""Parameters a token passes through, where the source counts them as we do."""

BASES = {
    name
    for name in (source.path.name.removesuffix(".yaml") for source in shipped_presets("models"))
    if name.endswith("_base") or name == "language_model"
}


def test_every_shipped_model_has_a_published_figure() -> None:
    names = {source.path.name.removesuffix(".yaml") for source in shipped_presets("models")}
    assert names - BASES == set(PUBLISHED_B)


@pytest.mark.parametrize("name", sorted(PUBLISHED_B))
def test_parameters_are_the_published_ones(resolve, name: str) -> None:
    count = model_size(resolve(model=f"{name}.yaml").architecture).total / 1e9
    published = PUBLISHED_B[name]
    decimals = len(str(published).partition(".")[2])
    rounding = 0.5 * 10**-decimals
    assert abs(count - published) <= max(0.005 * published, rounding)


@pytest.mark.parametrize("name", sorted(ACTIVE_B))
def test_active_parameters_are_the_published_ones(resolve, name: str) -> None:
    active = model_size(resolve(model=f"{name}.yaml").architecture).active / 1e9
    assert active == pytest.approx(ACTIVE_B[name], rel=0.02)


def test_a_shipped_model_warns_of_nothing(resolve) -> None:
    for name in PUBLISHED_B:
        overrides = {"max_position_embeddings": 4096, "seq_length": 4096}
        assert resolve(overrides, model=f"{name}.yaml").warnings == ()


def test_every_preset_names_its_source() -> None:
    for source in shipped_presets("models"):
        first = source.path.read_text(encoding="utf-8").splitlines()[0]
        assert first.startswith("# "), source.label


@pytest.mark.parametrize(
    ("model", "what"),
    [
        ("mamba_370M.yaml", "Mamba state-space layers"),
        ("zebra_llama_8B.yaml", "hybrid of attention and Mamba"),
        ("zebra_llama_1B_gdn_pure.yaml", "hybrid of attention and Mamba"),
        ("lfm2_8B_A1B.yaml", "short-convolution layers"),
        ("deepseek_v4_flash.yaml", "compressed sparse attention"),
        ("glm5.yaml", "DeepSeek sparse attention"),
        ("kimi_k3.yaml", "Kimi delta attention"),
        ("qwen3_5_35B_A3B.yaml", "gated delta net"),
        ("diffusion_model.yaml", "diffusion model"),
        ("flux_12B.yaml", "diffusion model"),
    ],
)
def test_families_without_a_description_are_refused_by_name(resolve, model, what) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        resolve(model=model)
    assert f"modules.pre_trainer.model: {model}: unsupported: " in str(caught.value)
    assert what in str(caught.value)


def test_windows_and_sinks_of_gpt_oss(resolve) -> None:
    a = resolve(model="gpt_oss_20B").architecture
    assert (a.attention_sinks, a.router_bias, a.add_qkv_bias) == (True, True, True)
    assert [a.window_of(layer) for layer in range(4)] == [128, None, 128, None]


def test_dense_layers_of_deepseek_and_llama_4(resolve) -> None:
    v3 = resolve(model="deepseek_v3").architecture
    assert [v3.is_moe_layer(i) for i in (0, 2, 3, 60)] == [False, False, True, True]
    assert v3.mtp_num_layers == 1
    maverick = resolve(model="llama4_17B128E").architecture
    assert [maverick.is_moe_layer(i) for i in range(4)] == [False, True, False, True]
