"""What a language model is shown of a search: what an expert would ask for, and nothing else.

Pure text from the state; no times, paths or hashes, so that a replay asks the same.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from schemas.architecture import Architecture
from schemas.cluster import Cluster
from schemas.evaluation import Evaluation
from schemas.legality import AxisValue
from schemas.trial import NormalTrial, TrialConfig
from schemas.workload import Workload
from storage.exports.knobs import knobs_apart
from storage.state import State, Trial

CHECK = "proposal check"
"""Author of the notes that say why a proposal was refused before it was a trial."""
_PARTS = 6
"""Entries of a breakdown that are shown; the rest is summed."""
_BEST, _LATEST = 20, 40
"""Trials of a long search that are shown: the best and the latest; a context is finite."""
_SHORTEST_RANGE = 4
"""Consecutive integers from which on a range says the same in fewer tokens."""
_NO_KNOBS = frozenset(NormalTrial.model_fields) - frozenset(TrialConfig.model_fields)
"""Parts of a normal form that follow from the workload: nobody can ask for them."""


def situation(state: State, workload: Workload, cluster: Cluster) -> str:
    """The search as it stands, for a model to propose from."""
    sections = {
        "WORKLOAD": _workload(workload),
        "CLUSTER": _cluster(cluster),
        "AXES (name: legal values, a..b every integer; * is the workload's own)": _axes(state),
        "BUDGET LEFT": budget_lines(state),
        "BASELINE": _one(state.baseline, workload),
        "INCUMBENT": _one(state.best, workload),
        "TRIALS (knobs that differ from the baseline)": _trials(state),
        "RULED OUT": _ruled_out(state.trials.values()),
        "REFUSED PROPOSALS": [note.text for note in state.notes if note.author == CHECK][-8:],
    }
    return "\n\n".join(
        "\n".join((name, *(f"  {line}" for line in lines)))
        for name, lines in sections.items()
        if lines
    )


def knobs_to_ask(trial: NormalTrial, baseline: NormalTrial) -> dict[str, Any]:
    """Every knob of `trial` that differs from the baseline's and that somebody can ask for."""
    return {
        name: value
        for name, (_, value) in knobs_apart(baseline, trial).items()
        if name not in _NO_KNOBS
    }


def budget_lines(state: State) -> list[str]:
    """What remains of each budget that bounds the rounds of a model."""
    budget, spent = state.spec.search.budget, state.spent
    pairs = (
        ("proposals", budget.max_proposals, spent.proposals),
        ("performance calls", budget.max_perf_calls, spent.perf_calls),
        ("rounds", budget.max_rounds, spent.rounds),
        ("tokens", budget.max_llm_tokens, spent.llm_tokens),
    )
    return [f"{name}: {limit - used} of {limit}" for name, limit, used in pairs if limit]


def history_lines(state: State, last: int | None = None) -> list[str]:
    """One line per trial: verdict, distance to the incumbent and to the cap, knobs, bottleneck."""
    trials = list(state.trials.values())
    baseline = state.baseline
    if baseline is None:
        return []
    best = state.best.score if state.best else None
    return [
        _line(trial, baseline.proposed.config, best)
        for trial in (trials[-last:] if last else trials)
    ]


def _trials(state: State) -> list[str]:
    """Every trial of a search that is not long; else the best and the latest, in order."""
    lines = history_lines(state)
    if len(lines) <= _BEST + _LATEST:
        return lines
    best = {trial.number for trial in state.ranked()[:_BEST]}
    first = len(lines) - _LATEST
    shown = [
        line
        for place, (number, line) in enumerate(zip(state.trials, lines, strict=True))
        if number == 0 or number in best or place >= first
    ]
    return [*shown, f"{len(lines) - len(shown)} more, none of them among the best {_BEST}"]


def _workload(workload: Workload) -> list[str]:
    architecture = workload.architecture
    lines = [
        f"{architecture.num_layers} layers, hidden {architecture.hidden_size}, ffn"
        f" {architecture.ffn_hidden_size}, {architecture.num_attention_heads} heads"
        f" ({architecture.attention}, {architecture.num_query_groups} KV groups),"
        f" vocabulary {architecture.vocab_size}",
        f"sequence length {workload.seq_length}, sequence parallel"
        f" {'on' if workload.sequence_parallel else 'off'}",
    ]
    return lines + _experts(architecture)


def _experts(architecture: Architecture) -> list[str]:
    if not architecture.num_experts:
        return []
    return [
        f"{architecture.num_experts} experts, top {architecture.moe_router_topk}, expert ffn"
        f" {architecture.moe_ffn_hidden_size}"
    ]


def _cluster(cluster: Cluster) -> list[str]:
    network, gpu = cluster.network, cluster.gpu
    return [
        f"{cluster.num_nodes} nodes of {cluster.gpus_per_node} {gpu.name}, {cluster.world_size}"
        f" GPUs in all, {gpu.bf16_tflops:.0f} TFLOP/s BF16 peak,"
        f" cap {cluster.cap_gb:.1f} GB per GPU",
        f"{network.node_bw:g} GB/s per GPU inside a node, {network.pod_bw:g} GB/s per NIC between"
        f" nodes, {network.nics_per_node} NICs per node",
    ]


def _axes(state: State) -> list[str]:
    if state.axes is None:
        return []
    lines = []
    for axis in state.axes.axes:
        values = (
            [_short(axis.baseline, star=True)]
            if axis.pinned
            else axis_values(axis.values, axis.baseline)
        )
        lines.append(f"{axis.name}: {' '.join(values)}{' (pinned)' if axis.pinned else ''}")
    for vpp, schedules in state.axes.schedules_by_vpp.items():
        lines.append(f"schedules at vpp {vpp}: {' '.join(schedules)}")
    return lines


def axis_values(values: Sequence[AxisValue], baseline: AxisValue) -> list[str]:
    """The values, runs of consecutive integers as `1..56`; the baseline stands by itself."""
    shown: list[str] = []
    run: list[int] = []

    def end_run() -> None:
        if len(run) >= _SHORTEST_RANGE:
            shown.append(f"{run[0]}..{run[-1]}")
        else:
            shown.extend(map(str, run))
        run.clear()

    for value in values:
        countable = isinstance(value, int) and not isinstance(value, bool) and value != baseline
        if run and not (countable and value == run[-1] + 1):
            end_run()
        if countable:
            run.append(int(value))
        else:
            shown.append(_short(value, star=value == baseline))
    end_run()
    return shown


def _one(trial: Trial | None, workload: Workload) -> list[str]:
    if trial is None:
        return []
    evaluation = trial.evaluation
    apart = knobs_to_ask(trial.proposed.config, workload.baseline)
    lines = [f"#{trial.number}: {setting(apart) or 'the workload as its file says'}"]
    if evaluation is None:
        return [*lines, *([trial.rejected.reason] if trial.rejected else [])]
    lines.append(_figures(evaluation))
    if evaluation.time_breakdown_ms:
        lines.append(f"time: {_shares(evaluation.time_breakdown_ms, 'ms')}")
    if evaluation.memory_breakdown_gb:
        lines.append(f"memory: {_shares(evaluation.memory_breakdown_gb, 'GB')}")
    return lines


def _figures(evaluation: Evaluation) -> str:
    parts = []
    if evaluation.tokens_per_s_per_gpu is not None:
        parts.append(f"{evaluation.tokens_per_s_per_gpu:.0f} tokens/s/GPU")
    if evaluation.memory_per_gpu_gb is not None:
        room = evaluation.cap_gb - evaluation.memory_per_gpu_gb
        where = f"{room:.1f} GB below" if room >= 0 else f"{-room:.1f} GB ABOVE"
        parts.append(f"{evaluation.memory_per_gpu_gb:.1f} GB, {where} the cap")
    if evaluation.bubble_ratio is not None:
        parts.append(f"bubble {100 * evaluation.bubble_ratio:.1f} %")
    return ", ".join(parts)


def _shares(breakdown: Mapping[str, float], unit: str) -> str:
    total = sum(breakdown.values()) or 1.0
    ranked = sorted(breakdown.items(), key=lambda item: (-item[1], item[0]))
    shown = [
        f"{name} {value:.1f} {unit} ({100 * value / total:.0f} %)"
        for name, value in ranked[:_PARTS]
        if value > 0
    ]
    rest = sum(value for _, value in ranked[_PARTS:])
    return ", ".join([*shown, *([f"others {rest:.1f} {unit}"] if rest > 0 else [])])


def _line(trial: Trial, baseline: NormalTrial, best: float | None) -> str:
    knobs = setting(knobs_to_ask(trial.proposed.config, baseline)) or "baseline"
    return f"#{trial.number} {_verdict(trial, best)} | {knobs}"


def _verdict(trial: Trial, best: float | None) -> str:
    if trial.rejected is not None:
        over = trial.rejected.numbers.get("over_gb")
        reason = trial.rejected.reason if over is None else f"{over:.1f} GB over the cap"
        return f"rejected ({trial.rejected.code}): {reason}"
    if trial.scored is None:
        return "fits, not scored"
    if trial.invalidated is not None:
        return "invalidated"
    evaluation = trial.scored.evaluation
    score = evaluation.tokens_per_s_per_gpu or 0.0
    parts = [_figures(evaluation)]
    if best and trial.score is not None:
        apart = 100 * (score / best - 1)
        parts.append("the incumbent" if apart == 0 else f"{apart:+.1f} % to the incumbent")
    if evaluation.time_breakdown_ms:
        name, value = max(evaluation.time_breakdown_ms.items(), key=lambda item: item[1])
        parts.append(f"most of it {name} {value:.0f} ms")
    return ", ".join(parts)


def _ruled_out(trials: Iterable[Trial]) -> list[str]:
    codes = Counter(trial.rejected.code for trial in trials if trial.rejected is not None)
    return [f"{code}: {count} candidates" for code, count in codes.most_common()]


def setting(knobs: Mapping[str, Any], between: str = " ") -> str:
    """`tp=4 fp8=hybrid`."""
    return between.join(f"{name}={_short(value)}" for name, value in knobs.items())


def notes_text(state: State) -> str:
    """The notes models took, oldest first."""
    return "\n".join(
        f"round {note.round}, {note.author}: {note.text}"
        for note in state.notes
        if note.author != CHECK and note.round
    )


def _short(value: Any, *, star: bool = False) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"{text}*" if star else text
