"""The one list of everything that can happen in a run. Names are past tense."""

from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from schemas.evaluation import Evaluation, SignatureHashes
from schemas.legality import LegalAxes
from schemas.model import FrozenModel
from schemas.search import Budget, SearchSpec
from schemas.trial import NormalTrial, TrialConfig

SCHEMA_VERSION = 1
"""Version of the newest payload schema this Refold writes."""

ZERO_HASH = "0" * 64
"""prev_hash of a run's first event, unless the run was forked."""


class RunStarted(FrozenModel):
    """A search began: everything it depends on, by value or by hash of a blob."""

    type: Literal["RunStarted"] = "RunStarted"
    workload_name: str
    cluster_name: str
    workload_blob: str
    """SHA-256 of the resolved Workload's canonical JSON, stored beside the run."""
    cluster_blob: str
    input_blobs: dict[str, str]
    """Each input file as read: path as given → SHA-256 of its (redacted) bytes."""
    search: SearchSpec
    signature: SignatureHashes
    signature_parts: dict[str, Any]
    out_dir: str | None = None
    refold_version: str
    projection_version: str
    lesser_paths: tuple[str, ...] = ()
    """What this run does without, in words ("GEMM backend tile: Origami is not installed")."""
    cluster_warnings: tuple[str, ...] = ()
    """What reading the cluster file warned of; the workload's warnings are in its blob."""


class AxesDerived(FrozenModel):
    """The legal values per axis were derived."""

    type: Literal["AxesDerived"] = "AxesDerived"
    axes: LegalAxes


class RoundStarted(FrozenModel):
    """A round began; round 0 is the seed plan."""

    type: Literal["RoundStarted"] = "RoundStarted"
    proposer: str
    planned: int
    """Candidates the round intends to propose."""
    budget: Budget


class TrialProposed(FrozenModel):
    """A candidate entered the ledger, with who proposed it and why."""

    type: Literal["TrialProposed"] = "TrialProposed"
    trial_id: str
    requested: TrialConfig
    config: NormalTrial
    rule: str
    why: str
    tag: str


class TrialRejected(FrozenModel):
    """A candidate was rejected without a performance call."""

    type: Literal["TrialRejected"] = "TrialRejected"
    trial_id: str
    code: str
    reason: str
    numbers: dict[str, float] = Field(default_factory=dict)
    inferred_from: int | None = None
    """Trial whose recorded verdict implies this one."""
    evaluation: Evaluation | None = None
    """The memory-only evaluation behind a memory rejection."""


class TrialScored(FrozenModel):
    """The oracle scored a trial."""

    type: Literal["TrialScored"] = "TrialScored"
    trial_id: str
    evaluation: Evaluation
    from_cache: bool = False


class NoteTaken(FrozenModel):
    """A line for the scratchpad."""

    type: Literal["NoteTaken"] = "NoteTaken"
    text: str
    author: str


class RoundFinished(FrozenModel):
    """A round ended, and why."""

    type: Literal["RoundFinished"] = "RoundFinished"
    why: str
    incumbent: int | None
    incumbent_tokens_per_s_per_gpu: float | None


class RunInterrupted(FrozenModel):
    """The process was asked to stop; the run can be resumed."""

    type: Literal["RunInterrupted"] = "RunInterrupted"
    why: str


class RunResumed(FrozenModel):
    """A later process took the run up again."""

    type: Literal["RunResumed"] = "RunResumed"
    refold_version: str
    projection_version: str
    reopened: bool = False
    """Whether the run had finished before."""


class TailRecovered(FrozenModel):
    """Leftovers of a killed writer were discarded."""

    type: Literal["TailRecovered"] = "TailRecovered"
    discarded: tuple[str, ...]


class RunFinished(FrozenModel):
    """The search ended."""

    type: Literal["RunFinished"] = "RunFinished"
    why: str
    recipe_trial: int | None
    recipe_trial_id: str | None
    binding_constraints: tuple[str, ...] = ()
    """When nothing was legal: which constraints bound, and what would loosen each."""


Event = Annotated[
    RunStarted
    | AxesDerived
    | RoundStarted
    | TrialProposed
    | TrialRejected
    | TrialScored
    | NoteTaken
    | RoundFinished
    | RunInterrupted
    | RunResumed
    | TailRecovered
    | RunFinished,
    Field(discriminator="type"),
]


class Envelope(NamedTuple):
    """An event as recorded: where it stands in its run, and the chain that proves it.

    A plain tuple: a long log has a million of them, and reading proves every field by the hash.
    """

    run_id: str
    seq: int
    type: str
    schema_version: int
    round: int | None
    trial: int | None
    at: datetime
    prev_hash: str
    hash: str
    payload: str
    """Canonical JSON of the event."""
