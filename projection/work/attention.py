"""The attention block of a layer: projections in, core, projection out."""

from projection import parameters
from projection.operations import MemoryPass, ModuleWork, Operation, Parameters, SavedTensor
from projection.work.attention_core import Heads, attention_core, heads_of
from projection.work.linear import (
    BF16_BYTES,
    Linear,
    enter_parallel,
    forward,
    input_grad,
    leave_parallel,
    weight_grad,
)
from projection.work.shape import WorkShape
from schemas.architecture import Architecture


def attention_block(
    architecture: Architecture, shape: WorkShape, window: int | None
) -> tuple[ModuleWork, ...]:
    """Modules of one attention block, without its input norm."""
    project = _latent_projections if architecture.attention == "mla" else _grouped_projections
    return (
        *project(architecture, shape),
        attention_core(architecture, shape, window),
        _output_projection(architecture, shape),
    )


ROTARY_KERNELS = 2
"""One fused kernel each for queries and keys."""
LATENT_ROTARY_KERNELS = 16
"""Unfused on the split-off dimensions (chunk, negate, join, two products, a sum, twice), then
queries and keys are expanded and joined (Megatron-Core `multi_latent_attention.py`)."""


def _rotary(heads: Heads, shape: WorkShape, kernels: int = ROTARY_KERNELS) -> MemoryPass:
    """Rotary embedding: reads and writes queries and keys."""
    width = heads.query_width + heads.key_value * heads.d_qk
    return MemoryPass("rotary", 2.0 * BF16_BYTES * shape.tokens * width, kernels)


def _grouped_projections(architecture: Architecture, shape: WorkShape) -> tuple[ModuleWork, ...]:
    """Q, K, V in one column-parallel GEMM, query/key norms, rotary embedding."""
    heads, hidden, tokens = heads_of(architecture, shape), architecture.hidden_size, shape.tokens
    gate = heads.query_width if architecture.attention_output_gate else 0
    linear = Linear(
        "qkv",
        tokens,
        heads.query_width + gate + heads.key_value_width,
        hidden,
        dtype=shape.linear_dtype,
    )
    around = enter_parallel("tp_qkv", hidden, shape)
    passes: list[Operation] = [_rotary(heads, shape)]
    saved = [
        SavedTensor("qkv_input", float(shape.saved_linear_bytes * shape.residual_tokens * hidden))
    ]
    if architecture.qk_layernorm:
        width = heads.query_width + heads.key_value * heads.d_qk
        passes.append(MemoryPass("query_key_norm", 2.0 * BF16_BYTES * tokens * width))
        saved.append(SavedTensor("query_key_norm_input", float(BF16_BYTES * tokens * width)))
    if gate:
        saved.append(SavedTensor("attention_gate", float(BF16_BYTES * tokens * gate)))
    projection = _projection_parameters(architecture, shape)
    whole = parameters.attention(architecture, shape.shards)
    return (
        ModuleWork(
            "qkv",
            forward=(*around.forward, *forward(linear, shape), *passes),
            input_grad=(*passes, *input_grad(linear, shape), *around.input_grad),
            weight_grad=weight_grad(linear, shape),
            saved=tuple(saved),
            parameters=Parameters(
                tp_sharded=whole.tp_sharded - projection.tp_sharded,
                replicated=whole.replicated - projection.replicated,
            ),
        ),
    )


def _latent_projections(architecture: Architecture, shape: WorkShape) -> tuple[ModuleWork, ...]:
    """Multi-head latent attention (DeepSeek-V2, §2.1): down-projections, then up-projections.

    Down-projections are replicated and run on the residual tokens (1/tp of them under sequence
    parallelism), so what is gathered before the column-parallel up-projections are the latents.
    """
    a, heads, hidden = architecture, heads_of(architecture, shape), architecture.hidden_size
    latent, rope = int(a.kv_lora_rank or 0), int(a.qk_pos_emb_head_dim or 0)
    query_rank = a.q_lora_rank or 0
    rows, dtype = shape.residual_tokens, shape.linear_dtype
    down = Linear("latent_down", rows, query_rank + latent + rope, hidden, dtype=dtype)
    query_input = query_rank or hidden
    query_up = Linear("query_up", shape.tokens, heads.query_width, query_input, dtype=dtype)
    nope = int(a.qk_head_dim or 0)
    kv_up = Linear(
        "key_value_up", shape.tokens, heads.query * (nope + heads.d_v), latent, dtype=dtype
    )
    latents = query_rank + latent
    gathered = query_input + latent + rope
    around = enter_parallel("tp_latent", gathered, shape)
    norm_bytes = 2.0 * BF16_BYTES * rows * latents
    kept = shape.saved_linear_bytes
    projection = _projection_parameters(a, shape)
    whole = parameters.attention(a, shape.shards)
    return (
        ModuleWork(
            "latent_down",
            forward=(*forward(down, shape), MemoryPass("latent_norm", norm_bytes)),
            input_grad=(
                MemoryPass("latent_norm_backward", 1.5 * norm_bytes),
                *input_grad(down, shape),
            ),
            weight_grad=weight_grad(down, shape),
            saved=(
                SavedTensor("qkv_input", float(kept * rows * hidden)),
                SavedTensor("latent_norm_input", float(BF16_BYTES * rows * latents)),
            ),
            parameters=Parameters(replicated=whole.replicated - projection.replicated),
        ),
        ModuleWork(
            "latent_up",
            forward=(
                *around.forward,
                *forward(query_up, shape),
                *forward(kv_up, shape),
                _rotary(heads, shape, LATENT_ROTARY_KERNELS),
            ),
            input_grad=(
                _rotary(heads, shape, LATENT_ROTARY_KERNELS),
                *input_grad(kv_up, shape),
                *input_grad(query_up, shape),
                *around.input_grad,
            ),
            weight_grad=(*weight_grad(kv_up, shape), *weight_grad(query_up, shape)),
            saved=(SavedTensor("latent_up_input", float(kept * rows * latents)),),
            parameters=Parameters(tp_sharded=whole.tp_sharded - projection.tp_sharded),
        ),
    )


def _projection_parameters(architecture: Architecture, shape: WorkShape) -> Parameters:
    """Weights (and bias) of the output projection alone."""
    a = architecture
    weights = a.num_attention_heads * a.v_dim * a.hidden_size / shape.tp
    has_bias = a.add_bias_linear and a.attention != "mla"
    return Parameters(tp_sharded=weights, replicated=a.hidden_size if has_bias else 0)


def _output_projection(architecture: Architecture, shape: WorkShape) -> ModuleWork:
    """The row-parallel output projection, and the output gate where the model has one."""
    heads, hidden, tokens = heads_of(architecture, shape), architecture.hidden_size, shape.tokens
    linear = Linear(
        "attention_projection", tokens, hidden, heads.output_width, dtype=shape.linear_dtype
    )
    around = leave_parallel("tp_attention", hidden, shape)
    gate: tuple[Operation, ...] = ()
    saved = [
        SavedTensor(
            "projection_input", float(shape.saved_linear_bytes * tokens * heads.output_width)
        )
    ]
    if architecture.attention_output_gate:
        gate = (MemoryPass("output_gate", 3.0 * BF16_BYTES * tokens * heads.output_width),)
        if not shape.fp8:
            ungated = float(BF16_BYTES * tokens * heads.output_width)
            saved.append(SavedTensor("attention_out", ungated))
    return ModuleWork(
        "attention_projection",
        forward=(*gate, *forward(linear, shape), *around.forward),
        input_grad=(*around.input_grad, *input_grad(linear, shape), *gate),
        weight_grad=weight_grad(linear, shape),
        saved=tuple(saved),
        parameters=_projection_parameters(architecture, shape),
    )
