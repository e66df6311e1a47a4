"""Evaluations that were made before, by everything that could change them (P7).

Written durably, create-if-absent. An entry that is not whole is a miss, said so in a warning, and
overwritten by the next result. Only hits that equal the asked-for identity are returned: a dry or
memory-only result never stands for a simulated one.
"""

from typing import Any, NamedTuple

from pydantic import ValidationError

from schemas.errors import LogError
from schemas.evaluation import Evaluation, SignatureHashes, Source
from schemas.model import FrozenModel
from storage.backends import AlreadyStored, NotStored, SegmentStore
from storage.canonical import canonical, sha256_hex
from storage.layout import EVALUATIONS


class ResultIdentity(FrozenModel):
    """What makes two evaluations the same question.

    `signature` covers workload, cluster and software, the oracle's version and calibration
    included; `cap_gb` (2^30 bytes) the margin, which moves the verdict and no other number.
    """

    trial_id: str
    signature: SignatureHashes
    source: Source
    memory_regime: str
    cap_gb: float

    @property
    def key(self) -> str:
        """SHA-256 of the identity, 64 hex digits."""
        return sha256_hex(canonical(self.model_dump(mode="json")).encode())


def identity_of(evaluation: Evaluation) -> ResultIdentity:
    """The question `evaluation` answers."""
    return ResultIdentity(
        trial_id=evaluation.trial_id,
        signature=evaluation.signature,
        source=evaluation.source,
        memory_regime=evaluation.memory_regime,
        cap_gb=evaluation.cap_gb,
    )


class Lookup(NamedTuple):
    """What the cache knows: the evaluation of a hit, else None; and what was odd, if anything."""

    evaluation: Evaluation | None
    warning: str | None = None


class EvaluationCache:
    """A content-addressed cache in a store."""

    def __init__(self, backend: SegmentStore) -> None:
        self._backend = backend

    def find(self, identity: ResultIdentity) -> Lookup:
        """The evaluation with exactly this identity, provenance and all as it was made.

        Raises:
            LogError: the store cannot be read.
        """
        key = _path(identity)
        try:
            data = self._backend.read(key)
        except NotStored:
            return Lookup(None)
        evaluation = _entry(data, identity)
        if evaluation is None:
            return Lookup(None, f"cached evaluation {key} is damaged; evaluating again")
        return Lookup(evaluation)

    def put(self, evaluation: Evaluation) -> str | None:
        """Keep `evaluation` under its own identity, durably. Returns a warning, or None.

        The first result kept stands: a second, different one is reported and not stored. A damaged
        entry is overwritten.

        Raises:
            LogError: it cannot be written.
        """
        identity = identity_of(evaluation)
        key = _path(identity)
        data = _bytes(evaluation)
        try:
            self._backend.create(key, data)
        except AlreadyStored:
            return self._settle(key, identity, evaluation, data)
        return None

    def forget(self, evaluation: Evaluation) -> None:
        """Drop what answers the question of `evaluation`, if it is this answer.

        Raises:
            LogError: it cannot be removed.
        """
        identity = identity_of(evaluation)
        if self.find(identity).evaluation == evaluation:
            self._backend.remove([_path(identity)])

    def _settle(
        self, key: str, identity: ResultIdentity, evaluation: Evaluation, data: bytes
    ) -> str | None:
        there = _entry(self._backend.read(key), identity)
        if there is None:
            self._backend.replace(key, data)
            return f"cached evaluation {key} was damaged; overwritten"
        if there != evaluation:
            return f"cached evaluation {key} differs from the new result; the first one is kept"
        return None


def _path(identity: ResultIdentity) -> str:
    return f"{EVALUATIONS}/{identity.key[:2]}/{identity.key}.json"


def _bytes(evaluation: Evaluation) -> bytes:
    body: dict[str, Any] = evaluation.model_dump(mode="json")
    text = canonical(body)
    return canonical({"evaluation": body, "sha256": sha256_hex(text.encode())}).encode()


class _Entry(FrozenModel):
    evaluation: dict[str, Any]
    sha256: str


def _entry(data: bytes, identity: ResultIdentity) -> Evaluation | None:
    """The evaluation in a cache file; None when the file is not whole or answers another one."""
    try:
        entry = _Entry.model_validate_json(data)
        if sha256_hex(canonical(entry.evaluation).encode()) != entry.sha256:
            return None
        evaluation = Evaluation.model_validate_json(canonical(entry.evaluation))
    except (ValidationError, LogError):
        return None
    return evaluation if identity_of(evaluation) == identity else None
