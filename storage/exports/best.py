"""The recipe of a run: its best trial, what it beat, and what a person must still check."""

from typing import Any

from schemas.recipe import Recipe
from schemas.workload import Workload
from storage.exports.knobs import changed_knobs
from storage.state import State, Trial

UNMODELLED = "contention between jobs and differences between nodes are not modelled"


def recipe_of(state: State, workload: Workload) -> Recipe | None:
    """The recipe as of the state's last event; None: no trial is legal, fits and is timed."""
    best = state.best
    if best is None or best.scored is None:
        return None
    evaluation = best.scored.evaluation
    ranked = state.ranked()
    runner_up = ranked[1] if len(ranked) > 1 else None
    baseline = None if state.baseline is None else state.baseline.evaluation
    seeds = [t for t in ranked if is_seed(state, t)]
    changed: dict[str, tuple[Any, Any]] = changed_knobs(best.proposed.config, workload)
    return Recipe(
        run_id=state.run_id,
        trial=best.number,
        trial_id=best.proposed.trial_id,
        rule=best.proposed.rule,
        config=best.proposed.config,
        evaluation=evaluation,
        changed=changed,
        baseline_tokens_per_s_per_gpu=None if baseline is None else baseline.tokens_per_s_per_gpu,
        baseline_fits=None if baseline is None else baseline.fits,
        runner_up_trial=None if runner_up is None else runner_up.number,
        runner_up_tokens_per_s_per_gpu=None if runner_up is None else runner_up.score,
        best_seed_trial=seeds[0].number if seeds else None,
        headroom_gb=evaluation.cap_gb - (evaluation.memory_per_gpu_gb or 0.0),
        caveats=caveats(state, best, workload),
        head_seq=state.head_seq,
        head_hash=state.head_hash,
    )


def is_seed(state: State, trial: Trial) -> bool:
    """Whether the seed plan proposed `trial`."""
    by_number = {r.number: r.started.proposer for r in state.rounds}
    return by_number[trial.round] == "seed"


def caveats(state: State, trial: Trial, workload: Workload) -> tuple[str, ...]:
    """What must be checked, or was not modelled, before anybody believes `trial`."""
    config, base, evaluation = trial.proposed.config, workload.baseline, trial.evaluation
    found = []
    if config.fp8 not in ("none", base.fp8):
        before = "BF16" if base.fp8 == "none" else f"fp8 {base.fp8}"
        found.append(f"fp8 {config.fp8} replaces {before}: convergence must be validated")
    if config.gbs != base.gbs:
        found.append(
            f"the global batch changes from {base.gbs} to {config.gbs}:"
            " convergence must be validated"
        )
    if config.target_ep_size is not None:
        found.append(
            f"the all-to-all is priced for EP {config.target_ep_size}; what runs is EP {config.ep}"
        )
    if evaluation is not None:
        if evaluation.provenance == "synthetic":
            found.append("the figures are synthetic: they say nothing about the cluster")
        if evaluation.source == "memory_real":
            found.append("only memory is projected; tokens/s is a heuristic for ordering trials")
        found.extend(evaluation.warnings)
    found.extend(state.spec.lesser_paths)
    found.append(UNMODELLED)
    return tuple(dict.fromkeys(found))
