"""Which groups tile the cluster, and what context and expert parallelism must divide.

Parallel folding: attention is tp · cp · dp · pp and experts are etp · ep · edp · pp over the same
GPUs, so each product of model-parallel sizes must divide the number of GPUs.
"""

from projection.degrees import attention_replica, expert_replica
from projection.legality.context import Context
from projection.legality.rules.rule import Rule
from schemas.trial import NormalTrial


def world_not_tiled(trial: NormalTrial, context: Context) -> str | None:
    """tp · cp · pp GPUs hold one copy of the dense part; copies must fill the cluster exactly."""
    size = attention_replica(trial)
    return _untiled(f"tp·cp·pp = {trial.tp}·{trial.cp}·{trial.pp}", size, context.world)


def experts_not_tiled(trial: NormalTrial, context: Context) -> str | None:
    """etp · ep · pp GPUs hold one copy of the experts; copies must fill the cluster exactly."""
    if not context.architecture.is_moe:
        return None
    if trial.etp == trial.tp:
        name = f"tp·pp·ep = {trial.tp}·{trial.pp}·{trial.ep}"
    else:
        name = f"etp·pp·ep = {trial.etp}·{trial.pp}·{trial.ep}"
    return _untiled(name, expert_replica(trial), context.world)


def placement_not_folded(trial: NormalTrial, context: Context) -> str | None:
    """With pipeline ranks inside data-parallel ones, experts and the rest must be as many copies.

    Megatron builds no consistent pipeline groups otherwise.
    """
    placement = context.cluster.placement
    if placement != "tp-cp-ep-pp-dp" or trial.pp == 1 or not context.architecture.is_moe:
        return None
    dense, experts = trial.tp * trial.cp, trial.etp * trial.ep
    if dense == experts:
        return None
    sizes = f"tp·cp = {trial.tp}·{trial.cp} = {dense}, etp·ep = {trial.etp}·{trial.ep} = {experts}"
    return f"placement {placement} needs edp = dp, so tp·cp = etp·ep: {sizes}"


def ep_needs_moe(trial: NormalTrial, context: Context) -> str | None:
    """Only an MoE model has experts to distribute."""
    if trial.ep == 1 or context.architecture.is_moe:
        return None
    return f"ep {trial.ep} on a dense model: there are no experts, ep must be 1"


def ep_experts(trial: NormalTrial, context: Context) -> str | None:
    """Every expert-parallel rank holds the same number of experts."""
    experts = context.architecture.num_experts
    if not context.architecture.is_moe or experts is None or experts % trial.ep == 0:
        return None
    return f"ep {trial.ep} does not divide the {experts} experts"


def ep_fp16(trial: NormalTrial, context: Context) -> str | None:
    """Megatron has no expert parallelism with FP16 training."""
    if trial.ep == 1 or context.workload.precision.params_dtype != "fp16":
        return None
    return f"ep {trial.ep} with fp16 parameters: expert parallelism needs bf16"


def cp_sequence(trial: NormalTrial, context: Context) -> str | None:
    """Causal load balance cuts the sequence in 2 · cp pieces."""
    seq, cp = context.workload.seq_length, trial.cp
    if cp == 1 or seq % (2 * cp) == 0:
        return None
    return f"2·cp = {2 * cp} does not divide the sequence length {seq}"


def cp_exceeds_node(trial: NormalTrial, context: Context) -> str | None:
    """A dense model's context parallelism stays inside a node."""
    per_node = context.cluster.gpus_per_node
    if context.architecture.is_moe or trial.cp <= per_node:
        return None
    return f"cp {trial.cp} is more than the {per_node} GPUs of a node"


def cp_not_folded(trial: NormalTrial, context: Context) -> str | None:
    """An MoE model's context parallelism is folded into its expert parallelism."""
    if trial.cp == 1 or not context.architecture.is_moe:
        return None
    if trial.cp <= trial.ep and trial.ep % trial.cp == 0:
        return None
    return f"cp {trial.cp} does not fold into ep {trial.ep}: cp must divide ep"


def cp_heads(trial: NormalTrial, context: Context) -> str | None:
    """All-to-all context parallelism splits the heads (and KV groups) of a TP rank over CP."""
    if trial.cp == 1 or context.workload.cp_comm_type != "a2a":
        return None
    a = context.architecture
    kv_heads = a.num_attention_heads if a.attention == "mla" else a.num_query_groups
    heads, groups = a.num_attention_heads // trial.tp, max(1, kv_heads // trial.tp)
    if heads % trial.cp == 0 and groups % trial.cp == 0:
        return None
    return f"cp {trial.cp} by all-to-all does not divide {heads} heads and {groups} KV groups"


def sequence_parallel_length(trial: NormalTrial, context: Context) -> str | None:
    """Sequence parallelism splits the sequence over tp · cp."""
    seq, parts = context.workload.seq_length, trial.tp * trial.cp
    if trial.tp == 1 or not context.workload.sequence_parallel or seq % parts == 0:
        return None
    return f"tp·cp = {trial.tp}·{trial.cp} = {parts} does not divide the sequence length {seq}"


def _untiled(product: str, size: int, world: int) -> str | None:
    if size <= world and world % size == 0:
        return None
    tail = "" if size > world else f", which leaves {world % size} idle"
    return f"{product} = {size} GPUs per replica, the cluster has {world}{tail}"


RULES = (
    Rule("world_not_tiled", world_not_tiled, ("tp", "cp", "pp")),
    Rule("world_not_tiled", experts_not_tiled, ("tp", "etp", "ep", "pp")),
    Rule("placement_not_folded", placement_not_folded, ("tp", "cp", "etp", "ep", "pp")),
    Rule("ep_needs_moe", ep_needs_moe, ("ep",)),
    Rule("ep_experts", ep_experts, ("ep",)),
    Rule("ep_fp16", ep_fp16, ("ep",)),
    Rule("cp_sequence", cp_sequence, ("cp",)),
    Rule("cp_exceeds_node", cp_exceeds_node, ("cp",), elsewhere="warn"),
    Rule("cp_not_folded", cp_not_folded, ("cp", "ep"), elsewhere="warn"),
    Rule("cp_heads", cp_heads, ("tp", "cp"), elsewhere="warn"),
    Rule("sequence_parallel_length", sequence_parallel_length, ("tp", "cp")),
)
