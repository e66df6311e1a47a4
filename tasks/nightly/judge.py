"""What is to be done about a target: nothing, a look at its recipe, or a search."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from schemas.errors import RefoldError, StoreRefused
from schemas.night import Failure, Standing, TargetDecided
from schemas.targets import Target
from storage.nights import Past
from tasks.inputs import Inputs, resolve_pair, secrets_in, secrets_in_files
from tasks.nightly.standing import (
    KnownRuns,
    fixed_hash,
    no_longer_legal,
    scored_again,
    search_hash,
)
from tasks.resolve.environment import search_dotenv

SAME = 1e-9
"""Relative: scores of one question that lie further apart are not the same."""
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class Due:
    """A target that is to be searched."""

    target: Target
    why: Literal["changed", "first"]
    before: Standing | None
    """Its recipe so far, from the run to continue."""


def inputs_of(target: Target) -> Inputs:
    """A target's files, resolved as a search would.

    Raises:
        UserError: one of them is wrong.
    """
    return resolve_pair(
        target.workload,
        target.target_cluster,
        target.model_path,
        mode=target.mode,
        gemm_backend=target.gemm_backend,
        memory_regime=target.memory_regime,
        seed_budget=target.seed_budget,
    )


def judge_targets(
    targets: Sequence[Target], past: Past, known: KnownRuns
) -> Iterator[TargetDecided | Due]:
    """What becomes of each target, in order, as it is found out.

    Where nothing changed that its score depends on, the recipe alone is scored again. An error, of
    whatever kind, is the target's own: the next one is looked at all the same.

    Raises:
        StoreRefused: the store's disk is full or gone; the night goes on later.
    """
    for target in targets:
        try:
            yield _judge(target, past, known)
        except StoreRefused:
            raise
        except Exception as error:  # noqa: BLE001 - one target never stops the others
            yield failed(target, error, past.standings.get(target.name))


def _judge(target: Target, past: Past, known: KnownRuns) -> TargetDecided | Due:
    inputs = inputs_of(target)
    now, search = inputs.signature.hashes, search_hash(inputs.search)
    last = past.standings.get(target.name)
    if last is not None and not known.stands(last, inputs):
        last = None
    if (barren := past.barren.get(target.name)) is not None and known.best(inputs) is None:
        fixed = fixed_hash(inputs)
        if (barren.signature, barren.search) != (now, fixed):
            return Due(target, "changed" if last else "first", last)
        return TargetDecided(
            target=target.name,
            outcome="kept",
            signature=now,
            search=fixed,
            notes=("nothing legal fits, as before",),
        )
    before = last or known.best(inputs) or known.last_of(inputs)
    if before is None:
        return Due(target, "first", None)
    changed = (before.signature, before.search) != (now, search)
    # What the workload fixes is part of neither: with another one, its recipe is not allowed.
    if changed or no_longer_legal(inputs, before) is not None:
        return Due(target, "changed", before)
    return _looked_at(target, inputs, before, known)


def _looked_at(target: Target, inputs: Inputs, before: Standing, known: KnownRuns) -> TargetDecided:
    again, why = scored_again(inputs, before)
    if again is None or not _equal(again, before):
        return TargetDecided(
            target=target.name,
            outcome="drifted",
            signature=before.signature,
            search=fixed_hash(inputs),
            before=before,
            again=again,
            again_why=why,
            after=again,
            notes=(
                "its score is another one than on record though nothing it depends on changed:"
                f" the record is wrong, or this Refold is. refold invalidate {before.run_id}"
                f" {before.trial} takes it back",
            ),
        )
    better = known.best(inputs, better_than=before.tokens_per_s_per_gpu)
    return TargetDecided(
        target=target.name,
        outcome="kept" if better is None else "better known",
        signature=before.signature,
        search=fixed_hash(inputs),
        before=before,
        again=again,
        after=better or before,
    )


def _equal(one: Standing, other: Standing) -> bool:
    return _close(one.tokens_per_s_per_gpu, other.tokens_per_s_per_gpu) and _close(
        one.memory_per_gpu_gb or 0.0, other.memory_per_gpu_gb or 0.0
    )


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= SAME * max(abs(one), abs(other))


def failed(target: Target, error: Exception, before: Standing | None) -> TargetDecided:
    """The decision on a target that an error ended."""
    return TargetDecided(
        target=target.name,
        outcome="failed",
        before=before,
        failure=Failure(error=type(error).__name__, message=_without_secrets(target, error)),
    )


def _without_secrets(target: Target, error: Exception) -> str:
    """What an error says, on one line: a message may quote a file, and a file may hold a key.

    An error that is not one of ours says what nobody foresaw: its type alone is kept.
    """
    if not isinstance(error, RefoldError):
        return "this is a bug in Refold: run the target by itself with refold tune to see where"
    environment = search_dotenv(os.environ, Path.cwd())
    files = (str(target.workload), str(target.target_cluster))
    secrets = secrets_in(environment) | secrets_in_files(files, environment)
    text = " ".join(str(error).split())
    for secret in secrets:
        text = text.replace(secret.get_secret_value(), "***")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
