"""Model FLOPs: what the mathematics needs, whatever the implementation repeats or wastes."""

from schemas.architecture import Architecture

BACKWARD_FACTOR = 3
"""Forward, input gradient, weight gradient (attention's backward counts as two forwards too)."""


def model_flops_per_sequence(architecture: Architecture, seq_length: int) -> float:
    """FLOPs of one sequence, forward and backward.

    3 · (2 · P · S + 2 · A · (d_qk + d_v) · heads), summed over layers: P the matrix weights a token
    passes through (top-k routed experts only, shared expert and router included), S the sequence,
    A the (query, key) pairs attention keeps: S(S+1)/2 causal, fewer with a sliding window. The
    output head counts once per loss (multi-token prediction has one each); embedding lookups,
    norms, activations, recomputation and padding do not count.
    """
    a = architecture
    depths = a.mtp_num_layers
    head = float(a.hidden_size * a.vocab_size * (1 + depths))
    matrix = head + depths * 2 * a.hidden_size**2
    attention = 0.0
    for layer in [*range(a.num_layers), *[a.num_layers - 1] * depths]:
        matrix += _layer_weights(a, layer)
        pairs = attended_pairs(seq_length, a.window_of(layer))
        attention += 2.0 * pairs * (a.qk_dim + a.v_dim) * a.num_attention_heads
    return BACKWARD_FACTOR * (2.0 * matrix * seq_length + attention)


def attended_pairs(seq_length: int, window: int | None) -> float:
    """(query, key) pairs of one causal sequence; a window keeps the last `window` keys."""
    if window is None or window >= seq_length:
        return seq_length * (seq_length + 1) / 2
    return window * (window + 1) / 2 + (seq_length - window) * float(window)


def _layer_weights(architecture: Architecture, layer: int) -> float:
    """Matrix weights a token passes through in one decoder layer."""
    a = architecture
    weights = float(_attention_weights(a))
    per_width = a.hidden_size * (3 if a.gated_mlp else 2)
    if not a.is_moe_layer(layer):
        return weights + per_width * a.ffn_hidden_size
    routed = a.moe_router_topk * int(a.moe_ffn_hidden_size or 0)
    shared = int(a.shared_expert_hidden_size or 0)
    return weights + per_width * (routed + shared) + a.hidden_size * int(a.num_experts or 0)


def _attention_weights(architecture: Architecture) -> int:
    """Projection matrices of one attention block."""
    a = architecture
    heads, hidden = a.num_attention_heads, a.hidden_size
    output = heads * a.v_dim * hidden
    if a.attention == "mla":
        latent, rope = int(a.kv_lora_rank or 0), int(a.qk_pos_emb_head_dim or 0)
        query = (
            hidden * heads * a.qk_dim
            if a.q_lora_rank is None
            else a.q_lora_rank * (hidden + heads * a.qk_dim)
        )
        up = latent * heads * (int(a.qk_head_dim or 0) + a.v_dim)
        return query + hidden * (latent + rope) + up + output
    gate = 2 if a.attention_output_gate else 1
    queries = hidden * heads * a.kv_channels * gate
    return queries + 2 * hidden * a.num_query_groups * a.kv_channels + output
