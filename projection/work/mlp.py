"""Feed-forward blocks: up (gate and up in one GEMM), activation, down."""

from dataclasses import dataclass

from projection import parameters
from projection.operations import Dtype, MemoryPass, ModuleWork, Parameters, SavedTensor
from projection.work.linear import (
    BF16_BYTES,
    Linear,
    TensorParallel,
    enter_parallel,
    forward,
    input_grad,
    leave_parallel,
    weight_grad,
)
from projection.work.shape import WorkShape
from schemas.architecture import Architecture


@dataclass(frozen=True, slots=True)
class FeedForward:
    """A feed-forward block's rows and widths on one GPU, for one or several experts."""

    prefix: str
    rows: int
    width: int
    hidden: int
    gated: bool
    experts: int = 1
    dtype: Dtype = "bf16"
    grouped: bool = True
    routed: bool = False
    """Whether the block is the routed experts'."""

    @property
    def up_width(self) -> int:
        """Outputs of the first GEMM: gate and up, or up alone."""
        return self.width * (2 if self.gated else 1)


def feed_forward(
    block: FeedForward,
    shape: WorkShape,
    owned: Parameters,
    enter: TensorParallel,
    leave: TensorParallel,
    allocated_rows: int | None = None,
) -> tuple[ModuleWork, ...]:
    """Up, activation and down of `block`; its input is saved by whoever made it.

    `owned`: the block's parameters, booked on the up module. `allocated_rows`: rows of the saved
    tensors when a framework allocates more than it fills.
    Saved: the activation's input in bf16 and its output as the down GEMM's input.
    """
    up = Linear(
        f"{block.prefix}_up",
        block.rows,
        block.up_width,
        block.hidden,
        block.experts,
        block.dtype,
        block.grouped,
        block.routed,
    )
    down = Linear(
        f"{block.prefix}_down",
        block.rows,
        block.hidden,
        block.width,
        block.experts,
        block.dtype,
        block.grouped,
        block.routed,
    )
    filled = block.rows * block.experts
    rows = filled if allocated_rows is None else allocated_rows
    in_bytes, out_bytes = BF16_BYTES * block.up_width, BF16_BYTES * block.width
    return (
        ModuleWork(
            f"{block.prefix}_up",
            forward=(*enter.forward, *forward(up, shape)),
            input_grad=(*input_grad(up, shape), *enter.input_grad),
            weight_grad=weight_grad(up, shape),
            saved=(SavedTensor(f"{block.prefix}_hidden", float(rows * in_bytes)),),
            parameters=owned,
        ),
        ModuleWork(
            f"{block.prefix}_activation",
            forward=(
                MemoryPass(f"{block.prefix}_activation", float(filled * (in_bytes + out_bytes))),
            ),
            input_grad=(
                MemoryPass(
                    f"{block.prefix}_activation_backward",
                    float(filled * (2 * in_bytes + out_bytes)),
                ),
            ),
            weight_grad=(),
            saved=(
                SavedTensor(
                    f"{block.prefix}_activation",
                    float(rows * block.width * (1 if block.dtype == "fp8" else BF16_BYTES)),
                ),
            ),
        ),
        ModuleWork(
            f"{block.prefix}_down",
            forward=(*forward(down, shape), *leave.forward),
            input_grad=(*leave.input_grad, *input_grad(down, shape)),
            weight_grad=weight_grad(down, shape),
            saved=(),
        ),
    )


def mlp_input(architecture: Architecture, shape: WorkShape) -> SavedTensor:
    """The block's input, kept for its weight gradient: divided by tp only under SP."""
    size = shape.saved_linear_bytes * shape.residual_tokens * architecture.hidden_size
    return SavedTensor("mlp_input", float(size))


def dense_mlp(architecture: Architecture, shape: WorkShape) -> tuple[ModuleWork, ...]:
    """The feed-forward block of a dense layer."""
    hidden = architecture.hidden_size
    block = FeedForward(
        "mlp",
        shape.tokens,
        -(-architecture.ffn_hidden_size // shape.tp),
        hidden,
        architecture.gated_mlp,
        dtype=shape.linear_dtype,
    )
    up, activation, down = feed_forward(
        block,
        shape,
        parameters.dense_mlp(architecture, shape.shards),
        enter_parallel("tp_mlp", hidden, shape),
        leave_parallel("tp_mlp", hidden, shape),
    )
    return (_with_saved(up, mlp_input(architecture, shape)), activation, down)


def _with_saved(module: ModuleWork, tensor: SavedTensor) -> ModuleWork:
    """`module` that also keeps `tensor`."""
    return ModuleWork(
        module.name,
        module.forward,
        module.input_grad,
        module.weight_grad,
        (tensor, *module.saved),
        module.parameters,
    )
