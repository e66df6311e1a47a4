"""A layer's work, module by module: the one description behind memory and time."""

from typing import Literal, NamedTuple

from projection import parameters
from projection.operations import LayerWork, ModuleWork, Parameters, SavedTensor
from projection.work.attention import attention_block
from projection.work.embedding import token_embedding
from projection.work.linear import (
    BF16_BYTES,
    Linear,
    enter_parallel,
    forward,
    input_grad,
    weight_grad,
)
from projection.work.mlp import dense_mlp
from projection.work.moe import host_syncs, moe_block
from projection.work.norms import norm_and_residual, plain_norm
from projection.work.output import output_block
from projection.work.shape import WorkShape
from schemas.architecture import Architecture

Block = Literal["decoder", "embedding", "output", "mtp"]


class LayerKind(NamedTuple):
    """Layers of one kind do the same work."""

    block: Block
    moe: bool = False
    window: int | None = None


EMBEDDING = LayerKind("embedding")
OUTPUT = LayerKind("output")


def kind_of_layer(architecture: Architecture, layer: int) -> LayerKind:
    """The kind of decoder layer `layer` (0-based)."""
    return LayerKind("decoder", architecture.is_moe_layer(layer), architecture.window_of(layer))


def kind_of_mtp(architecture: Architecture) -> LayerKind:
    """The kind of a multi-token-prediction depth: like the last decoder layer."""
    last = architecture.num_layers - 1
    return LayerKind("mtp", architecture.is_moe_layer(last), architecture.window_of(last))


def layer_work(architecture: Architecture, shape: WorkShape, kind: LayerKind) -> LayerWork:
    """The work of one layer of `kind` for one microbatch on one GPU."""
    kept_input = float(BF16_BYTES * shape.residual_tokens * architecture.hidden_size)
    if kind.block == "embedding":
        return LayerWork("embedding", (token_embedding(architecture, shape),), 0.0)
    if kind.block == "output":
        return LayerWork("output", output_block(architecture, shape), kept_input)
    modules = _decoder_modules(architecture, shape, kind)
    syncs = host_syncs(shape) if kind.moe else 0
    if kind.block == "mtp":
        modules = (*_mtp_entry(architecture, shape), *modules, *_mtp_exit(architecture, shape))
        return LayerWork("mtp", modules, kept_input, syncs)
    return LayerWork("moe" if kind.moe else "dense", modules, kept_input, syncs)


def _decoder_modules(
    architecture: Architecture, shape: WorkShape, kind: LayerKind
) -> tuple[ModuleWork, ...]:
    """Norm, attention, norm, MLP or experts; with norms after both where the model has them."""
    after_attention: tuple[ModuleWork, ...] = ()
    after_mlp: tuple[ModuleWork, ...] = ()
    if architecture.sandwich_norm:
        after_attention = (plain_norm("attention_post_norm", architecture, shape),)
        after_mlp = (plain_norm("mlp_post_norm", architecture, shape),)
    mlp = moe_block(architecture, shape) if kind.moe else dense_mlp(architecture, shape)
    return (
        norm_and_residual("attention_norm", architecture, shape),
        *attention_block(architecture, shape, kind.window),
        *after_attention,
        norm_and_residual("mlp_norm", architecture, shape),
        *mlp,
        *after_mlp,
    )


def _mtp_entry(architecture: Architecture, shape: WorkShape) -> tuple[ModuleWork, ...]:
    """What feeds an MTP depth: the shifted tokens' embedding, two norms, a joint projection."""
    hidden = architecture.hidden_size
    linear = Linear(
        "mtp_projection",
        shape.tokens,
        -(-hidden // shape.tp),
        2 * hidden,
        dtype=shape.linear_dtype,
    )
    around = enter_parallel("tp_mtp", 2 * hidden, shape)
    embedding = token_embedding(architecture, shape)
    joint = float(shape.saved_linear_bytes * shape.residual_tokens * 2 * hidden)
    weights = parameters.mtp_projection(architecture, shape.shards).tp_sharded
    return (
        ModuleWork(
            "mtp_embedding",
            embedding.forward,
            embedding.input_grad,
            embedding.weight_grad,
            embedding.saved,
        ),
        plain_norm("mtp_hidden_norm", architecture, shape),
        plain_norm("mtp_embedding_norm", architecture, shape),
        ModuleWork(
            "mtp_projection",
            forward=(*around.forward, *forward(linear, shape)),
            input_grad=(*input_grad(linear, shape), *around.input_grad),
            weight_grad=weight_grad(linear, shape),
            saved=(SavedTensor("mtp_projection_input", joint),),
            parameters=Parameters(tp_sharded=weights),
        ),
    )


def _mtp_exit(architecture: Architecture, shape: WorkShape) -> tuple[ModuleWork, ...]:
    """An MTP depth's own final norm, and the shared output head once more."""
    norm, logits, loss = output_block(architecture, shape)
    shared_head = ModuleWork(
        logits.name, logits.forward, logits.input_grad, logits.weight_grad, logits.saved
    )
    return (norm, shared_head, loss)
