from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projection.attention import (
    Direction,
    attention_backward_ms,
    attention_flops,
    attention_forward_ms,
    attention_tflops,
    mean_visible_keys,
)
from projection.operations import AttentionCore
from projection.profiles import achievable, gpu_profile


def core(
    seq: int,
    d: int = 128,
    *,
    batch: int = 1,
    heads: int = 32,
    kv_heads: int | None = None,
    seq_q: int | None = None,
    d_v: int | None = None,
    causal: bool = True,
    window: int | None = None,
) -> AttentionCore:
    return AttentionCore(
        "core",
        batch=batch,
        heads=heads,
        kv_heads=kv_heads or heads,
        seq_q=seq_q or seq,
        seq_kv=seq,
        d_qk=d,
        d_v=d_v or d,
        causal=causal,
        window=window,
    )


PUBLISHED: list[tuple[str, Direction, AttentionCore, float, float]] = [
    # FlashAttention-3 paper, H100 SXM5, 16k tokens, hidden 2048
    ("h100", "forward", core(2048, batch=8, heads=16), 521, 0.08),
    ("h100", "forward", core(4096, batch=4, heads=16), 579, 0.08),
    ("h100", "forward", core(8192, batch=2, heads=16), 602, 0.08),
    ("h100", "forward", core(16384, heads=16), 616, 0.08),
    ("h100", "forward", core(16384, heads=16, causal=False), 648, 0.12),
    ("h100", "forward", core(4096, 64, batch=4), 420, 0.10),
    ("h100", "forward", core(16384, 64), 473, 0.10),
    ("h100", "forward", core(16384, 64, causal=False), 497, 0.12),
    ("h100", "backward", core(2048, batch=8, heads=16, causal=False), 501, 0.08),
    ("h100", "backward", core(16384, heads=16, causal=False), 561, 0.08),
    # AITER on MI355X and MI350X (HipKittens repository)
    ("mi355x", "forward", core(2048, batch=16, heads=64, kv_heads=8), 959, 0.10),
    ("mi355x", "forward", core(8192, batch=16, heads=64, kv_heads=8), 1205, 0.08),
    ("mi355x", "forward", core(16384, batch=16, heads=16, causal=False), 1280, 0.08),
    ("mi355x", "backward", core(4096, batch=16, heads=16), 874, 0.12),
    ("mi355x", "backward", core(16384, batch=16, heads=16), 1105, 0.08),
    ("mi350x", "forward", core(8192, batch=16, heads=16), 915, 0.08),
    ("mi350x", "backward", core(16384, batch=16, heads=16), 832, 0.08),
    # FlashAttention-2: Azure's benchmarks, and Zyphra's MI300X backward
    ("mi300x", "forward", core(8192, 64, batch=2, causal=False), 329, 0.05),
    ("mi300x", "backward", core(4096, batch=4, heads=16), 316, 0.10),
    ("a100", "forward", core(8192, 64, batch=2, causal=False), 179.5, 0.05),
    # FlashAttention-4
    ("b200", "forward", core(8192, batch=4, heads=16), 1418, 0.08),
    ("b200", "forward", core(8192, batch=4, heads=16, causal=False), 1535, 0.08),
    ("b200", "backward", core(8192, batch=4, heads=16), 1209, 0.08),
]


@pytest.mark.parametrize(("name", "direction", "op", "tflops", "tolerance"), PUBLISHED)
def test_derated_rates_are_the_published_ones(
    name: str, direction: Direction, op: AttentionCore, tflops: float, tolerance: float
) -> None:
    """One factor per GPU and direction; sequence, head width and mask follow from the model."""
    gpu = gpu_profile(name)
    factors = achievable(gpu)
    factor = factors.attention if direction == "forward" else factors.attention_backward
    assert factor is not None
    # Publications count half of all scores under a causal mask.
    convention = (op.seq_kv + 1) / op.seq_kv if op.causal else 1
    rate = attention_tflops(op, gpu, direction) * factor / convention
    assert rate == pytest.approx(tflops, rel=tolerance)


def test_table_of_rates(capsys: pytest.CaptureFixture[str]) -> None:
    """Rates at peak clock rise with the sequence and stay below the matrix peak."""
    sequences = (2048, 4096, 8192, 16384, 32768)
    lines = ["\nattention at peak clock, TFLOP/s, causal, 2k to 32k"]
    for name in ("mi300x", "mi355x", "h100"):
        gpu = gpu_profile(name)
        for d, d_v in ((64, 64), (128, 128), (192, 128)):
            for direction in ("forward", "backward"):
                rates = [
                    attention_tflops(core(s, d, d_v=d_v, batch=2), gpu, direction)  # type: ignore[arg-type]
                    for s in sequences
                ]
                cells = " ".join(f"{rate:5.0f}" for rate in rates)
                lines.append(f"  {name:7} {d:3}/{d_v:3} {direction:8} {cells}")
                assert rates == sorted(rates)
                assert max(rates) < gpu.bf16_tflops
    with capsys.disabled():
        print("\n".join(lines))


@pytest.mark.parametrize("cp", [2, 4, 8])
@pytest.mark.parametrize("name", ["mi355x", "h100"])
def test_context_parallel_share_divides_by_cp_and_not_its_square(cp: int, name: str) -> None:
    gpu = gpu_profile(name)
    whole, share = core(32768), core(32768, seq_q=32768 // cp)
    for direction in ("forward", "backward"):
        flops = attention_flops(share, direction) * cp  # type: ignore[arg-type]
        assert flops == pytest.approx(attention_flops(whole, direction))  # type: ignore[arg-type]
    for model in (attention_forward_ms, attention_backward_ms):
        assert model(share, gpu) * cp == pytest.approx(model(whole, gpu), rel=0.12)


def test_causal_mask_saves_half_of_long_sequences_and_less_of_short_ones() -> None:
    gpu = gpu_profile("mi355x")

    def saved(seq: int) -> float:
        full, masked = core(seq, batch=16, causal=False), core(seq, batch=16)
        return attention_forward_ms(masked, gpu) / attention_forward_ms(full, gpu)

    assert saved(32768) == pytest.approx(0.5, abs=0.02)
    assert 0.52 < saved(1024) < 0.8


def test_flops_are_counted_from_the_scores_left_by_the_mask() -> None:
    assert attention_flops(core(4, 1, heads=1, causal=False), "forward") == 2 * 16 * 2
    assert attention_flops(core(4, 1, heads=1), "forward") == 2 * (1 + 2 + 3 + 4) * 2
    assert attention_flops(core(4, 1, heads=1), "backward") == 2 * 10 * 5
    windowed = core(5, 1, heads=1, window=2)
    assert attention_flops(windowed, "forward") == 2 * (1 + 2 + 2 + 2 + 2) * 2
    assert mean_visible_keys(core(8, window=100)) == mean_visible_keys(core(8))


def test_latent_attention_counts_both_widths() -> None:
    op = core(4096, 192, d_v=128)
    pairs = op.heads * 4096 * mean_visible_keys(op)
    assert attention_flops(op, "forward") == 2 * pairs * (192 + 128)
    assert attention_flops(op, "backward") == 2 * pairs * (3 * 192 + 2 * 128)


def test_sliding_window_follows_its_width_not_the_sequence() -> None:
    gpu = gpu_profile("mi355x")
    long, longer = core(32768, window=1024), core(65536, window=1024)
    ratio = attention_forward_ms(longer, gpu) / attention_forward_ms(long, gpu)
    assert ratio == pytest.approx(2, rel=0.05)
    assert attention_forward_ms(long, gpu) < 0.12 * attention_forward_ms(core(32768), gpu)


def test_grouped_heads_cut_traffic_only_where_traffic_is_the_limit() -> None:
    gpu = gpu_profile("mi300x").model_copy(update={"hbm_gb_per_s": 50.0})
    few, many = core(2048, heads=64, kv_heads=1), core(2048, heads=64)
    assert attention_forward_ms(few, gpu) < 0.7 * attention_forward_ms(many, gpu)
    fast = gpu_profile("mi300x")
    assert attention_forward_ms(few, fast) == attention_forward_ms(many, fast)


def test_exponentials_weigh_more_on_narrow_heads() -> None:
    gpu = gpu_profile("h100")
    narrow = attention_tflops(core(16384, 64, causal=False), gpu, "forward")
    wide = attention_tflops(core(16384, 128, heads=16, causal=False), gpu, "forward")
    assert narrow / wide == pytest.approx(497 / 648, rel=0.05)


def test_last_wave_is_paid_in_full() -> None:
    gpu = gpu_profile("h100")  # 132 SMs
    one = attention_forward_ms(core(8192, seq_q=128, heads=132, kv_heads=1, causal=False), gpu)
    two = attention_forward_ms(core(8192, seq_q=128, heads=133, kv_heads=1, causal=False), gpu)
    assert two == pytest.approx(2 * one)


@given(
    seq=st.integers(1, 40000),
    d=st.sampled_from([64, 96, 128, 192, 256]),
    heads=st.integers(1, 128),
    causal=st.booleans(),
    window=st.none() | st.integers(1, 40000),
    name=st.sampled_from(["mi300x", "mi355x", "h100", "a100", "b200"]),
)
@settings(max_examples=200, deadline=None)
def test_a_mask_never_costs_more_and_the_model_never_beats_the_peak(
    seq: int, d: int, heads: int, causal: bool, window: int | None, name: str
) -> None:
    gpu = gpu_profile(name)
    op = core(seq, d, heads=heads, causal=causal, window=window)
    full = core(seq, d, heads=heads, causal=False)
    for direction, model in (
        ("forward", attention_forward_ms),
        ("backward", attention_backward_ms),
    ):
        time_ms = model(op, gpu)
        assert time_ms <= model(full, gpu) * (1 + 1e-9)
        flops = attention_flops(op, direction)  # type: ignore[arg-type]
        assert flops / time_ms * 1e-9 < gpu.bf16_tflops


def test_a_share_under_a_window_is_its_part_of_the_whole_in_both_directions() -> None:
    """Of the keys, a share's queries meet few: most tiles of keys have nothing to do."""
    for name, cp, window in product(("mi355x", "h100"), (2, 4, 8), (1024, 4096)):
        gpu = gpu_profile(name)
        whole = core(131072, window=window)
        share = core(131072, seq_q=131072 // cp, window=window)
        for model in (attention_forward_ms, attention_backward_ms):
            assert model(share, gpu) * cp == pytest.approx(model(whole, gpu), rel=0.05)


@pytest.mark.parametrize("name", ["mi300x", "mi355x", "h100", "a100", "b200"])
def test_a_share_however_small_never_beats_the_peak(name: str) -> None:
    """Also of one tile of queries, which is no diagonal tile but sees half of all keys."""
    gpu = gpu_profile(name)
    sizes = product((512, 4096, 32768), (2, 8, 16, 32, 64), (64, 128, 256), (None, 1, 128, 4096))
    for seq, cp, d, window in sizes:
        op = core(seq, d, batch=8, heads=128, kv_heads=8, seq_q=seq // cp, window=window)
        assert attention_tflops(op, gpu, "forward") < gpu.bf16_tflops, op
        assert attention_tflops(op, gpu, "backward") < gpu.bf16_tflops, op


def test_dividing_one_tile_of_queries_saves_nothing_more() -> None:
    """A tile is worked on whole, whatever part of it is queries."""
    gpu = gpu_profile("mi355x")
    one, part = (core(4096, seq_q=rows, heads=1024, kv_heads=8) for rows in (256, 64))
    assert attention_forward_ms(part, gpu) == pytest.approx(attention_forward_ms(one, gpu))
    four = core(4096, seq_q=1024, heads=1024, kv_heads=8)
    assert attention_forward_ms(four, gpu) == pytest.approx(4 * attention_forward_ms(one, gpu))
