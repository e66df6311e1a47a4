"""What `trials.png` shows of a run."""

from schemas.evaluation import PROVENANCE_ORDER
from storage import State
from storage.state import Trial
from tasks.draw_trials import Outcome, TrialMark, TrialsPicture


def picture_of(state: State) -> TrialsPicture:
    """The picture of a run as of its last event; undecided trials are not on it."""
    evaluations = [e for t in state.trials.values() if (e := t.evaluation) is not None]
    search = state.spec.search
    tiers = sorted({e.provenance for e in evaluations}, key=PROVENANCE_ORDER.index)
    mode = f"mode {search.mode}" + (f", {search.profiling_mode}" if search.mode == "full" else "")
    counts = state.conservation
    return TrialsPicture(
        title=f"{state.spec.workload_name} on {state.spec.cluster_name}",
        subtitle=" · ".join(
            (
                mode,
                # The worst tier stands for the picture: one synthetic point makes it synthetic.
                tiers[0] if tiers else "nothing evaluated",
                f"{counts.candidates} candidate{'' if counts.candidates == 1 else 's'},"
                f" {counts.evaluations} scored",
                f"run {state.run_id}",
                f"as of event {state.head_seq}",
            )
        ),
        cap_gb=evaluations[0].cap_gb if evaluations else None,
        marks=tuple(_mark(trial) for trial in state.trials.values() if trial.decided_at),
    )


def _mark(trial: Trial) -> TrialMark:
    evaluation = trial.evaluation
    outcome: Outcome = "rejected"
    if trial.scored is not None:
        outcome = "fits" if trial.scored.evaluation.fits else "over"
    if trial.invalidated is not None:
        outcome = "invalidated"
    return TrialMark(
        number=trial.number,
        rule=trial.proposed.rule,
        outcome=outcome,
        tokens_per_s_per_gpu=(
            trial.scored.evaluation.tokens_per_s_per_gpu if trial.scored is not None else None
        ),
        memory_gb=evaluation.memory_per_gpu_gb if evaluation is not None else None,
    )
