"""The last step: which trial is the recipe, or what stood in the way of every one of them."""

from collections.abc import Iterable
from dataclasses import dataclass

from schemas.cluster import Cluster
from storage import State
from storage.state import Trial
from tasks.memory_filter import DOES_NOT_FIT, IMPLIED_OOM

MEMORY_CODES = (DOES_NOT_FIT, IMPLIED_OOM)
BUDGET_SPENT = "budget_spent"
"""Why a candidate was not scored that may well have won."""
PLAN_DONE = "seed plan done"
"""Why a seed round ended in which no budget was spent too early."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a search ended. Without a recipe, `binding_constraints` say why and what to loosen."""

    why: str
    recipe_trial: int | None
    recipe_trial_id: str | None
    binding_constraints: tuple[str, ...] = ()


def finish(state: State, cluster: Cluster, stop: str | None) -> Outcome:
    """The arg max over legal trials that fit, or the constraints that left none.

    `stop`: what ended the search before its plan was done; None: nothing did.
    """
    best = state.best
    if best is not None:
        return Outcome(stop or "the plan is done", best.number, best.proposed.trial_id)
    nothing = "no candidate is both legal and within the memory cap"
    return Outcome(
        nothing if stop is None else f"{nothing} ({stop})",
        None,
        None,
        binding_constraints(state.trials.values(), cluster),
    )


def binding_constraints(trials: Iterable[Trial], cluster: Cluster) -> tuple[str, ...]:
    """One line per constraint that bound: how many candidates it cost, and what loosens it."""
    rejected: dict[str, list[Trial]] = {}
    too_big: list[Trial] = []
    for trial in trials:
        if trial.rejected is not None and trial.rejected.code not in MEMORY_CODES:
            rejected.setdefault(trial.rejected.code, []).append(trial)
        else:
            too_big.append(trial)
    lines = []
    if too_big:
        lines.append(_memory_line(too_big, cluster))
    for code, of_code in sorted(rejected.items(), key=lambda item: -len(item[1])):
        example = of_code[0]
        assert example.rejected is not None
        loosen = (
            "raise it under optimization.budget"
            if code == BUDGET_SPENT
            else "change what the workload asks for, or free the axes that optimization.axes and"
            " pinned hold"
        )
        lines.append(f"{code} ({_candidates(len(of_code))}): {example.rejected.reason}; {loosen}")
    return tuple(lines)


def _memory_line(too_big: list[Trial], cluster: Cluster) -> str:
    sizes = [
        (trial.evaluation.memory_per_gpu_gb, trial.number)
        for trial in too_big
        if trial.evaluation is not None and trial.evaluation.memory_per_gpu_gb is not None
    ]
    head = f"memory ({_candidates(len(too_big))})"
    if not sizes:
        return f"{head}: none fits the cap of {cluster.cap_gb:.1f} GB"
    least, number = min(sizes)
    line = f"{head}: the leanest, trial {number}, needs {least:.1f} GB of {cluster.cap_gb:.1f} GB"
    return f"{line}; {_what_admits(least, cluster)}"


def _what_admits(needed_gb: float, cluster: Cluster) -> str:
    """The smallest change of the cluster file that lets `needed_gb` in, or that none does."""
    margin = 1 - needed_gb / cluster.hbm_capacity_gb
    if needed_gb <= cluster.gpu.usable_hbm_gb and margin >= 0:
        return f"optimization.memory_safety_margin {int(margin * 1000) / 1000:g} would admit it"
    if needed_gb <= cluster.gpu.usable_hbm_gb:
        return f"optimization.hbm_capacity_gb {needed_gb:.0f} would admit it"
    return (
        f"no margin admits it, a {cluster.gpu.name} has {cluster.gpu.usable_hbm_gb:.0f} GB usable:"
        " add nodes, free pinned axes, or raise --seed-budget to try more sharding"
    )


def _candidates(count: int) -> str:
    return f"{count} candidate" + ("" if count == 1 else "s")
