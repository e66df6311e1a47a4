"""The model's end: final norm, vocabulary projection, cross entropy."""

from projection import parameters
from projection.operations import Collective, MemoryPass, ModuleWork, SavedTensor
from projection.work.linear import (
    BF16_BYTES,
    Linear,
    enter_parallel,
    forward,
    input_grad,
    weight_grad,
)
from projection.work.norms import plain_norm
from projection.work.shape import WorkShape
from schemas.architecture import Architecture

FP32_BYTES = 4


def output_projection(architecture: Architecture, shape: WorkShape) -> ModuleWork:
    """The vocabulary-parallel projection to logits, in bf16 whatever the layers run in."""
    hidden = architecture.hidden_size
    vocab = -(-shape.padded_vocab // shape.tp)
    linear = Linear("logits", shape.tokens, vocab, hidden)
    around = enter_parallel("tp_logits", hidden, shape)
    return ModuleWork(
        "logits",
        forward=(*around.forward, *forward(linear, shape)),
        input_grad=(*input_grad(linear, shape), *around.input_grad),
        weight_grad=weight_grad(linear, shape),
        saved=(SavedTensor("logits_input", float(BF16_BYTES * shape.residual_tokens * hidden)),),
        parameters=parameters.output_head(architecture, shape.shards, shape.padded_vocab),
    )


def cross_entropy(shape: WorkShape) -> ModuleWork:
    """Vocabulary-parallel cross entropy over [tokens, vocab / tp] logits.

    Unfused: an fp32 copy is made (read 2 B, write 4 B), then read and written for the maximum, the
    exponential with its sum, and the division; what is kept is the fp32 softmax, and backward reads
    it and writes a bf16 gradient. Fused: one online pass reads the logits, a second overwrites them
    with their gradient in place, which is what is kept; backward scales nothing.
    """
    logits = float(shape.tokens) * -(-shape.padded_vocab // shape.tp)
    reduces = tuple(
        Collective("tp_loss_allreduce", "allreduce", float(FP32_BYTES * shape.tokens), "tp")
        for _ in range(3 if shape.tp > 1 else 0)
    )
    if shape.loss_fusion:
        passes = (MemoryPass("cross_entropy", 3 * BF16_BYTES * logits, launches=2),)
        backward: tuple[MemoryPass, ...] = ()
        kept = SavedTensor("logits_gradient", BF16_BYTES * logits)
    else:
        upcast = BF16_BYTES + FP32_BYTES
        maximum, exponential, division = FP32_BYTES, 3 * FP32_BYTES, 2 * FP32_BYTES
        subtract = 2 * FP32_BYTES
        passes = (
            MemoryPass(
                "cross_entropy",
                logits * (upcast + maximum + subtract + exponential + division),
                launches=6,
            ),
        )
        backward = (
            MemoryPass("cross_entropy_backward", logits * (FP32_BYTES + FP32_BYTES + BF16_BYTES)),
        )
        kept = SavedTensor("softmax_fp32", FP32_BYTES * logits)
    return ModuleWork("loss", (*passes, *reduces), backward, (), (kept,))


def output_block(architecture: Architecture, shape: WorkShape) -> tuple[ModuleWork, ...]:
    """Final norm, projection and loss."""
    return (
        plain_norm("final_norm", architecture, shape),
        output_projection(architecture, shape),
        cross_entropy(shape),
    )
