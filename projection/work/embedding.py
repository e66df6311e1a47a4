"""The token embedding: a gather, and a scatter-add in backward."""

from projection import parameters
from projection.operations import MemoryPass, ModuleWork, SavedTensor
from projection.work.linear import BF16_BYTES, leave_parallel
from projection.work.shape import WorkShape
from schemas.architecture import Architecture

FP32_BYTES = 4
TOKEN_ID_BYTES = 8


def token_embedding(architecture: Architecture, shape: WorkShape) -> ModuleWork:
    """The vocabulary-parallel embedding of one microbatch.

    Its output is the first layer's norm input, so only token ids are saved. Tensor parallelism
    reduces the partial rows (reduce-scatter under sequence parallelism).
    """
    hidden = architecture.hidden_size
    rows = float(shape.tokens * hidden)
    around = leave_parallel("tp_embedding", hidden, shape)
    saved = [SavedTensor("token_ids", float(TOKEN_ID_BYTES * shape.tokens))]
    if shape.hidden_dropout:
        saved.append(SavedTensor("embedding_dropout_mask", float(shape.residual_tokens * hidden)))
    return ModuleWork(
        "embedding",
        forward=(MemoryPass("embedding_gather", 2 * BF16_BYTES * rows), *around.forward),
        input_grad=around.input_grad,
        weight_grad=(MemoryPass("embedding_scatter", (BF16_BYTES + 2 * FP32_BYTES) * rows),),
        saved=tuple(saved),
        parameters=parameters.embedding(architecture, shape.shards, shape.padded_vocab),
    )
