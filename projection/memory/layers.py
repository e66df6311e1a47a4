"""What one layer of a kind keeps, re-creates and passes through, from its work description."""

from dataclasses import dataclass

from projection import parameters
from projection.operations import Gemm, LayerWork, ModuleWork, Parameters
from projection.work.linear import BF16_BYTES
from projection.work.moe import exchange_bytes
from projection.work.recompute import SelectiveRecompute
from projection.work.shape import WorkShape
from schemas.architecture import Architecture


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """Bytes of one layer for one microbatch on one GPU, and its parameters."""

    saved: float
    """Kept from forward to backward, less what selective recomputation drops."""
    whole: float
    """Kept when nothing is recomputed: what is alive while a recomputed layer runs backward."""
    kept_input: float
    """Kept when the layer is recomputed in full."""
    rerun: float
    """Brought back at once by selective recomputation."""
    for_weights: float
    """Operands of the weight-gradient GEMMs: kept from B to W by split-backward schedules."""
    exchange: float
    """Alive while tokens travel to experts and back."""
    gradients: float
    """Gradients of the widest linear layer's input and output, alive in backward."""
    logits: float
    """Alive while the loss is computed: a second copy of the logits."""
    parameters: Parameters
    linear_weights: float
    """Weights of linear layers (the ones FP8 keeps copies of)."""
    largest_matrix: tuple[int, int]
    """Rows and columns of the largest weight matrix (one expert's, not all of them)."""


def layer_memory(
    architecture: Architecture,
    shape: WorkShape,
    work: LayerWork,
    recompute: SelectiveRecompute,
) -> LayerMemory:
    """Fold a layer's description into what memory needs of it."""
    whole = sum(tensor.num_bytes for module in work.modules for tensor in module.saved)
    rerun = recompute.dropped_bytes(work) if work.kind in ("dense", "moe", "mtp") else 0.0
    is_moe = any(module.name == "dispatch" for module in work.modules)
    return LayerMemory(
        saved=whole - rerun,
        whole=whole,
        kept_input=work.input_bytes,
        rerun=rerun,
        for_weights=sum(map(_weight_operands, work.modules)),
        exchange=exchange_bytes(architecture, shape) if is_moe else 0.0,
        gradients=max(
            (_gradient_bytes(module) for module in work.modules if module.name != "logits"),
            default=0.0,
        ),
        logits=_second_logits(work, shape),
        parameters=parameters.add(*(module.parameters for module in work.modules)),
        linear_weights=sum(map(_linear_weights, work.modules)),
        largest_matrix=_largest_matrix(work),
    )


def _gemms(operations: tuple[object, ...]) -> list[Gemm]:
    return [operation for operation in operations if isinstance(operation, Gemm)]


def _weight_operands(module: ModuleWork) -> float:
    """Input and output gradient of every weight-gradient GEMM, at its operand width."""
    return sum(
        (1 if gemm.dtype == "fp8" else BF16_BYTES) * gemm.k * (gemm.m + gemm.n) * gemm.batch
        for gemm in _gemms(module.weight_grad)
    )


def _gradient_bytes(module: ModuleWork) -> float:
    """bf16 gradients of a module's output and input (estimated: dgrad operands and results)."""
    return max(
        (
            float(BF16_BYTES * gemm.m * (gemm.k + gemm.n) * gemm.batch)
            for gemm in _gemms(module.input_grad)
            if gemm.name.endswith("_dgrad")
        ),
        default=0.0,
    )


def _linear_weights(module: ModuleWork) -> float:
    """Weights of a module's linear layers, without router and output head."""
    if module.name in ("router", "logits"):
        return 0.0
    return sum(gemm.m * gemm.n * gemm.batch for gemm in _gemms(module.weight_grad))


def _largest_matrix(work: LayerWork) -> tuple[int, int]:
    """Of the layer's linear layers, the router and the output head left out."""
    shapes = [
        (gemm.m, gemm.n)
        for module in work.modules
        if module.name not in ("router", "logits")
        for gemm in _gemms(module.weight_grad)
    ]
    return max(shapes, key=lambda shape: shape[0] * shape[1], default=(0, 0))


def _second_logits(work: LayerWork, shape: WorkShape) -> float:
    """Unfused loss: bf16 logits beside their fp32 copy. Fused: the gradient overwrites them."""
    if shape.loss_fusion or not any(module.name == "loss" for module in work.modules):
        return 0.0
    return float(BF16_BYTES * shape.tokens * -(-shape.padded_vocab // shape.tp))
