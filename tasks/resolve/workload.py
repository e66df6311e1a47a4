"""A Primus pretrain file, and everything it extends, as a `Workload`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast, get_args

from pydantic import ValidationError

from schemas.architecture import Architecture
from schemas.errors import WorkloadError
from schemas.wording import problem
from schemas.workload import GraphScope, Workload
from tasks.resolve.architecture import architecture_of
from tasks.resolve.baseline import baseline_of
from tasks.resolve.effective import Resolved, effective_settings
from tasks.resolve.notices import ineffective, long_context, unmodelled
from tasks.resolve.precision import precision_of
from tasks.resolve.settings import Settings
from tasks.resolve.sources import preset_name

_CP_TYPES: Final = ("p2p", "a2a", "allgather", "a2a+p2p")
_DISPATCHERS: Final = ("allgather", "alltoall", "flex", "alltoall_seq")
_GRAPHS: Final = ("none", "local", "transformer_engine", "full_iteration")
_BACKENDS: Final = ("auto", "flash", "fused", "unfused", "local")


def resolve_workload(
    path: Path, *, model_path: Sequence[Path] = (), env: Mapping[str, str] | None = None
) -> Workload:
    """Resolve the workload file at `path`.

    Presets are looked for beside it, in `model_path` and `REFOLD_MODEL_PATH`, then among the
    shipped ones. `env` is the environment that `${VAR}` reads, the process's when None.

    Raises WorkloadError (UnsupportedModel for a family the oracle does not describe) in one line
    with file, line and key, for whatever cannot be understood.
    """
    return workload_from(effective_settings(path, model_path=model_path, env=env), path)


def workload_from(resolved: Resolved, path: Path) -> Workload:
    """The workload that the settings of the file at `path` amount to; raises as the above."""
    architecture = architecture_from(resolved)
    try:
        return _workload(resolved, architecture, str(path))
    except ValidationError as reason:
        first = reason.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise WorkloadError(f"{path}: {key}: {problem(first)}") from reason


def architecture_from(resolved: Resolved) -> Architecture:
    """The architecture alone, which may exist where the workload as a whole is refused."""
    return architecture_of(resolved.settings, preset_name(resolved.model.path))


def _workload(resolved: Resolved, architecture: Architecture, source: str) -> Workload:
    settings = resolved.settings
    seq_length = settings.size("seq_length", maximum=10**9)
    return Workload(
        name=resolved.name,
        architecture=architecture,
        seq_length=seq_length,
        baseline=baseline_of(settings, architecture),
        precision=precision_of(settings),
        sequence_parallel=settings.flag("sequence_parallel"),
        make_vocab_size_divisible_by=settings.size("make_vocab_size_divisible_by"),
        padded_vocab_size=settings.whole("padded_vocab_size"),
        flash_attention=_flash_attention(settings),
        cp_comm_type=cast(Any, _cp_comm_type(settings)),
        tp_comm_overlap=settings.flag("tp_comm_overlap"),
        moe_dispatcher=cast(
            Any, settings.word("moe_token_dispatcher_type", _DISPATCHERS) or "allgather"
        ),
        moe_grouped_gemm=_grouped_gemm(settings),
        moe_shared_expert_overlap=settings.flag("moe_shared_expert_overlap"),
        force_load_balancing=settings.flag("moe_router_force_load_balancing"),
        gradient_accumulation_fusion=settings.flag("gradient_accumulation_fusion"),
        cuda_graphs=_cuda_graphs(settings),
        framework="megatron",
        source=source,
        files=resolved.files,
        document=resolved.document,
        trainer=resolved.trainer,
        warnings=(
            *resolved.warnings,
            *unmodelled(settings),
            *ineffective(settings, architecture),
            *long_context(settings, seq_length),
        ),
    )


def _cuda_graphs(settings: Settings) -> tuple[GraphScope, ...]:
    """What graphs replay: nothing, the scopes that are named, or whole layers."""
    how = settings.word("cuda_graph_impl", _GRAPHS) or "none"
    old = settings.flag("enable_cuda_graph") or settings.flag("external_cuda_graph")
    if how == "none" and not old:
        return ()
    named = settings.word_list("cuda_graph_scope")
    if how == "full_iteration" or "full_iteration" in named:
        return ("full_iteration",)
    scopes: tuple[GraphScope, ...] = get_args(GraphScope)
    for word in named:
        if word not in (*scopes, "full"):
            raise settings.error("cuda_graph_scope", f"expected some of full, {', '.join(scopes)}")
    return tuple(scope for scope in scopes if scope in named) or ("layer",)


def _flash_attention(settings: Settings) -> bool:
    """Whether attention runs a kernel that never stores the scores."""
    backend = settings.word("attention_backend", _BACKENDS) or "auto"
    return settings.flag("use_flash_attn") and backend not in {"unfused", "local"}


def _cp_comm_type(settings: Settings) -> str:
    """Megatron takes one word, or one per layer; only one for all layers is modelled."""
    key = "cp_comm_type"
    raw = settings.raw(key)
    if not isinstance(raw, list):
        return settings.word(key, _CP_TYPES) or "p2p"
    if not raw or raw[0] not in _CP_TYPES or any(item != raw[0] for item in raw):
        raise settings.error(key, f"expected one of {', '.join(_CP_TYPES)}, for all layers alike")
    return str(raw[0])


def _grouped_gemm(settings: Settings) -> bool:
    """Whether experts run as one grouped GEMM, by any of the settings that say so."""
    turbo = settings.flag("enable_primus_turbo") and settings.flag("use_turbo_grouped_gemm")
    legacy = settings.flag("moe_use_legacy_grouped_gemm")
    return settings.flag("moe_grouped_gemm") or turbo or legacy
