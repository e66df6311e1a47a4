"""Every line a memory breakdown can have: what it is, its equation, and how well it is known.

derived: follows from shapes, dtypes and the schedule's order. measured: a published measurement.
estimated: derived from shapes under an assumption about the framework that its source states.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final, Literal

from schemas.errors import UserError

Tag = Literal["measured", "estimated", "derived"]
Part = Literal["params", "grads", "optimizer", "activations", "transient", "overhead"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the breakdown."""

    part: Part
    tag: Tag
    what: str
    equation: str
    source: str
    override: str | None = None
    """The key of the cluster file's `memory_overheads:` that replaces it or feeds it."""


LINES: Final = MappingProxyType(
    {
        "weights": Line(
            "params",
            "derived",
            "weights of decoder layers, MTP depths and the final norm",
            "bytes per weight · (dense / N_d + routed experts / N_e); N = 1 but under FSDP2",
            "the workload's params_dtype; shards of Megatron-Core's modules",
        ),
        "gradients": Line(
            "grads",
            "derived",
            "the gradient buffer of the same parameters",
            "bytes per gradient · (dense / N_d + routed experts / N_e); N = 1 but under FSDP2",
            "Megatron-Core param_and_grad_buffer: fp32 unless main_grads_dtype or "
            "grad_reduce_in_bf16 say bf16",
        ),
        "optimizer": Line(
            "optimizer",
            "derived",
            "master weights and moments of the same parameters",
            "(master + exp_avg + exp_avg_sq) · (dense / N_d + routed experts / N_e); distributed "
            "optimizer or FSDP2: N_d = dp·cp, N_e = edp; else 1",
            "Megatron-Core distributed optimizer: 6 + 12/N bytes per parameter",
        ),
        "vocabulary_weights": Line(
            "params",
            "derived",
            "weights of the token embedding, learned positions and the output head",
            "bytes per weight · tables · padded vocabulary · hidden / tp / N_d",
            "vocabulary padded to make_vocab_size_divisible_by · tp",
        ),
        "vocabulary_gradients": Line(
            "grads",
            "derived",
            "their gradients",
            "bytes per gradient · tables · padded vocabulary · hidden / tp / N_d",
            "as gradients",
        ),
        "vocabulary_optimizer": Line(
            "optimizer",
            "derived",
            "their master weights and moments",
            "(master + exp_avg + exp_avg_sq) · tables · padded vocabulary · hidden / tp / N_d",
            "as optimizer",
        ),
        "fp8_weights": Line(
            "params",
            "derived",
            "FP8 copies of linear weights, and their cached transposes",
            "(1 + 1 if the transpose is cached) · linear weights on this GPU",
            "Transformer Engine keeps them for the microbatches of a step; FSDP2 does not",
        ),
        "activations": Line(
            "activations",
            "derived",
            "tensors that layers save from forward to backward, of all microbatches in flight",
            "Σ_chunk in flight · Σ_layer Σ saved tensors, recomputed ones left out",
            "Korthikanti et al. 2022, eq. 1-4, with flash attention and MoE (projection/work)",
        ),
        "vocabulary_activations": Line(
            "activations",
            "derived",
            "what embedding, output head and loss save; gone when the layers' backward begins",
            "Σ_chunk in flight · (token ids, final norm input, logits input, fp32 softmax or the "
            "fused loss's gradient)",
            "Megatron-Core vocab_parallel_cross_entropy",
        ),
        "activation_checkpoints": Line(
            "activations",
            "derived",
            "layer inputs kept by full recomputation",
            "Σ_chunk in flight · kept inputs · 2 B · tokens · hidden (/ tp with sequence parallel)",
            "Megatron-Core transformer_block.py: one input per unit of recompute_num_layers",
        ),
        "deferred_weight_gradients": Line(
            "activations",
            "derived",
            "operands that weight gradients still wait for (schedules that split the backward)",
            "Σ_chunk waiting · Σ GEMM inputs and output gradients",
            "Qi et al. 2024 (zero bubble): B frees the rest",
        ),
        "recompute_working_set": Line(
            "transient",
            "derived",
            "what recomputation brings back at once, less what backward has freed by then",
            "full: Σ saved tensors of one run - its kept input - later layers' tensors and inputs; "
            "selective: the dropped tensors of one layer",
            "backward goes from the last layer of a chunk to the first",
            "recompute_working_set_gb",
        ),
        "expert_exchange": Line(
            "transient",
            "derived",
            "tokens on their way to experts: what is sent and what is received",
            "2 B · hidden · (rows sent + rows received); DeepEP: + one row per routed copy",
            "Megatron-Core token dispatchers; Primus num_worst_tokens",
            "expert_exchange_gb",
        ),
        "gradient_working_set": Line(
            "transient",
            "estimated",
            "gradients of the widest linear layer's input and output while it runs backward",
            "max over linear layers of 2 B · rows · (inputs + outputs)",
            "operands and results of its dgrad GEMM; fused kernels may hold less",
            "gradient_working_set_gb",
        ),
        "logits": Line(
            "transient",
            "derived",
            "bf16 logits beside their fp32 copy, while the unfused loss is computed",
            "2 B · tokens · padded vocabulary / tp",
            "Megatron-Core cross_entropy.py casts to fp32; Transformer Engine's works in place",
            "logits_gb",
        ),
        "fsdp_gather": Line(
            "transient",
            "derived",
            "unsharded weights of the units FSDP2 has gathered, and one unit's gradient",
            "bytes per weight · (Σ fsdp_gathered_units largest units + the largest)",
            "PyTorch fully_shard: the next unit is gathered while one is computed",
            "fsdp_gather_gb, fsdp_gathered_units",
        ),
        "deepep_buffer": Line(
            "transient",
            "estimated",
            "DeepEP's persistent rings; constant over microbatches",
            "channels · (256 tokens · peers + 2 · 128 tokens · nodes if several) · bytes per token",
            "deepseek-ai/DeepEP csrc/config.hpp, get_dispatch_config",
            "deepep_buffer_gb, deepep_channels",
        ),
        "optimizer_step": Line(
            "transient",
            "estimated",
            "what the optimizer allocates while it steps (its own phase)",
            "4 B · shard where gradients are reduced in bf16; Muon: 2 B · (2mn + 2m²), m ≤ n",
            "Megatron-Core DistributedOptimizer; Newton-Schulz iteration of Muon",
            "optimizer_step_gb",
        ),
        "weights_being_moved": Line(
            "transient",
            "derived",
            "weights in their old place while they move into one contiguous buffer (at init)",
            "bytes per weight · (routed experts, else dense parameters) / chunks",
            "Megatron-Core param_and_grad_buffer, one buffer after the other, experts last",
        ),
        "framework_context": Line(
            "overhead",
            "measured",
            "driver context, loaded kernels, BLAS workspaces; constant",
            "framework_context_gb",
            'Hugging Face "Model training anatomy": 1.34 GB; pytorch/pytorch#175431: 0.93 GB',
            "framework_context_gb",
        ),
        "communicator_buffers": Line(
            "overhead",
            "measured",
            "buffers of the collective library, outside the allocator",
            "first_communicator_gb + further_communicator_gb · (communicators - 1)",
            "Lumi-supercomputer/LUMI-AI-Guide#111: 1 GiB and 0.65 GiB, whatever the world size",
            "first_communicator_gb, further_communicator_gb",
        ),
        "fragmentation": Line(
            "overhead",
            "estimated",
            "reserved by the allocator and not allocated",
            "fragmentation · (activations + transients)",
            "AMD-AGI/Primus#349: 12.46 GiB beside 229.04 GiB",
            "fragmentation",
        ),
    }
)

PARTS: Final = ("params", "grads", "optimizer", "activations", "transient", "overhead")


def line(name: str) -> Line:
    """The line called `name`. Raises UserError with the nearest right spelling."""
    found = LINES.get(name)
    if found is None:
        near = get_close_matches(name, LINES, n=1)
        raise UserError(
            f"no memory component is called {name!r}",
            hint=f"did you mean {near[0]!r}?" if near else "one of " + ", ".join(LINES),
        )
    return found


def parts(components: dict[str, float]) -> dict[str, float]:
    """`components` summed by part, every part named."""
    totals = dict.fromkeys(PARTS, 0.0)
    for name, size in components.items():
        totals[LINES[name].part] += size
    return totals
