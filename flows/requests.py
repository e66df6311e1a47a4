"""What a person asks of a search, as plain values: the parameters of a deployment."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from schemas.model import FrozenModel
from schemas.scoring import Scoring
from schemas.search import MemoryRegime, Mode

GemmBackend = Literal["auto", "origami", "tile"]


class TuneRequest(FrozenModel):
    """A search to run. None: as the cluster file says, or the default."""

    workload: Path
    target_cluster: Path
    out_dir: Path | None = None
    store: str | None = None
    model_path: tuple[Path, ...] = ()
    mode: Mode = "full"
    gemm_backend: GemmBackend = "auto"
    memory_regime: MemoryRegime = "config"
    seed_budget: int | None = Field(default=None, ge=1)
    seed_only: bool = False
    """No rounds of a language model."""
    agent_only: bool = False
    """No seed plan: a language model goes on with the newest run that asked the same and has done
    its seeds, else with the baseline alone."""
    llm: str | None = None
    """The language model to ask; None: the configured one, if any."""
    recall: bool = True
    """Begin with the best known recipe of the store, if there is one."""
    resume: bool = False
    """Continue the newest unfinished run with the same spec instead of starting one."""
    run_id: str | None = None
    """What the new run is to be called; None: a fresh name."""
    scoring: Scoring | None = None
    """Where batches are scored; no score depends on it."""


class ResumeRequest(FrozenModel):
    """A run to take up again."""

    run: str
    store: str | None = None
    out_dir: Path | None = None
    """None: where the run was started with."""
    llm: str | None = None
    """The language model to go on with, also after the run's end; None: as before."""
    scoring: Scoring | None = None


class ForkRequest(FrozenModel):
    """A run to continue as another one, from some event on, with something changed."""

    run: str
    store: str | None = None
    out_dir: Path | None = None
    """None: beside the cluster's other runs, named after the new run."""
    at_round: int | None = None
    at_trial: int | None = None
    at_event: int | None = None
    """At most one of the three; none: from the run's last event on."""
    workload: Path | None = None
    target_cluster: Path | None = None
    model_path: tuple[Path, ...] = ()
    settings: tuple[str, ...] = ()
    """`search.PATH=VALUE` and `cluster.PATH=VALUE`."""
    seed_budget: int | None = Field(default=None, ge=1)
    llm: str | None = None
    """The language model to ask from there on; None: the parent's, if it has one."""
    scoring: Scoring | None = None
    seed_only: bool = False
    """No rounds of a language model from there on."""
    ask_configured: bool = False
    """Ask the configured language model, if there is one, also where the parent asked none."""
    carry: int | None = Field(default=None, ge=1)
    """Where the parent's scores do not stand: how many of its candidates, the best first, are asked
    again; None: all."""
    run_id: str | None = None
    """What the new run is to be called; None: a fresh name."""


class NightRequest(FrozenModel):
    """A night of re-tuning."""

    targets: Path
    """The targets file."""
    store: str | None = None
    out_dir: Path | None = None
    """Where report and recipes go; None: below `nightly/`, by the name of the targets file."""
    slot: str | None = None
    """The slot to do, a time or "now"; None: the one that is due."""
    scoring: Scoring | None = None
    """Where batches are scored; no score depends on it."""
