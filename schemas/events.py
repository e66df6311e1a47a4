"""The one list of everything that can happen in a run or a night. Names are past tense."""

from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from schemas.evaluation import Evaluation, Provenance, SignatureHashes
from schemas.legality import LegalAxes
from schemas.model import FrozenModel
from schemas.night import (
    NightAbandoned,
    NightFinished,
    NightStarted,
    TargetDecided,
    TargetTaken,
)
from schemas.search import Budget, LlmPlan, SearchSpec
from schemas.trial import NormalTrial, TrialConfig

SCHEMA_VERSION = 2
"""Version of the payload schema this Refold writes; `storage.upcasting` reads the older ones."""

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


class RunForked(FrozenModel):
    """A run began as the continuation of another: its first event, which shares the parent's
    events up to `parent_seq` and takes the number after it."""

    type: Literal["RunForked"] = "RunForked"
    parent: str
    """The run that holds event `parent_seq`: the one named, or the ancestor it has it from."""
    parent_seq: int = Field(ge=0)
    parent_hash: str
    asked: str
    """Where the fork was asked for, in words ("before round 1 of 20260102t…")."""
    spec: RunStarted
    """What this run depends on, as if it had been started so."""
    changed: tuple[str, ...]
    """What differs from the parent's spec, one line per value ("search.x: 1 → 2")."""
    inherits: bool
    """True: the parent's verdicts and scores stand. False: they answer another question; its
    candidates are proposed and evaluated again."""
    reopened: tuple[int, ...] = ()
    """Trials the parent gave up for want of budget, in flight again."""
    carry: int | None = Field(default=None, ge=1)
    """Where scores do not stand: of the parent's candidates, only the best this many are asked
    again; None: all of them."""


class RecipeRecalled(FrozenModel):
    """The best known recipe was looked up in the store, for the seed plan to begin with.

    Recorded with RunStarted, as one batch: no run has the one and lacks the other by accident, and
    nobody needs to look again.
    """

    type: Literal["RecipeRecalled"] = "RecipeRecalled"
    run: str
    """The run that scored it."""
    trial: int = Field(ge=0)
    """Its number there."""
    trial_id: str
    requested: TrialConfig
    """As this run's workload has to be asked for it: that run's may have been another file."""
    tokens_per_s_per_gpu: float
    provenance: Provenance
    scored_at: datetime


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
    call: int | None
    """The LLM call whose answer proposed it; None: no model did."""


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


class TrialInvalidated(FrozenModel):
    """A recorded score was found wrong: it stays on record and can no longer win."""

    type: Literal["TrialInvalidated"] = "TrialInvalidated"
    trial_id: str
    why: str
    author: str
    incumbent: int | None
    """The best trial without it."""
    incumbent_trial_id: str | None
    incumbent_tokens_per_s_per_gpu: float | None


class LLMCalled(FrozenModel):
    """A language model was asked. On disk before its answer is used, so that a replay needs none.

    What was sent and what came back are blobs. A failed call has no answer and says what failed.
    """

    type: Literal["LLMCalled"] = "LLMCalled"
    call: int = Field(ge=0)
    """Position among the calls of the run."""
    role: str
    model: str
    prompt_hash: str
    """Hash of the prompt texts the request was made from."""
    request_key: str
    """Hash of the request: a recorded answer is served to an equal request only."""
    request_blob: str
    answer_blob: str | None
    failure: str | None = None
    input_tokens: int | None = Field(default=None, ge=0)
    output_tokens: int | None = Field(default=None, ge=0)
    cost_usd: float | None = Field(default=None, ge=0)
    latency_ms: float = Field(ge=0)


class ToolCalled(FrozenModel):
    """A model's code asked a tool, in a sandbox. On disk before the tool answers."""

    type: Literal["ToolCalled"] = "ToolCalled"
    tool: str
    arguments: dict[str, Any]


class CodeRan(FrozenModel):
    """A step of a model's code ended. What it did to the run are the events before this one."""

    type: Literal["CodeRan"] = "CodeRan"
    code_sha256: str
    """Of the code, which is in the model's answer."""
    kind: Literal["output", "error", "final", "stopped"]
    """`final`: it handed back its findings. `stopped`: it took too long, or its process ended."""
    text: str
    """What the model was shown of it."""
    submitted: dict[str, Any] | None = None
    """The findings of a `final` step."""


SUMMARY_AUTHOR = "investigator's summary"
NEXT_STEPS_AUTHOR = "investigator's next steps"
"""Authors of the notes that `summary.json` repeats as the model's words."""


class NoteTaken(FrozenModel):
    """A line for the scratchpad."""

    type: Literal["NoteTaken"] = "NoteTaken"
    text: str
    author: str


class BudgetSpent(FrozenModel):
    """The clock said that a budget is spent: what was not decided by then will not be."""

    type: Literal["BudgetSpent"] = "BudgetSpent"
    why: str


class RoundFinished(FrozenModel):
    """A round ended, and why."""

    type: Literal["RoundFinished"] = "RoundFinished"
    why: str
    incumbent: int | None
    incumbent_tokens_per_s_per_gpu: float | None
    final: bool = False
    """No other round follows: the reason is the search's own."""


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
    llm: LlmPlan | None = None
    """The language model it goes on with; None: as before."""


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
    | RunForked
    | RecipeRecalled
    | AxesDerived
    | RoundStarted
    | TrialProposed
    | TrialRejected
    | TrialScored
    | TrialInvalidated
    | LLMCalled
    | ToolCalled
    | CodeRan
    | NoteTaken
    | BudgetSpent
    | RoundFinished
    | RunInterrupted
    | RunResumed
    | TailRecovered
    | RunFinished
    | NightStarted
    | TargetTaken
    | TargetDecided
    | NightFinished
    | NightAbandoned,
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
