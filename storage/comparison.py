"""Compares two runs, event by event and trial by trial. Pure: from two logs to what differs."""

from collections.abc import Sequence
from typing import Any

from schemas.comparison import (
    BestTrial,
    Comparison,
    Knob,
    RoundPair,
    RoundSide,
    RunSide,
    Setting,
    TrialPair,
    TrialSide,
)
from storage.exports.knobs import knobs_apart
from storage.folding import fold_records
from storage.fork_steps import fork_steps, place_of
from storage.reading import Record
from storage.state import Round, State, Trial


def compare(
    a: Sequence[Record],
    b: Sequence[Record],
    configuration: Sequence[Setting],
    signature: Sequence[Setting],
) -> Comparison:
    """What two runs' events differ in.

    Args:
        a: all events of a run, as of any one; and `b` of the other.
        configuration: what differs in search, workload and cluster.
        signature: what differs in what a score depends on.
    """
    left, right = fold_records(a), fold_records(b)
    common = _common(a, b)
    rounds = _rounds(left, right)
    first = _first_difference(left, right)
    ids = {t.proposed.trial_id for t in left.trials.values()}
    others = {t.proposed.trial_id for t in right.trials.values()}
    sides = _side(left, a[common:]), _side(right, b[common:])
    last = a[common - 1].envelope if common else None
    return Comparison(
        identical=not (configuration or signature or first)
        and all(pair.a == pair.b for pair in rounds),
        a=sides[0],
        b=sides[1],
        common_event=None if last is None else place_of(last),
        common_hash=None if last is None else last.hash,
        configuration=tuple(configuration),
        signature=tuple(signature),
        rounds=rounds,
        best_apart_percent=_best_apart(left.best, right.best),
        knobs=_knobs(left.best, right.best),
        first_difference=first,
        in_both=len(ids & others),
        only_in_a=len(ids - others),
        only_in_b=len(others - ids),
    )


def _common(a: Sequence[Record], b: Sequence[Record]) -> int:
    """How many events both have: an event's hash covers all those before it."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[middle - 1].envelope.hash == b[middle - 1].envelope.hash:
            low = middle
        else:
            high = middle - 1
    return low


def _side(state: State, since: Sequence[Record]) -> RunSide:
    counts, spent = state.conservation, state.spent
    ending = state.finished or state.interrupted
    return RunSide(
        run_id=state.run_id,
        as_of_event=state.head_seq,
        head_hash=state.head_hash,
        status=state.status,
        why=None if ending is None else ending.why,
        workload=state.spec.workload_name,
        cluster=state.spec.cluster_name,
        refold_version=state.spec.refold_version,
        projection_version=state.spec.projection_version,
        candidates=counts.candidates,
        evaluations=counts.evaluations,
        rejections=counts.rejections,
        spent={name: getattr(spent, name) for name in type(spent).__slots__},
        best=_best(state.best),
        forks=tuple(fork_steps(since)),
    )


def _best(trial: Trial | None) -> BestTrial | None:
    if trial is None or trial.score is None or trial.evaluation is None:
        return None
    return BestTrial(
        trial=trial.number,
        trial_id=trial.proposed.trial_id,
        tag=trial.proposed.tag,
        rule=trial.proposed.rule,
        tokens_per_s_per_gpu=trial.score,
        memory_per_gpu_gb=trial.evaluation.memory_per_gpu_gb,
        provenance=trial.evaluation.provenance,
    )


def _best_apart(a: Trial | None, b: Trial | None) -> float | None:
    if a is None or b is None:
        return None
    return _apart(a.score, b.score)


def _apart(a: Any, b: Any) -> float | None:
    """(b/a − 1) · 100; None where that says nothing."""
    if any(isinstance(v, bool) or not isinstance(v, int | float) for v in (a, b)) or not a:
        return None
    return 100 * (float(b) / float(a) - 1)


def _knobs(a: Trial | None, b: Trial | None) -> tuple[Knob, ...]:
    if a is None or b is None:
        return ()
    different = knobs_apart(a.proposed.config, b.proposed.config)
    return tuple(
        Knob(knob=name, a=one, b=other, apart_percent=_apart(one, other))
        for name, (one, other) in different.items()
    )


def _rounds(a: State, b: State) -> tuple[RoundPair, ...]:
    left, right = ({r.number: r for r in state.rounds} for state in (a, b))
    return tuple(
        RoundPair(
            round=number,
            a=_round(left.get(number), a),
            b=_round(right.get(number), b),
        )
        for number in sorted(left.keys() | right.keys())
    )


def _round(found: Round | None, state: State) -> RoundSide | None:
    if found is None:
        return None
    ended = found.finished
    return RoundSide(
        proposer=found.started.proposer,
        planned=found.started.planned,
        proposed=len(found.trials),
        scored=sum(state.trials[number].scored is not None for number in found.trials),
        why_finished=None if ended is None else ended.why,
        incumbent=None if ended is None else ended.incumbent,
        incumbent_tokens_per_s_per_gpu=(
            None if ended is None else ended.incumbent_tokens_per_s_per_gpu
        ),
    )


def _first_difference(a: State, b: State) -> TrialPair | None:
    for number in sorted(a.trials.keys() | b.trials.keys()):
        left, right = _trial(a.trials.get(number)), _trial(b.trials.get(number))
        if left is None:
            return TrialPair(trial=number, differs="only in b", a=None, b=right)
        if right is None:
            return TrialPair(trial=number, differs="only in a", a=left, b=None)
        if left.trial_id != right.trial_id:
            return TrialPair(trial=number, differs="identity", a=left, b=right)
        if left.verdict != right.verdict:
            return TrialPair(trial=number, differs="verdict", a=left, b=right)
        if _numbers(left) != _numbers(right):
            return TrialPair(trial=number, differs="score", a=left, b=right)
    return None


def _numbers(trial: TrialSide) -> tuple[float | None, float | None]:
    return trial.tokens_per_s_per_gpu, trial.memory_per_gpu_gb


def _trial(trial: Trial | None) -> TrialSide | None:
    if trial is None:
        return None
    evaluation = trial.evaluation
    return TrialSide(
        trial_id=trial.proposed.trial_id,
        tag=trial.proposed.tag,
        rule=trial.proposed.rule,
        verdict=trial.verdict,
        tokens_per_s_per_gpu=None if evaluation is None else evaluation.tokens_per_s_per_gpu,
        memory_per_gpu_gb=None if evaluation is None else evaluation.memory_per_gpu_gb,
    )
