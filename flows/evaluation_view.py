"""One evaluation for a person to read: does it fit, how fast, and where time and memory go."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schemas.evaluation import Evaluation


def print_evaluation(evaluation: "Evaluation") -> None:
    """The evaluation on stdout, at most 100 columns wide."""
    for line in summary_lines(evaluation):
        print(line)
    if evaluation.legal:
        _print_breakdowns(evaluation)
    for warning in evaluation.warnings:
        print(f"warning: {warning}")


def summary_lines(evaluation: "Evaluation") -> list[str]:
    """The answer in a few lines."""
    e = evaluation
    if not e.legal:
        return [f"illegal ({e.reason_code}): {e.reason}"]
    lines = [configuration_line(e.config), *parallel_lines(e)]
    if e.memory_per_gpu_gb is not None:
        verdict = "fits" if e.fits else "DOES NOT FIT"
        lines.append(
            f"memory/GPU    {e.memory_per_gpu_gb:,.1f} GB of {e.cap_gb:,.1f} GB: {verdict}"
            f" ({e.cap_gb - e.memory_per_gpu_gb:+,.1f} GB)"
        )
    if e.iteration_ms is not None and e.tokens_per_s_per_gpu is not None:
        beside = e.expected_error.beside if e.expected_error else ""
        rates = [f"{e.tokens_per_s_per_gpu:,.0f}{beside} tokens/s/GPU"]
        if e.tflops_per_s_per_gpu is not None:
            rates.append(f"{e.tflops_per_s_per_gpu:,.0f} TFLOP/s/GPU")
        if e.mfu is not None:
            rates.append(f"MFU {e.mfu:.1%}")
        if e.bubble_ratio is not None:
            rates.append(f"bubble {e.bubble_ratio:.1%}")
        lines.append(f"iteration     {e.iteration_ms:,.1f} ms: {', '.join(rates)}")
    if e.expected_error is not None:
        lines.append(f"error         {e.expected_error.words}")
    if e.moe_imbalance is not None:
        lines.append(f"imbalance     {imbalance(e)}")
    lines.append(f"source        {e.source}, {e.provenance}, memory regime {e.memory_regime}")
    return lines


def imbalance(evaluation: "Evaluation") -> str:
    """The experts' imbalance memory was projected with, and the largest that still fits."""
    used = f"{evaluation.moe_imbalance:.2f} on the busiest rank"
    largest = evaluation.largest_moe_imbalance
    if largest is not None:
        return f"{used}; fits up to {largest:.2f}"
    return used if evaluation.fits else f"{used}; no imbalance fits"


def configuration_line(config: dict[str, object]) -> str:
    """The knobs everybody asks for first, in the guide's order."""
    names = ("tp", "pp", "ep", "cp", "mbs", "gbs", "vpp")
    axes = " ".join(f"{name.upper()}={config[name]}" for name in names)
    recompute = str(config["recompute_granularity"])
    if config["recompute_num_layers"]:
        recompute += f"/{config['recompute_num_layers']}"
    return f"{axes} schedule={config['pp_schedule']} recompute={recompute} fp8={config['fp8']}"


def parallel_lines(evaluation: "Evaluation") -> list[str]:
    """What follows from the configuration and the cluster."""
    if evaluation.derived_dp is None:
        return []
    data_parallel = f"DP {evaluation.derived_dp}"
    if evaluation.derived_edp:
        data_parallel += f", expert DP {evaluation.derived_edp}"
    return [f"{data_parallel}, {evaluation.num_microbatches} microbatches per replica"]


def _print_breakdowns(evaluation: "Evaluation") -> None:
    from flows.terminal import print_table

    times = _sorted(evaluation.time_breakdown_ms)
    if times and evaluation.iteration_ms:
        print_table(
            ("time", "ms>", "share>"),
            [
                (name, f"{ms:,.1f}", f"{ms / evaluation.iteration_ms:.1%}")
                for name, ms in times
                if ms > 0
            ],
        )
    memory = _sorted(evaluation.memory_breakdown_gb)
    if memory and evaluation.memory_per_gpu_gb:
        print_table(
            (f"memory, rank {evaluation.memory_heaviest_rank} (heaviest)", "GB>", "share>"),
            [
                (name, f"{gb:,.2f}", f"{gb / evaluation.memory_per_gpu_gb:.1%}")
                for name, gb in memory
                if gb > 0
            ],
        )


def _sorted(breakdown: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(breakdown.items(), key=lambda item: -item[1])
