"""Where a recipe comes from: everything an auditor asks of one trial, as of one event."""

from datetime import datetime
from typing import Any, Literal

from schemas.evaluation import Evaluation, Provenance, SignatureHashes, Source
from schemas.legality import LegalAxes
from schemas.model import FrozenModel
from schemas.search import SearchSpec
from schemas.trial import NormalTrial, TrialConfig


class Place(FrozenModel):
    """An event: number `seq` of `run_id`, the run that wrote it."""

    run_id: str
    seq: int
    at: datetime


class InputFile(FrozenModel):
    """A file the run was started with, as kept: secrets were blotted out before."""

    path: str
    """As it was given."""
    role: Literal["workload", "cluster"]
    sha256: str
    """Of the kept text, computed anew."""
    sha256_as_read: str | None
    """Of its bytes when it was read, of a workload's files; what differs is what was blotted out,
    and how YAML is laid out."""
    text: str


class ResolvedInput(FrozenModel):
    """What the files of one side were understood as."""

    name: str
    sha256: str
    """Of the canonical JSON, computed anew."""


class SignaturePart(FrozenModel):
    """One of the three hashes a score depends on."""

    hash: str
    made_of: Any
    hash_holds: bool
    """Whether `made_of` still hashes to `hash`."""


class ProposingCall(FrozenModel):
    """The call of a language model whose answer proposed a trial."""

    place: Place
    call: int
    role: str
    model: str
    prompt_hash: str
    request_sha256: str
    request: str
    answer_sha256: str | None
    answer: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    latency_ms: float


class RecordedEvaluation(FrozenModel):
    """One evaluation of a configuration, in this run, one above it, or elsewhere in the store."""

    place: Place
    trial: int
    verdict: Literal["scored", "rejected"]
    code: str | None
    """Of a rejection."""
    from_cache: bool
    in_lineage: bool
    """Recorded by this run or one it continues, not after it parted from that."""
    same_question: bool
    """Signature, source, memory regime and cap are those of the trial's own evaluation."""
    source: Source | None
    provenance: Provenance | None
    signature: SignatureHashes | None
    tokens_per_s_per_gpu: float | None
    memory_per_gpu_gb: float | None
    cap_gb: float | None
    fits: bool | None


class Mention(FrozenModel):
    """A note that names the trial."""

    at: datetime
    author: str
    round: int | None
    text: str


class Correction(FrozenModel):
    """A score of this configuration was found wrong."""

    place: Place
    trial: int
    why: str
    author: str
    in_lineage: bool
    """False: another run of the store says so, or one above after the two had parted."""


class Recalled(FrozenModel):
    """The trial of another run that a search began with, as the best known then."""

    run_id: str
    trial: int
    tokens_per_s_per_gpu: float
    scored_at: datetime


class TrialStory(FrozenModel):
    """Who proposed a trial and why, and what became of it."""

    place: Place
    """Of the proposal."""
    trial: int
    trial_id: str
    tag: str
    rule: str
    why: str
    round: int
    proposer: str
    planned: int
    status: Literal["proposed", "rejected", "scored"]
    invalidated: bool
    requested: TrialConfig
    config: NormalTrial
    changed: dict[str, tuple[Any, Any]]
    """Knob → (the workload's value, the trial's)."""
    call: ProposingCall | None
    evaluation: Evaluation | None
    evaluations: tuple[RecordedEvaluation, ...]
    """By time; `evaluation` is the one in this run."""
    mentions: tuple[Mention, ...]
    corrections: tuple[Correction, ...]
    carried_from: "TrialStory | None"
    """The trial of the run above that a fork proposed again."""
    recalled_from: Recalled | None
    """The trial of another run that was recalled as the best known."""


class Competitor(FrozenModel):
    """Another trial of the run."""

    trial: int
    trial_id: str
    rule: str
    tag: str
    fits: bool | None
    tokens_per_s_per_gpu: float | None
    lead_percent: float | None
    """By how many % of this one's tokens/s/GPU the story's trial is faster; negative: slower."""


class ForkStep(FrozenModel):
    """Where a run of the lineage continued another."""

    place: Place
    parent: str
    parent_seq: int
    parent_hash: str
    asked: str
    changed: tuple[str, ...]
    inherits: bool
    reopened: tuple[int, ...]


class Occurrence(FrozenModel):
    """Something that happened to the run as a whole: interrupted, resumed, recovered, finished."""

    place: Place
    what: str


class Anchor(FrozenModel):
    """The head as anchored outside the run's folder."""

    seq: int
    hash: str


class Lineage(FrozenModel):
    """The whole chain behind one trial of a run, as of event `as_of_event`."""

    run_id: str
    as_of_event: int
    as_of: datetime
    head_hash: str
    anchored: Anchor | None
    """None: the run was never anchored. Beyond `as_of_event`: an earlier event was asked for."""
    status: str
    is_recipe: bool
    """Whether the trial is the run's best as of that event."""
    trial: TrialStory
    files: tuple[InputFile, ...]
    presets: dict[str, str]
    """Files that ship with Refold and the workload extends → SHA-256 as read."""
    workload: ResolvedInput
    cluster: ResolvedInput
    signature: dict[str, SignaturePart]
    stack_origin: dict[str, str]
    refold_version: str
    projection_version: str
    schema_versions: tuple[int, ...]
    """Of the events read, as written."""
    lesser_paths: tuple[str, ...]
    search: SearchSpec
    axes: LegalAxes | None
    baseline: Competitor | None
    best_seed: Competitor | None
    next_best: Competitor | None
    """The best of the others."""
    ranked: tuple[Competitor, ...]
    """All that may win, best first, the trial itself included if it may."""
    candidates: int
    rejected: dict[str, int]
    """Code → candidates, most first."""
    forks: tuple[ForkStep, ...]
    """Oldest first."""
    history: tuple[Occurrence, ...]
    unread: tuple[str, ...]
    """Other runs of the store that could not be searched for the configuration, and why."""
