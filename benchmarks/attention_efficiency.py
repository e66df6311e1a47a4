"""Attention rates of the model by GPU, sequence and head width, as a Markdown table.

Run as `python -m benchmarks.attention_efficiency` from the repository root. Causal, 16k tokens per
call as FlashAttention-3 measures, 2048 / head width heads; TFLOP/s after the achieved factor, the
share of data-sheet BF16 in brackets. d 192 is latent attention's 192 keys on 128 values.
"""

from projection.attention import Direction, attention_tflops
from projection.operations import AttentionCore
from projection.profiles import achievable, gpu_profile

GPUS = ("mi300x", "mi355x", "h100-sxm")
SEQUENCES = (2048, 4096, 8192, 16384, 32768)
TOKENS, MODEL_WIDTH = 16384, 2048


def core(seq: int, width: int) -> AttentionCore:
    """One call of the published sweeps."""
    heads = MODEL_WIDTH // min(width, 128)
    value = min(width, 128)
    return AttentionCore("core", max(1, TOKENS // seq), heads, heads, seq, seq, width, value)


def cell(name: str, seq: int, width: int, direction: Direction) -> str:
    """Achieved TFLOP/s and its share of the data sheet's peak."""
    gpu = gpu_profile(name)
    factors = achievable(gpu)
    factor = factors.attention
    if direction == "backward":
        factor = factors.attention_backward or factor
    rate = attention_tflops(core(seq, width), gpu, direction) * factor
    return f"{rate:.0f} ({rate / gpu.bf16_tflops:.0%})"


def main() -> None:
    directions: tuple[Direction, ...] = ("forward", "backward")
    print("| GPU | head | direction | " + " | ".join(f"{s // 1024}k" for s in SEQUENCES) + " |")
    print("|---|---|---|" + "---|" * len(SEQUENCES))
    for name in GPUS:
        for width in (64, 128, 192):
            for way in directions:
                cells = " | ".join(cell(name, seq, width, way) for seq in SEQUENCES)
                print(f"| {name} | {width} | {way} | {cells} |")


if __name__ == "__main__":
    main()
