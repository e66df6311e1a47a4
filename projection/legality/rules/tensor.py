"""What tensor parallelism must divide, for the dense part and for the experts."""

from projection.legality.context import Context
from projection.legality.normal_form import inherited_etp
from projection.legality.rules.rule import Rule
from projection.parameters import padded_vocab
from schemas.trial import NormalTrial


def tp_heads(trial: NormalTrial, context: Context) -> str | None:
    """Attention heads are split over TP."""
    heads = context.architecture.num_attention_heads
    return _indivisible("tp", trial.tp, "attention heads", heads)


def tp_kv_groups(trial: NormalTrial, context: Context) -> str | None:
    """KV groups are split over TP, or replicated when TP is a multiple of them (Megatron)."""
    if context.architecture.attention == "mla":
        return None
    groups, tp = context.architecture.num_query_groups, trial.tp
    if groups % tp == 0 or tp % groups == 0:
        return None
    return f"tp {tp} neither divides the {groups} KV groups nor is a multiple of them"


def tp_hidden(trial: NormalTrial, context: Context) -> str | None:
    """The hidden size is split over TP."""
    return _indivisible("tp", trial.tp, "hidden size", context.architecture.hidden_size)


def tp_ffn(trial: NormalTrial, context: Context) -> str | None:
    """The feed-forward width of dense layers is split over TP."""
    a = context.architecture
    if a.is_moe and all(a.moe_layers):
        return None
    return _indivisible("tp", trial.tp, "ffn hidden size", a.ffn_hidden_size)


def tp_shared_expert(trial: NormalTrial, context: Context) -> str | None:
    """The shared expert's width is split over TP."""
    width = context.architecture.shared_expert_hidden_size
    return None if not width else _indivisible("tp", trial.tp, "shared expert width", width)


def tp_vocab(trial: NormalTrial, context: Context) -> str | None:
    """The padded vocabulary is split over TP; padding makes it so unless the file fixes it."""
    w = context.workload
    rows = w.padded_vocab_size or padded_vocab(
        w.architecture.vocab_size, w.make_vocab_size_divisible_by, trial.tp
    )
    return _indivisible("tp", trial.tp, "padded vocabulary", rows)


def tp_exceeds_node(trial: NormalTrial, context: Context) -> str | None:
    """TP communicates in every layer: it stays inside a node."""
    per_node = context.cluster.gpus_per_node
    if trial.tp <= per_node:
        return None
    return f"tp {trial.tp} is more than the {per_node} GPUs of a node"


def moe_tp_needs_sequence_parallel(trial: NormalTrial, context: Context) -> str | None:
    """Megatron: an MoE model with TP above 1 must use sequence parallelism."""
    if trial.tp == 1 or not context.architecture.is_moe or context.workload.sequence_parallel:
        return None
    return f"an MoE model with tp {trial.tp} needs sequence_parallel, which the workload turns off"


def etp_not_one_or_tp(trial: NormalTrial, context: Context) -> str | None:
    """Expert TP is 1 or TP (or what a file says); a dense model's is TP."""
    if not context.architecture.is_moe:
        if trial.etp == inherited_etp(trial.tp, context.baseline):
            return None
        return f"etp {trial.etp} on a dense model: without experts it follows tp {trial.tp}"
    if trial.etp in (1, trial.tp, *context.given("etp")):
        return None
    return f"etp {trial.etp} is neither 1 nor tp {trial.tp}"


def etp_moe_ffn(trial: NormalTrial, context: Context) -> str | None:
    """An expert's width is split over ETP."""
    width = context.architecture.moe_ffn_hidden_size
    if not context.architecture.is_moe or width is None:
        return None
    return _indivisible("etp", trial.etp, "expert ffn hidden size", width)


def _indivisible(knob: str, size: int, what: str, total: int) -> str | None:
    return None if total % size == 0 else f"{knob} {size} does not divide the {what} {total}"


RULES = (
    Rule("tp_heads", tp_heads, ("tp",)),
    Rule("tp_kv_groups", tp_kv_groups, ("tp",)),
    Rule("tp_hidden", tp_hidden, ("tp",)),
    Rule("tp_ffn", tp_ffn, ("tp",)),
    Rule("tp_shared_expert", tp_shared_expert, ("tp",)),
    Rule("tp_vocab", tp_vocab, ("tp",)),
    Rule("tp_exceeds_node", tp_exceeds_node, ("tp",), elsewhere="warn"),
    Rule("moe_tp_needs_sequence_parallel", moe_tp_needs_sequence_parallel, ("tp",)),
    Rule("etp_not_one_or_tp", etp_not_one_or_tp, ("tp", "etp"), elsewhere="allow"),
    Rule("etp_moe_ffn", etp_moe_ffn, ("etp",)),
)
