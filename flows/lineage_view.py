"""A lineage for a person to read, in at most 100 columns."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from flows.terminal import MAX_WIDTH, print_table, wrapped

if TYPE_CHECKING:
    from schemas.lineage import (
        Competitor,
        Lineage,
        Place,
        ProposingCall,
        RecordedEvaluation,
        TrialStory,
    )

LABEL = 11
"""Width of the first column."""
LONGEST_LIST = 8
"""Lists with more values are counted rather than spelled out."""
MOST_ELSEWHERE = 8
"""Evaluations outside the lineage that are listed, the newest."""
EXCERPT_LINES = 12
"""Lines of a prompt or an answer that are shown."""


def print_lineage(lineage: "Lineage") -> None:
    """The whole chain, from the answer back to the files."""
    _print_answer(lineage)
    _print_story(lineage.trial)
    _print_rivals(lineage)
    _print_inputs(lineage)
    _print_past(lineage)


def _print_answer(lineage: "Lineage") -> None:
    trial = lineage.trial
    what = "the recipe" if lineage.is_recipe else "not the recipe"
    _say("trial", f"#{trial.trial} {trial.tag} ({trial.trial_id}), {what} of run {lineage.run_id}")
    _say("", _verdict(trial))
    when = f"{lineage.as_of:%Y-%m-%d %H:%M:%S} UTC"
    _say("as of", f"event {lineage.as_of_event}, {when}; the run was {lineage.status}")
    _say("head", lineage.head_hash)
    anchor = lineage.anchored
    if anchor is None:
        _say("", "WARNING: no head is anchored: a deleted tail would go unseen")
    elif anchor.seq == lineage.as_of_event:
        _say("", "anchored outside the run's folder, the same")
    else:
        _say("", f"anchored at event {anchor.seq}: {anchor.hash}")


def _verdict(trial: "TrialStory") -> str:
    evaluation = trial.evaluation
    if evaluation is None:
        return "not decided yet" if trial.status == "proposed" else "rejected without an evaluation"
    tokens, memory = evaluation.tokens_per_s_per_gpu, evaluation.memory_per_gpu_gb
    parts = [
        "not timed" if tokens is None else f"{tokens:,.0f} tokens/s/GPU",
        "" if memory is None else f"{memory:,.1f} of {evaluation.cap_gb:,.1f} GB",
        "" if evaluation.fits else "does not fit",
        f"{evaluation.provenance} ({evaluation.source})",
        "INVALIDATED" if trial.invalidated else "",
    ]
    return ", ".join(part for part in parts if part)


def _print_story(trial: "TrialStory") -> None:
    while True:
        _print_proposal(trial)
        _print_evaluations(trial.evaluations)
        for correction in trial.corrections:
            where = "" if correction.in_lineage else ", outside this lineage"
            _say(
                "corrected",
                f"trial {correction.trial} invalidated by {correction.author} at"
                f" {_place(correction.place)}{where}: {correction.why}",
            )
        for mention in trial.mentions:
            _say("note", f"{mention.at:%Y-%m-%d %H:%M:%S} {mention.author}: {mention.text}")
        if trial.carried_from is None:
            return
        trial = trial.carried_from
        _say("carried", f"from trial #{trial.trial} {trial.tag} of the run above:")


def _print_proposal(trial: "TrialStory") -> None:
    print()
    planned = f", {trial.planned} planned" if trial.planned else ""
    _say(
        "proposed",
        f"as #{trial.trial} in round {trial.round} ({trial.proposer}{planned})"
        f" at {_place(trial.place)}",
    )
    by = f"rule {trial.rule}" if trial.call is None else f"rule {trial.rule}, the call below"
    _say("", f"by {by}: {trial.why}")
    if trial.recalled_from is not None:
        origin = trial.recalled_from
        when = f"scored {origin.scored_at:%Y-%m-%d %H:%M:%S} UTC"
        _say("recalled", f"from trial #{origin.trial} of run {origin.run_id}, {when};")
        _say("", f"refold lineage {origin.run_id} --trial {origin.trial} says why that one")
    asked = trial.requested.model_dump(exclude_none=True)
    _say("asked", _pairs(asked.items()) or "nothing: the workload as it is")
    changed = [f"{k} {_short(a)} → {_short(b)}" for k, (a, b) in trial.changed.items()]
    _say("changes", ", ".join(changed) or "no knob of the workload")
    if trial.call is not None:
        _print_call(trial.call)


def _print_call(call: "ProposingCall") -> None:
    tokens = f"{_or_dash(call.input_tokens)} tokens in, {_or_dash(call.output_tokens)} out"
    cost = "" if call.cost_usd is None else f", {call.cost_usd:.4f} USD"
    _say("LLM call", f"{call.call}, {call.role}, {call.model}, at {_place(call.place)}")
    _say("", f"{tokens}{cost}, {call.latency_ms / 1000:,.1f} s; prompt {call.prompt_hash}")
    _print_excerpt("request", call.request, call.request_sha256)
    if call.answer is not None and call.answer_sha256 is not None:
        _print_excerpt("answer", call.answer, call.answer_sha256)


def _print_excerpt(label: str, text: str, sha256: str) -> None:
    _say(label, f"sha256 {sha256}, {len(text.encode()):,} bytes")
    lines = "\n".join(_spoken(text)).splitlines()
    for line in lines[:EXCERPT_LINES]:
        shown = line if len(line) <= MAX_WIDTH - LABEL - 2 else line[: MAX_WIDTH - LABEL - 3] + "…"
        print(f"{'':{LABEL}}| {shown}")
    if len(lines) > EXCERPT_LINES:
        print(f"{'':{LABEL}}| … {len(lines) - EXCERPT_LINES} more lines: --json has them all")


def _spoken(text: str) -> list[str]:
    """What a request or an answer says, without the protocol around it where that is JSON."""
    try:
        body = json.loads(text)
    except ValueError:
        return [text]
    return list(_texts(body)) or [text]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            if name in ("text", "content") and isinstance(item, str):
                yield item
            else:
                yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _print_evaluations(evaluations: Sequence["RecordedEvaluation"]) -> None:
    if not evaluations:
        _say("evaluated", "never")
        return
    elsewhere = [e for e in evaluations if not e.in_lineage]
    left_out = elsewhere[:-MOST_ELSEWHERE]
    if left_out:
        _say("evaluated", f"also {len(left_out)} times in earlier runs: --json has them all")
    print_table(
        ("evaluated|", "run|", "#>", "event>", "by|", "tok/s/GPU>", "GB>", "verdict"),
        [
            (
                f"{e.place.at:%Y-%m-%d %H:%M}",
                f"…{e.place.run_id[-8:]}",
                e.trial,
                e.place.seq,
                e.provenance,
                None if e.tokens_per_s_per_gpu is None else f"{e.tokens_per_s_per_gpu:,.0f}",
                None if e.memory_per_gpu_gb is None else f"{e.memory_per_gpu_gb:,.1f}",
                _outcome(e),
            )
            for e in evaluations
            if e not in left_out
        ],
    )


def _outcome(e: "RecordedEvaluation") -> str:
    parts = [
        e.code or ("fits" if e.fits else "does not fit"),
        e.source or "",
        "from the cache" if e.from_cache else "",
        "" if e.same_question else "another question",
        "" if e.in_lineage else "outside the lineage",
    ]
    return ", ".join(part for part in parts if part)


def _print_rivals(lineage: "Lineage") -> None:
    print()
    named = (
        ("the workload as it is", lineage.baseline),
        ("the best seed", lineage.best_seed),
        ("the next best", lineage.next_best),
    )
    label = "beats" if lineage.is_recipe else "against"
    for words, rival in named:
        if rival is not None and rival.trial != lineage.trial.trial:
            _say(label, f"{words}: {_rival(rival)}")
            label = ""
    rejected = ", ".join(f"{code} {count}" for code, count in lineage.rejected.items())
    _say(
        "rejected",
        f"{sum(lineage.rejected.values())} of {lineage.candidates} candidates"
        + (f": {rejected}" if rejected else ""),
    )
    print_table(
        ("rank>", "#>", "rule|", "configuration", "tokens/s/GPU>", "lead>"),
        [
            (
                place,
                c.trial,
                c.rule,
                c.tag,
                f"{c.tokens_per_s_per_gpu:,.0f}",
                "this trial" if c.trial == lineage.trial.trial else _percent(c),
            )
            for place, c in enumerate(lineage.ranked, 1)
            if c.tokens_per_s_per_gpu is not None
        ],
    )


def _rival(rival: "Competitor") -> str:
    text = f"#{rival.trial} {rival.tag} ({rival.rule})"
    if rival.tokens_per_s_per_gpu is None:
        return f"{text}, which was not timed"
    text += f", {rival.tokens_per_s_per_gpu:,.0f} tokens/s/GPU"
    if rival.lead_percent is not None:
        way = "faster" if rival.lead_percent >= 0 else "slower"
        text += f"; this is {abs(rival.lead_percent):.1f} % {way}"
    return text if rival.fits else f"{text}; that does not fit"


def _percent(rival: "Competitor") -> str:
    return "-" if rival.lead_percent is None else f"{rival.lead_percent:+.1f} %"


def _print_inputs(lineage: "Lineage") -> None:
    for file in lineage.files:
        _say("file", f"{file.path} ({file.role}), {len(file.text.encode()):,} bytes kept")
        _say("", f"sha256 {file.sha256}")
    if lineage.presets:
        _say("", f"and {len(lineage.presets)} shipped presets: --json has their hashes")
    for label, side in (("workload", lineage.workload), ("cluster", lineage.cluster)):
        _say(label, f"{side.name}, as resolved")
        _say("", f"sha256 {side.sha256}")
    for name, part in lineage.signature.items():
        holds = "" if part.hash_holds else "; NOT the hash of what it says it is made of"
        _say("signature", f"{name} {part.hash}{holds}, made of")
        for line in _groups(part.made_of):
            _say("", line)
    versions = ", ".join(map(str, lineage.schema_versions))
    _say(
        "versions",
        f"Refold {lineage.refold_version}, projection {lineage.projection_version},"
        f" event schema {versions}",
    )
    for line in lineage.lesser_paths:
        _say("lesser", line)
    label = "search"
    for line in _groups(lineage.search.model_dump(mode="json")):
        _say(label, line)
        label = ""
    if lineage.axes is not None:
        _say("axes", "; ".join(f"{a.name} {_values(a.values)}" for a in lineage.axes.axes))


def _print_past(lineage: "Lineage") -> None:
    for fork in lineage.forks:
        kept = "scores stand" if fork.inherits else "candidates evaluated again"
        _say("fork", f"{fork.place.run_id} continues event {fork.parent_seq} of {fork.parent}")
        _say("", f"asked {fork.asked}; {kept}")
        for line in fork.changed or ("nothing",):
            _say("", f"changed {line}")
    for occurrence in lineage.history:
        _say("history", f"{_place(occurrence.place)}: {occurrence.what}")
    for line in lineage.unread:
        _say("unread", line)


def _say(label: str, text: str) -> None:
    for line in wrapped(text, indent=LABEL, label=label):
        print(line)


def _place(place: "Place") -> str:
    return f"event {place.seq} of {place.run_id} ({place.at:%Y-%m-%d %H:%M:%S})"


def _groups(value: dict[str, Any]) -> Iterator[str]:
    """A line of what stands at the top, then one per mapping below. Null says nothing."""
    said = {k: v for k, v in value.items() if v is not None and v != [] and v != {}}
    single = [(k, v) for k, v in said.items() if not isinstance(v, dict)]
    if single:
        yield _pairs(single)
    for name, below in said.items():
        if isinstance(below, dict):
            yield f"{name}: {', '.join(_groups(below))}"


def _values(values: Sequence[Any]) -> str:
    """`1 2 4 8`; `0-56` for whole numbers without a gap."""
    whole = all(type(value) is int for value in values)
    if whole and len(values) > 3 and list(values) == list(range(values[0], values[-1] + 1)):
        return f"{values[0]}-{values[-1]}"
    return " ".join(map(_short, values))


def _pairs(items: Iterable[tuple[str, Any]]) -> str:
    return ", ".join(f"{name} {_short(value)}" for name, value in items)


def _short(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        if len(value) > LONGEST_LIST:
            return f"({len(value)} values)"
        return f"({' '.join(map(_short, value))})"
    if isinstance(value, float):
        return f"{value:g}" if abs(value) < 1e6 else f"{value:.4g}"
    return "none" if value is None else str(value)


def _or_dash(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
