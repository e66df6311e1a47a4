"""Events and runs for the tests of the log, made the way a search makes them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from schemas.evaluation import Evaluation, SignatureHashes
from schemas.events import (
    AxesDerived,
    Event,
    NoteTaken,
    RoundFinished,
    RoundStarted,
    RunFinished,
    RunStarted,
    TrialProposed,
    TrialRejected,
    TrialScored,
)
from schemas.legality import Axis, LegalAxes
from schemas.search import Budget, SearchSpec
from schemas.trial import NormalTrial, TrialConfig
from storage import Entry, EventLog

START = datetime(2026, 3, 4, 5, 6, 7, 890123, tzinfo=UTC)
RUN = "20260304t050607-890123-aaaaaaaa"
SIGNATURE = SignatureHashes(model="1" * 16, cluster="2" * 16, stack="3" * 16)


class Clock:
    """A clock that gains a second and a microsecond each time it is read."""

    def __init__(self, start: datetime = START) -> None:
        self.now = start

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1, microseconds=1)
        return self.now


def normal_trial(**changes: object) -> NormalTrial:
    values: dict[str, object] = {
        "tp": 1,
        "pp": 4,
        "ep": 8,
        "etp": 1,
        "cp": 1,
        "vpp": 1,
        "mbs": 2,
        "gbs": 128,
        "pp_schedule": "1f1b",
        "recompute_granularity": "none",
        "recompute_method": None,
        "recompute_num_layers": 0,
        "overlap_grad_reduce": True,
        "overlap_param_gather": True,
        "cross_entropy_loss_fusion": True,
        "use_distributed_optimizer": True,
        "use_torch_fsdp2": False,
        "use_turbo_deepep": False,
        "sync_free_stage": 0,
        "target_ep_size": None,
        "fp8": "none",
    }
    return NormalTrial.model_validate(values | changes)


def trial_number(number: int) -> NormalTrial:
    """A configuration of its own for each number."""
    return normal_trial(gbs=128 * (number + 1))


def evaluation(trial: NormalTrial, **changes: object) -> Evaluation:
    values: dict[str, object] = {
        "trial_id": trial.trial_id,
        "config": trial.model_dump(mode="json"),
        "legal": True,
        "fits": True,
        "cap_gb": 259.2,
        "memory_per_gpu_gb": 182.8,
        "param_optimizer_gb": 80.25,
        "activation_gb": 102.55,
        "memory_breakdown_gb": {"weights": 80.25, "activations": 102.55},
        "iteration_ms": 5123.4,
        "tokens_per_s_per_gpu": 3260.0,
        "bubble_ratio": 0.125,
        "time_breakdown_ms": {"compute": 4000.0, "bubble": 1123.4},
        "comm_breakdown": {"all_to_all": 321.5},
        "source": "simulate",
        "provenance": "analytic",
        "signature": SIGNATURE,
        "derived_dp": 8,
        "num_microbatches": 8,
        "schedule": "1f1b",
    }
    return Evaluation.model_validate(values | changes)


def started(**changes: object) -> RunStarted:
    values: dict[str, object] = {
        "workload_name": "mixtral",
        "cluster_name": "mi355x_4nodes",
        "workload_blob": "0" * 64,
        "cluster_blob": "0" * 64,
        "input_blobs": {},
        "search": SearchSpec(budget=Budget(seed_budget=12)),
        "signature": SIGNATURE,
        "signature_parts": {"model": {"layers": 56}, "stack": {"rocm": "7.0"}},
        "refold_version": "0.1.0",
        "projection_version": "1",
    }
    return RunStarted.model_validate(values | changes)


def axes() -> LegalAxes:
    return LegalAxes(axes=(Axis(name="tp", values=(1, 2, 4), baseline=1),))


def proposed(number: int, *, rule: str = "recompute", tag: str = "") -> TrialProposed:
    trial = trial_number(number)
    return TrialProposed(
        trial_id=trial.trial_id,
        requested=TrialConfig(gbs=trial.gbs),
        config=trial,
        rule="baseline" if number == 0 else rule,
        why=f"candidate {number}",
        tag=tag or f"gbs{trial.gbs}",
        call=None,
    )


def scored(number: int, **changes: object) -> TrialScored:
    trial = trial_number(number)
    changes = {"tokens_per_s_per_gpu": 3000.0 + number} | changes
    return TrialScored(trial_id=trial.trial_id, evaluation=evaluation(trial, **changes))


def rejected(number: int, code: str = "over_memory_cap") -> TrialRejected:
    trial = trial_number(number)
    memory = evaluation(
        trial,
        fits=False,
        memory_per_gpu_gb=300.0,
        iteration_ms=None,
        tokens_per_s_per_gpu=None,
        source="memory_only",
    )
    return TrialRejected(
        trial_id=trial.trial_id,
        code=code,
        reason="300.0 GB, the cap is 259.2 GB",
        numbers={"memory_per_gpu_gb": 300.0, "cap_gb": 259.2},
        evaluation=memory,
    )


def round_started(planned: int, proposer: str = "seed") -> RoundStarted:
    return RoundStarted(proposer=proposer, planned=planned, budget=Budget())


def round_finished(incumbent: int | None = None) -> RoundFinished:
    return RoundFinished(
        why="the plan is done", incumbent=incumbent, incumbent_tokens_per_s_per_gpu=None
    )


def finished(trial: int | None = None) -> RunFinished:
    return RunFinished(
        why="seed only",
        recipe_trial=trial,
        recipe_trial_id=None if trial is None else trial_number(trial).trial_id,
    )


def whole_run(trials: int = 4) -> list[list[Entry]]:
    """The batches of a finished seed-only run: every third candidate is rejected."""
    batches = [[Entry(started())], [Entry(AxesDerived(axes=axes()))]]
    batches.append([Entry(round_started(trials), 0)])
    for number in range(trials):
        verdict: Event = rejected(number) if number % 3 == 2 else scored(number)
        batches.append([Entry(proposed(number), 0, number), Entry(verdict, 0, number)])
    batches.append([Entry(NoteTaken(text="done", author="refold"), 0)])
    best = max((n for n in range(trials) if n % 3 != 2), default=None)
    batches.append([Entry(round_finished(best), 0)])
    batches.append([Entry(finished(best))])
    return batches


def write(log: EventLog, batches: list[list[Entry]]) -> None:
    for batch in batches:
        log.append(batch, log.next_seq)


def written(root: Path, batches: list[list[Entry]], *, anchor: bool = True) -> Path:
    """A store with one run, its lease given back; `anchor` anchors the head at the end."""
    with EventLog.create(root, RUN, clock=Clock()) as log:
        write(log, batches)
        if anchor:
            log.anchor_head()
    return root


def segments(root: Path) -> list[Path]:
    """The segment files of the run, in order."""
    return sorted((root / "runs" / f"run_id={RUN}" / "events").glob("*.parquet"))
