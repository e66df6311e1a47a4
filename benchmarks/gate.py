"""Projections of this tree against the stored ones: what was right must not become wrong.

`python -m benchmarks.gate` compares and lists what moved; exit code 1 when a measured row that was
projected within 15 % no longer is, when measured configurations that came out in order no longer
do, or when a configuration that had an answer has none. Everything else is drift: listed, allowed.
`python -m benchmarks.gate --update` stores this tree's projections, once a change is intended; the
changelog then says what moved and why.

Stored are every comparable measured row (`tasks/evidence`) and some 500 legal configurations of the
example workloads on the example clusters, as a user gets them: with the shipped calibrations.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from projection.legality import LegalSpace
from projection.oracle import Oracle
from schemas.measured import MeasuredRow
from schemas.trial import NormalTrial
from tasks.evidence import evidence
from tasks.fidelity.cases import left_out
from tasks.fidelity.predict import Predicted, Projector
from tasks.fidelity.statistics import FAR
from tasks.inputs import Inputs, resolve_pair

ROOT = Path(__file__).resolve().parents[1]
BASELINE = ROOT / "benchmarks/data/projections.json"
RIGHT = 0.15
"""A row within this of its measurement is right."""
SLACK = 0.01
"""A row that was right is wrong once it is out of `RIGHT` and its error grew by more than this."""
DRIFT = 1e-4
"""Smaller changes are rounding."""
PER_PAIR = 56
GOLDEN = 0.6180339887498949
"""Multiples of it spread evenly over [0, 1)."""
LISTED = 20


@dataclass
class Comparison:
    """What this tree says otherwise than the baseline."""

    regressions: list[str] = field(default_factory=list)
    drift: list[tuple[float, str]] = field(default_factory=list)
    """Relative change of the projected time or rate, and of what."""
    gone: list[str] = field(default_factory=list)
    """In the baseline and not here, or the other way round."""
    skipped: int = 0
    """Points whose GEMM model is not installed here."""
    compared: int = 0


def projections() -> dict[str, Any]:
    """What this tree projects: rows and configurations, by the GEMM model they were priced with."""
    return {"rows": dict(_rows()), "configurations": dict(_configurations())}


def _rows() -> Iterator[tuple[str, dict[str, Any]]]:
    projector = Projector(published=False)
    for row in evidence():
        if left_out(row) is not None:
            continue
        answer = projector.row(row)
        gemm = projector.gemm_models[row.gpu]
        projected = float(f"{answer.projected:.6g}") if isinstance(answer, Predicted) else None
        yield row.id, {"gemm": gemm, "projected": projected}


def _configurations() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, inputs in example_pairs():
        space = LegalSpace(inputs.workload, inputs.cluster, inputs.search)
        size, oracle = space.count(), inputs.oracle()
        for at in range(PER_PAIR):
            trial = space[int(size * ((at + 1) * GOLDEN % 1))]
            yield (
                f"{name} {trial.trial_id}",
                {
                    "trial": _changed(trial, inputs),
                    **_answer(oracle, trial, inputs.gemm.name),
                },
            )


def _changed(trial: NormalTrial, inputs: Inputs) -> dict[str, Any]:
    """The knobs that are not the workload's."""
    base = inputs.workload.baseline.model_dump(mode="json")
    return {k: v for k, v in trial.model_dump(mode="json").items() if v != base[k]}


def _asked_again(stored: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The stored configurations as this tree projects them, whatever is legal by now."""
    for name, inputs in example_pairs():
        oracle, base = inputs.oracle(), inputs.workload.baseline.model_dump()
        for key, point in stored.items():
            if key.startswith(f"{name} "):
                trial = NormalTrial.model_validate(base | point["trial"])
                yield key, _answer(oracle, trial, inputs.gemm.name)


def example_pairs() -> Iterator[tuple[str, Inputs]]:
    """Every example workload on every example cluster."""
    for workload in sorted((ROOT / "examples/workloads").glob("*.yaml")):
        for cluster in sorted((ROOT / "examples/clusters").glob("*.yaml")):
            inputs = resolve_pair(workload, cluster, env={})
            yield f"{workload.stem} on {cluster.stem}", inputs


def _answer(oracle: Oracle, trial: NormalTrial, gemm: str) -> dict[str, Any]:
    evaluation = oracle.project(trial)
    time_ms, memory_gb = evaluation.iteration_ms, evaluation.memory_per_gpu_gb
    return {
        "gemm": gemm,
        "iteration_ms": None if time_ms is None else float(f"{time_ms:.6g}"),
        "memory_gb": None if memory_gb is None else float(f"{memory_gb:.6g}"),
    }


def compare(stored: Mapping[str, Any]) -> Comparison:
    """This tree against `stored`."""
    found = Comparison()
    known = {row.id: row for row in evidence()}
    before, now = stored["rows"], dict(_rows())
    _compare_rows(found, known, before, now)
    _compare_orders(found, known, before, now)
    configurations = stored["configurations"]
    _compare_configurations(found, configurations, dict(_asked_again(configurations)))
    found.drift.sort(key=lambda each: -abs(each[0]))
    return found


def _compare_rows(
    found: Comparison,
    known: Mapping[str, MeasuredRow],
    before: Mapping[str, Any],
    now: Mapping[str, Any],
) -> None:
    for name in sorted(before.keys() | now.keys()):
        if name not in before or name not in now:
            where = "measured row, no longer compared" if name in before else "new measured row"
            found.gone.append(f"{name}: {where}")
            continue
        then, here = before[name], now[name]
        if then["gemm"] != here["gemm"]:
            found.skipped += 1
            continue
        found.compared += 1
        if then["projected"] is None or here["projected"] is None:
            if then["projected"] is not None:
                found.regressions.append(f"{name}: had a projection and is refused")
            continue
        _note_drift(found, f"{name}", then["projected"], here["projected"])
        old, new = (_error(known[name], each["projected"]) for each in (then, here))
        if abs(old) <= RIGHT < abs(new) and abs(new) > abs(old) + SLACK:
            found.regressions.append(f"{name}: was {old:+.1%} off, is {new:+.1%}")


def _error(row: MeasuredRow, projected: float) -> float:
    measured = row.iteration_ms or row.tokens_per_s_per_gpu
    assert measured is not None
    return projected / measured - 1


def _compare_orders(
    found: Comparison,
    known: Mapping[str, MeasuredRow],
    before: Mapping[str, Any],
    now: Mapping[str, Any],
) -> None:
    """Pairs of one sweep, measured clearly apart, that were in order and are not."""
    sweeps: dict[tuple[str, str], list[str]] = {}
    for name in before.keys() & now.keys():
        row = known[name]
        same = before[name]["gemm"] == now[name]["gemm"]
        both = before[name]["projected"] is not None and now[name]["projected"] is not None
        if row.sweep is not None and same and both:
            sweeps.setdefault((row.source, row.sweep), []).append(name)
    for names in sweeps.values():
        for pair in combinations(sorted(names), 2):
            a, b = (known[name] for name in pair)
            real = _rate(a, None), _rate(b, None)
            if max(real) / min(real) - 1 <= FAR:
                continue
            then, here = (
                [_rate(known[n], each[n]["projected"]) for n in pair] for each in (before, now)
            )
            measured = real[0] > real[1]
            if (then[0] > then[1]) == measured and (here[0] > here[1]) != measured:
                found.regressions.append(f"{pair[0]}, {pair[1]}: were in order, are not")


def _rate(row: MeasuredRow, projected: float | None) -> float:
    """Throughput: rows of a sweep share batch and sequence, so time alone decides."""
    if row.iteration_ms is not None:
        return 1 / (projected or row.iteration_ms)
    assert row.tokens_per_s_per_gpu is not None
    return projected or row.tokens_per_s_per_gpu


def _compare_configurations(
    found: Comparison, before: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    for name, then in before.items():
        here = now.get(name)
        if here is None:
            found.gone.append(f"{name}: its example is gone")
            continue
        if then["gemm"] != here["gemm"]:
            found.skipped += 1
            continue
        found.compared += 1
        for figure in ("iteration_ms", "memory_gb"):
            if then[figure] is None:
                continue
            if here[figure] is None:
                found.regressions.append(f"{name}: had an answer and has none")
                break
            _note_drift(found, f"{name} {figure}", then[figure], here[figure])


def _note_drift(found: Comparison, name: str, old: float, new: float) -> None:
    change = new / old - 1
    if abs(change) > DRIFT:
        found.drift.append((change, f"{name}: {old:g} -> {new:g} ({change:+.2%})"))


def report(found: Comparison, *, every: bool = False) -> Iterator[str]:
    """The comparison, line by line: regressions first, then what moved most."""
    yield f"{found.compared} points compared, {found.skipped} skipped (another GEMM model here)"
    yield f"{len(found.regressions)} were right and are wrong"
    yield from (f"  {line}" for line in found.regressions)
    yield f"{len(found.drift)} moved"
    shown = found.drift if every else found.drift[:LISTED]
    yield from (f"  {line}" for _, line in shown)
    if len(shown) < len(found.drift):
        yield f"  ... and {len(found.drift) - len(shown)} by less; --all lists them"
    yield from (f"  {line}" for line in found.gone)


def main() -> None:
    if "--update" in sys.argv:
        text = json.dumps(projections(), indent=0, sort_keys=True)
        BASELINE.write_text(text + "\n", encoding="utf-8")
        print(f"stored: {BASELINE.relative_to(ROOT)}. Say in CHANGELOG.md what moved and why.")
        return
    found = compare(json.loads(BASELINE.read_text(encoding="utf-8")))
    print("\n".join(report(found, every="--all" in sys.argv)))
    if found.regressions:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
