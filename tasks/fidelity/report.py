"""Measured rows beside their projections as one report, per source and against the targets."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from schemas.fidelity import Alternative, Exclusion, Fidelity, RowFidelity, SourceFidelity
from schemas.measured import Group, MeasuredRow
from tasks.fidelity.cases import left_out
from tasks.fidelity.leave_out import LeftOutProjector, LeftOutRates, only_group_of_its_gpu
from tasks.fidelity.predict import GemmBackend, Predicted, Projector, Refused
from tasks.fidelity.ranges import Projects, alternatives, plausible_range
from tasks.fidelity.statistics import judged
from tasks.fidelity.targets import SWEEPS, targets

OnRow = Callable[[str], None]


def fidelity(
    rows: Sequence[MeasuredRow],
    *,
    backend: GemmBackend = "auto",
    rates: LeftOutRates | None = None,
    fitted: str | None = None,
    ranges: bool = False,
    on_row: OnRow = lambda _: None,
) -> Fidelity:
    """Every comparable row of `rows` under published rates and, with `rates`, under those of a fit
    (`fitted` says which) that never saw its group. `ranges`: with how far what is assumed moves
    each row. `on_row` hears the id of each row once it is projected.
    """
    used = [row for row in rows if left_out(row) is None]
    published = Projector(backend=backend)
    left = None if rates is None else LeftOutProjector(rates, backend)
    before, refused = _told(_project(used, published, on_row))
    after = None if left is None else {p.row.id: p for p in _told(map(left.row, used))[0]}
    best = left or published
    return Fidelity(
        gemm=published.gemm_models,
        sources=tuple(_sources(before, after)),
        targets=targets(before, None if after is None else list(after.values())),
        exclusions=_exclusions(rows, refused),
        rows=tuple(_rows(before, after, best if ranges else None, only_group_of_its_gpu(used))),
        alternatives=tuple(_alternatives(used, best)) if ranges else (),
        fitted=None if rates is None else fitted,
    )


def _alternatives(used: Sequence[MeasuredRow], projector: Projects) -> Iterable[Alternative]:
    for source in sorted({row.source for row in used if row.source.startswith(SWEEPS)}):
        yield from alternatives([row for row in used if row.source == source], projector)


def _project(
    rows: Iterable[MeasuredRow], projector: Projector, on_row: OnRow
) -> Iterable[Predicted | Refused]:
    for row in rows:
        yield projector.row(row)
        on_row(row.id)


def _told(answers: Iterable[Predicted | Refused]) -> tuple[list[Predicted], list[Refused]]:
    predicted: list[Predicted] = []
    refused: list[Refused] = []
    for answer in answers:
        if isinstance(answer, Predicted):
            predicted.append(answer)
        else:
            refused.append(answer)
    return predicted, refused


def _sources(
    before: Sequence[Predicted], after: dict[str, Predicted] | None
) -> Iterable[SourceFidelity]:
    for source in sorted({row.row.source for row in before}):
        own = [row for row in before if row.row.source == source]
        fitted = None if after is None else [after[row.row.id] for row in own]
        yield SourceFidelity(
            source=source,
            stated_in_full=sum(row.row.stated_in_full for row in own),
            before=judged(own),
            after=None if fitted is None else judged(fitted),
        )


def _exclusions(rows: Iterable[MeasuredRow], refused: Sequence[Refused]) -> tuple[Exclusion, ...]:
    counted = Counter((row.source, reason) for row in rows if (reason := left_out(row)) is not None)
    counted.update((each.row.source, each.reason) for each in refused)
    return tuple(
        Exclusion(source=source, reason=reason, rows=count)
        for (source, reason), count in sorted(counted.items())
    )


def _rows(
    before: Sequence[Predicted],
    after: dict[str, Predicted] | None,
    projector: Projects | None,
    alone: set[Group],
) -> Iterable[RowFidelity]:
    for one in before:
        row = one.row
        bounds = None if projector is None else plausible_range(row, projector)
        yield RowFidelity(
            id=row.id,
            source=row.source,
            group=" ".join(map(str, row.group)),
            unit="tokens/s/GPU" if row.iteration_ms is None else "ms",
            measured=one.measured,
            before=one.projected,
            after=None if after is None else after[row.id].projected,
            low=None if bounds is None else bounds[0],
            high=None if bounds is None else bounds[1],
            stated_in_full=row.stated_in_full,
            note=f"no other rows of {row.gpu}: its family's factors"
            if after is not None and row.group in alone
            else None,
        )
