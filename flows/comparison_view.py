"""Two runs side by side, for a person to read, in at most 100 columns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flows.terminal import print_table, wrapped
from storage.exports.knobs import in_words

if TYPE_CHECKING:
    from schemas.comparison import Comparison, RoundSide, RunSide, Setting, TrialSide

LABEL = 10


def print_comparison(found: "Comparison") -> None:
    """What is the same is said once; what is not, side by side."""
    for label, side in (("A", found.a), ("B", found.b)):
        _say(label, f"run {side.run_id} ({side.status}, as of event {side.as_of_event})")
        _say("", f"{side.workload} on {side.cluster}")
        _say("", f"Refold {side.refold_version}, projection {side.projection_version}")
    if found.a.head_hash == found.b.head_hash:
        _say("identical", "they are one run")
        return
    _print_parting(found)
    if found.identical:
        _say("identical", _same(found))
    _print_settings("asked", found.configuration)
    _print_settings("signature", found.signature)
    _print_rounds(found)
    _print_best(found)
    _print_trials(found)
    _print_spent(found)


def _same(found: "Comparison") -> str:
    return (
        f"the same question, the same rounds, and all {found.a.candidates} trials have the same"
        " verdict and score in both"
    )


def _print_parting(found: "Comparison") -> None:
    common = found.common_event
    if common is None:
        _say("part", "from the start: they share no event")
        return
    _say("part", f"after event {common.seq} of run {common.run_id}, hash {found.common_hash}")
    for label, side in (("A", found.a), ("B", found.b)):
        for fork in side.forks:
            again = "scores stand" if fork.inherits else "candidates evaluated again"
            changed = "; ".join(fork.changed) or "nothing"
            _say("", f"{label}: {fork.place.run_id} changed {changed}; {again}")


def _print_settings(label: str, settings: "Sequence[Setting]") -> None:
    for setting in settings:
        _say(label, f"{setting.path}: {in_words(setting.a)} | {in_words(setting.b)}")
        label = ""


def _print_rounds(found: "Comparison") -> None:
    rows = []
    for pair in found.rounds:
        for label, side in (("A", pair.a), ("B", pair.b)):
            rows.append((pair.round, label, *_round_cells(side)))
    if rows:
        columns = ("round>", "|", "proposer|", "planned>", "scored>", "best after>", "ended")
        print_table(columns, rows)


def _round_cells(side: "RoundSide | None") -> tuple[object, ...]:
    if side is None:
        return (None,) * 5
    best = "-" if side.incumbent is None else f"#{side.incumbent}"
    if side.incumbent_tokens_per_s_per_gpu is not None:
        best += f" {side.incumbent_tokens_per_s_per_gpu:,.0f}"
    scored = f"{side.scored}/{side.proposed}"
    return side.proposer, side.planned, scored, best, side.why_finished or "open"


def _print_best(found: "Comparison") -> None:
    for label, side in (("A", found.a), ("B", found.b)):
        _say(f"best of {label}", _best(side))
    if found.best_apart_percent is not None:
        _say("", f"B is {found.best_apart_percent:+.2f} % from A")
    if not found.knobs:
        same = found.a.best is not None and found.b.best is not None
        if same:
            _say("", "the same knobs in both")
        return
    print_table(
        ("knob|", "A", "B", "apart>"),
        [
            (
                knob.knob,
                in_words(knob.a),
                in_words(knob.b),
                None if knob.apart_percent is None else f"{knob.apart_percent:+.0f} %",
            )
            for knob in found.knobs
        ],
    )


def _best(side: "RunSide") -> str:
    best = side.best
    if best is None:
        return "none"
    memory = "" if best.memory_per_gpu_gb is None else f", {best.memory_per_gpu_gb:,.1f} GB"
    return (
        f"#{best.trial} {best.tag} ({best.rule}): {best.tokens_per_s_per_gpu:,.0f}"
        f" tokens/s/GPU{memory}, {best.provenance}"
    )


def _print_trials(found: "Comparison") -> None:
    _say(
        "trials",
        f"{found.in_both} configurations in both, {found.only_in_a} only in A,"
        f" {found.only_in_b} only in B",
    )
    first = found.first_difference
    if first is None:
        return
    how = first.differs if first.differs.startswith("only") else f"by its {first.differs}"
    _say("first", f"that differs: #{first.trial}, {how}")
    for label, side in (("A", first.a), ("B", first.b)):
        _say("", f"{label}: {_trial(side)}")


def _trial(side: "TrialSide | None") -> str:
    if side is None:
        return "no such trial"
    tokens, memory = side.tokens_per_s_per_gpu, side.memory_per_gpu_gb
    parts = [f"{side.tag} ({side.trial_id}, {side.rule}): {side.verdict}"]
    if tokens is not None:
        parts.append(f"{tokens:,.2f} tokens/s/GPU")
    if memory is not None:
        parts.append(f"{memory:,.2f} GB")
    return ", ".join(parts)


def _print_spent(found: "Comparison") -> None:
    rows = [
        (name, found.a.spent[name], found.b.spent[name])
        for name in found.a.spent
        if found.a.spent[name] or found.b.spent[name]
    ]
    if rows:
        print_table(("spent|", "A>", "B>"), rows)


def _say(label: str, text: str) -> None:
    for line in wrapped(text, indent=LABEL, label=label):
        print(line)
