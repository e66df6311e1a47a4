"""The run as files for other tools: `trials.jsonl`, `scratchpad.txt`, `summary.json`."""

import json
from typing import Any

from schemas.events import NEXT_STEPS_AUTHOR, SUMMARY_AUTHOR, RunStarted
from schemas.workload import Workload
from storage.exports.best import recipe_of
from storage.state import ForkPoint, Note, State, Trial


def trials_jsonl(state: State) -> str:
    """One line per trial, in order of proposal: idx, timestamp, config, result, source, notes, …

    `result` is the evaluation, or for a trial rejected without one its verdict and reason.
    """
    return "".join(f"{_json(_trial_line(state, trial))}\n" for trial in state.trials.values())


def scratchpad_txt(state: State) -> str:
    """The notes, in order, each with its time and author."""
    lines = [f"# run {state.run_id}, as of event {state.head_seq}"]
    lines += [_note_line(note) for note in state.notes]
    return "\n".join(lines) + "\n"


def summary_json(state: State, workload: Workload) -> str:
    """The run in one object: what was searched, what it cost, what won, and why it ended."""
    recipe = recipe_of(state, workload)
    finished = state.finished
    summary = {
        "run_id": state.run_id,
        "as_of_event": state.head_seq,
        "head_hash": state.head_hash,
        "status": state.status,
        "why": finished.why if finished else state.interrupted and state.interrupted.why,
        "started_at": state.started_at.isoformat(),
        "last_event_at": state.last_at.isoformat(),
        **_spec(state.spec),
        "best": None if recipe is None else recipe.model_dump(mode="json"),
        "binding_constraints": list(finished.binding_constraints) if finished else [],
        "trials": state.conservation._asdict(),
        "spent": {name: getattr(state.spent, name) for name in type(state.spent).__slots__},
        "rounds": [
            {
                "round": r.number,
                "proposer": r.started.proposer,
                "planned": r.started.planned,
                "trials": list(r.trials),
                "why_finished": r.finished and r.finished.why,
            }
            for r in state.rounds
        ],
        "invalidated": [
            {"trial": trial.number, "trial_id": trial.proposed.trial_id, **_invalidation(trial)}
            for trial in state.trials.values()
            if trial.invalidated is not None
        ],
        "forks": [_fork(fork) for fork in state.forks],
        "models_words": _models_words(state),
        "resumed": len(state.resumed),
        "recovered": [name for event in state.recoveries for name in event.discarded],
        "workload_warnings": list(workload.warnings),
        "cluster_warnings": list(state.spec.cluster_warnings),
    }
    return json.dumps(_sorted(summary), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _models_words(state: State) -> list[dict[str, Any]]:
    """What a model said it found, by round: words, never read as numbers."""
    words: dict[int | None, dict[str, str]] = {}
    names = {SUMMARY_AUTHOR: "summary", NEXT_STEPS_AUTHOR: "next_steps"}
    for note in state.notes:
        if note.author in names:
            words.setdefault(note.round, {})[names[note.author]] = note.text
    return [{"round": number, **said} for number, said in words.items()]


def _spec(spec: RunStarted) -> dict[str, Any]:
    return {
        "workload": spec.workload_name,
        "cluster": spec.cluster_name,
        "workload_sha256": spec.workload_blob,
        "cluster_sha256": spec.cluster_blob,
        "search": spec.search.model_dump(mode="json"),
        "signature": spec.signature.model_dump(mode="json"),
        "signature_parts": spec.signature_parts,
        "refold_version": spec.refold_version,
        "projection_version": spec.projection_version,
        "lesser_paths": list(spec.lesser_paths),
    }


def _trial_line(state: State, trial: Trial) -> dict[str, Any]:
    evaluation = trial.evaluation
    notes = [note.text for note in state.notes if note.trial == trial.number]
    return {
        "idx": trial.number,
        "timestamp": trial.proposed_at.isoformat(),
        "config": trial.proposed.config.model_dump(mode="json"),
        "result": _result(trial),
        "source": None if evaluation is None else evaluation.source,
        "notes": notes,
        "status": trial.status,
        "round": trial.round,
        "rule": trial.proposed.rule,
        "why": trial.proposed.why,
        "tag": trial.proposed.tag,
        "trial_id": trial.proposed.trial_id,
        "requested": trial.proposed.requested.model_dump(mode="json", exclude_none=True),
        "rejected": None if trial.rejected is None else _rejection(trial),
        "from_cache": trial.scored is not None and trial.scored.from_cache,
        "invalidated": None if trial.invalidated is None else _invalidation(trial),
        "run_id": state.run_id,
        "as_of_event": state.head_seq,
    }


def _result(trial: Trial) -> dict[str, Any] | None:
    if trial.evaluation is not None:
        return trial.evaluation.model_dump(mode="json")
    if trial.rejected is None:
        return None
    return {"legal": False, "reason": trial.rejected.reason, "reason_code": trial.rejected.code}


def _rejection(trial: Trial) -> dict[str, Any]:
    assert trial.rejected is not None, "only asked of a rejected trial"
    return trial.rejected.model_dump(
        mode="json", include={"code", "reason", "numbers", "inferred_from"}
    )


def _invalidation(trial: Trial) -> dict[str, Any]:
    assert trial.invalidated is not None, "only asked of an invalidated trial"
    return {"why": trial.invalidated.why, "author": trial.invalidated.author}


def _fork(fork: ForkPoint) -> dict[str, Any]:
    return {
        "run_id": fork.run_id,
        "parent": fork.event.parent,
        "parent_seq": fork.event.parent_seq,
        "changed": list(fork.event.changed),
        "inherits": fork.event.inherits,
    }


def _note_line(note: Note) -> str:
    text = " ".join(note.text.split())
    return f"[{note.at:%Y-%m-%d %H:%M:%S}] {note.author}: {text}"


def _json(value: dict[str, Any]) -> str:
    """One line; the outermost keys in the given order, the others sorted."""
    ordered = {key: _sorted(item) for key, item in value.items()}
    return json.dumps(ordered, ensure_ascii=False, allow_nan=False)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list | tuple) else value
