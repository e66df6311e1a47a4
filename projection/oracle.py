"""The oracle: one trial in, one evaluation out. Deterministic, in process, no I/O of its own.

Legality is decided elsewhere; here a trial is refused only when it is physically impossible: it
does not tile the cluster, its batch is not whole, or no such pipeline exists.
"""

from typing import Any

from projection.attention import flash_share
from projection.calibration import (
    PRECISIONS,
    calibration_of,
    expected_error,
    rates,
    with_flash_attention,
)
from projection.degrees import Degrees, Impossible, degrees
from projection.gemm import gemm_model
from projection.kernels import KernelModels
from projection.memory.explain import MemoryExplanation
from projection.memory.imbalance_limit import largest_that_fits
from projection.memory.live import LiveMemory
from projection.memory.model import MemoryModel
from projection.memory.paper import paper_memory
from projection.memory.report import ACTIVATIONS, PARAM_OPTIMIZER, MemoryReport
from projection.placement import Placement
from projection.schedules import PipelineSchedule, Timeline, build
from projection.time.flops import model_flops_per_sequence
from projection.time.model import TimeModel, TimeReport
from projection.work.catalog import Catalog
from projection.work.imbalance import most_uneven
from projection.zero_delta import idle_recompute, trial_warnings, zero_delta_reasons
from schemas.cluster import Cluster
from schemas.errors import ScheduleError, UserError, WorkloadError
from schemas.evaluation import Evaluation, Provenance, RankMemory, SignatureHashes, Source
from schemas.gpu import Achievable
from schemas.search import SearchSpec
from schemas.trial import NormalTrial, trial_id_of
from schemas.workload import Workload

MS_PER_S = 1000.0
TERA = 1e12


class Oracle:
    """Projects any trial of one workload on one cluster.

    Sub-models are memoised in this object by the part of a trial they depend on, so a batch of
    trials costs far less than as many single ones.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        search: SearchSpec,
        *,
        signature: SignatureHashes,
        achieved: Achievable | None = None,
    ) -> None:
        """As a user asks, or with rates a fit tries out (`achieved`) for the calibration's.

        Raises:
            EnvironmentMissing: a GEMM backend asked for by name is not installed.
            ClusterError: the cluster's calibration is not of its GPU, or of another GEMM model.
        """
        self.workload = workload
        self.cluster = cluster
        self.search = search
        self.signature = signature
        self._catalog = Catalog(workload.architecture)
        self._memory = MemoryModel(workload, cluster, self._catalog)
        self._time: TimeModel | None = None
        self._flops = model_flops_per_sequence(workload.architecture, workload.seq_length)
        self._gemm = gemm_model(cluster.gpu, search.gemm_backend)
        self._calibration = calibration_of(cluster, self._gemm.name)
        self._factors = with_flash_attention(
            achieved or rates(cluster.gpu, self._gemm.name, self._calibration),
            flash_share(cluster.gpu, workload.flash_attention_version),
        )
        self._expected = {p: expected_error(self._calibration, p) for p in PRECISIONS}
        self._warnings = self._standing_warnings()

    def project(self, trial: NormalTrial) -> Evaluation:
        """Memory and time of `trial`; an impossible trial comes back illegal, with its reason."""
        return self._evaluate(trial, "simulate")

    def memory(self, trial: NormalTrial) -> Evaluation:
        """Memory of `trial` alone: what the memory filter asks before paying for time."""
        return self._evaluate(trial, "memory_only")

    def iteration_ms(self, trial: NormalTrial) -> float:
        """Time alone of one iteration of `trial`; raises UserError where it is impossible."""
        return self._time_model().report(trial, self._degrees(trial)).iteration_ms

    def largest_imbalance(self, trial: NormalTrial) -> float | None:
        """The largest expert load of the busiest rank over the mean with which `trial` still fits.

        At most `most_uneven`. None where there is none: no experts to share out, an impossible
        trial, or one that does not fit even when balanced.
        """
        sizes = degrees(trial, self.cluster, self.workload.architecture, self.workload.seq_length)
        if self._imbalance(trial) is None or isinstance(sizes, Impossible):
            return None

        schedule = self._schedule(trial, sizes)

        def spare(imbalance: float) -> float:
            peak = self._memory.report(trial, sizes, schedule, imbalance).peak
            return self.cluster.cap_gb - peak.total_gb

        return largest_that_fits(spare, most_uneven(self.workload.architecture, trial.ep))

    def explain(self, trial: NormalTrial) -> MemoryExplanation:
        """The memory of `trial` line by line, in regime config.

        Raises:
            UserError: the trial is impossible; says why.
        """
        sizes = degrees(trial, self.cluster, self.workload.architecture, self.workload.seq_length)
        if isinstance(sizes, Impossible):
            raise UserError(f"no memory to explain: {sizes.reason}")
        schedule = self._schedule(trial, sizes)
        return MemoryExplanation(self.workload, self._memory, self._catalog, trial, sizes, schedule)

    def _imbalance(self, trial: NormalTrial) -> float | None:
        """The imbalance the memory is projected with; None where none can arise."""
        if not self.workload.architecture.is_moe or trial.ep == 1:
            return None
        return self._memory.imbalance(trial)

    def timeline(self, trial: NormalTrial) -> Timeline:
        """The pipeline of one iteration of `trial`, pass by pass.

        Raises UserError when it is impossible, with the reason.
        """
        return self._time_model().timeline(trial, self._degrees(trial))

    def live_memory(self, trial: NormalTrial) -> LiveMemory:
        """What stays in memory and what every microbatch adds, per rank; raises as `timeline`."""
        sizes = self._degrees(trial)
        return self._memory.live(trial, sizes, self._schedule(trial, sizes))

    def _degrees(self, trial: NormalTrial) -> Degrees:
        sizes = degrees(trial, self.cluster, self.workload.architecture, self.workload.seq_length)
        if isinstance(sizes, Impossible):
            raise UserError(sizes.reason)
        return sizes

    def _evaluate(self, trial: NormalTrial, source: Source) -> Evaluation:
        sizes = degrees(trial, self.cluster, self.workload.architecture, self.workload.seq_length)
        if isinstance(sizes, Impossible):
            return self._illegal(trial, source, sizes.code, sizes.reason)
        try:
            memory = self._memory.report(trial, sizes, self._schedule(trial, sizes))
            time = self._time_model().report(trial, sizes) if source == "simulate" else None
        except ScheduleError as error:
            return self._illegal(trial, source, "schedule_vpp", str(error))
        except WorkloadError as error:
            code = "layout_mismatch" if trial.layout else "more_stages_than_layers"
            return self._illegal(trial, source, code, str(error))
        numbers = self._memory_fields(trial, memory)
        if time is not None:
            numbers |= self._time_fields(trial, time)
            numbers["expected_error"] = self._expected["bf16" if trial.fp8 == "none" else "fp8"]
        return Evaluation.model_construct(
            **self._identity(trial, source),
            legal=True,
            **numbers,
            schedule=trial.pp_schedule,
            derived_dp=sizes.dp,
            derived_edp=sizes.edp,
            num_microbatches=sizes.num_microbatches,
            warnings=(
                *self._warnings,
                *trial_warnings(trial, self.workload),
                *idle_recompute(trial, self.workload.architecture, self._catalog.plans(trial)),
            ),
            zero_delta_reasons=zero_delta_reasons(
                trial,
                sizes,
                self.workload,
                output_is_heaviest=memory.heaviest == self._catalog.stages(trial).rank_of_output(),
            ),
        )

    def _schedule(self, trial: NormalTrial, sizes: Degrees) -> PipelineSchedule:
        """What the pipeline runs. Of several orders the fastest, so only then is it timed."""
        planned = build(trial.pp_schedule, trial.pp, trial.vpp, sizes.num_microbatches)
        return self._time_model().schedule(trial, sizes) if planned.others else planned

    def _time_model(self) -> TimeModel:
        """The time model, built when first asked for: memory alone needs no kernel models."""
        if self._time is None:
            world = self.cluster.world_size
            placement = Placement(self.cluster, tp=1, cp=1, pp=1, dp=world, ep=1, etp=1, edp=world)
            models = KernelModels(
                self.cluster.gpu, self._factors, self._gemm, self.cluster.network, placement
            )
            self._time = TimeModel(self.workload, self.cluster, self._catalog, self._memory, models)
        return self._time

    def _memory_fields(self, trial: NormalTrial, report: MemoryReport) -> dict[str, Any]:
        """Memory of the heaviest rank, and of all; or the reference's own count (regime paper)."""
        if self.search.memory_regime == "paper":
            return self._paper_fields(trial)
        peak = report.peak
        return {
            "memory_regime": "config",
            "memory_per_gpu_gb": peak.total_gb,
            "param_optimizer_gb": report.of(PARAM_OPTIMIZER),
            "activation_gb": report.of(ACTIVATIONS),
            "memory_breakdown_gb": peak.components,
            "memory_by_rank_gb": report.ranks,
            "memory_heaviest_rank": report.heaviest,
            "moe_imbalance": self._imbalance(trial),
            "fits": peak.total_gb <= self.cluster.cap_gb,
        }

    def _paper_fields(self, trial: NormalTrial) -> dict[str, Any]:
        """Rank 0's two figures as the reference prints them."""
        stages = self._catalog.stages(trial)
        paper = paper_memory(self.workload, trial, stages, self.cluster.world_size)
        parts = {"param_optimizer": paper.param_optimizer_gb, "activations": paper.activation_gb}
        total = sum(parts.values())
        rank = RankMemory.model_construct(rank=0, components=parts, total_gb=total, phase="steady")
        return {
            "memory_regime": "paper",
            "memory_per_gpu_gb": total,
            "param_optimizer_gb": paper.param_optimizer_gb,
            "activation_gb": paper.activation_gb,
            "memory_breakdown_gb": parts,
            "memory_by_rank_gb": (rank,),
            "memory_heaviest_rank": 0,
            "fits": total <= self.cluster.cap_gb,
        }

    def _time_fields(self, trial: NormalTrial, time: TimeReport) -> dict[str, Any]:
        """Throughput from the iteration's time, and where that time goes."""
        world = self.cluster.world_size
        per_second = MS_PER_S / time.iteration_ms / world
        tflops = self._flops * trial.gbs * per_second / TERA
        return {
            "iteration_ms": time.iteration_ms,
            "tokens_per_s_per_gpu": trial.gbs * self.workload.seq_length * per_second,
            "tflops_per_s_per_gpu": tflops,
            "mfu": tflops / self._peak_tflops(trial),
            "bubble_ratio": time.bubble_ratio,
            "time_breakdown_ms": time.breakdown_ms,
            "comm_breakdown": time.comm_ms,
            "comm_algorithms": time.comm_algorithms,
        }

    def _peak_tflops(self, trial: NormalTrial) -> float:
        """Data-sheet peak of the precision the linear layers run in."""
        fp8 = self.cluster.gpu.fp8_tflops
        return fp8 if trial.fp8 != "none" and fp8 is not None else self.cluster.gpu.bf16_tflops

    def _illegal(self, trial: NormalTrial, source: Source, code: str, reason: str) -> Evaluation:
        return Evaluation.model_construct(
            **self._identity(trial, source) | {"provenance": "inferred"},
            legal=False,
            reason=reason,
            reason_code=code,
            memory_regime=self.search.memory_regime,
            warnings=self._warnings,
        )

    def _identity(self, trial: NormalTrial, source: Source) -> dict[str, Any]:
        """What an evaluation is of, and how it came about."""
        provenance: Provenance = "calibrated" if self._factors.calibrated else "analytic"
        config = trial.model_dump(mode="json")
        return {
            "trial_id": trial_id_of(config),
            "config": config,
            "cap_gb": self.cluster.cap_gb,
            "source": source,
            "provenance": provenance,
            "signature": self.signature,
        }

    def _standing_warnings(self) -> tuple[str, ...]:
        """What is true of every number of this oracle."""
        gpu, warnings = self.cluster.gpu, []
        if not self._factors.calibrated:
            warnings.append(f"uncalibrated: achievable rates of {gpu.name} are published figures")
        elif self._calibration is not None and self._calibration.fitted_from != "gpu":
            kin = (
                self._calibration.family
                if self._calibration.fitted_from == "family"
                else gpu.vendor
            )
            warnings.append(f"calibrated with {kin} rows: no measured run of {gpu.name} was known")
        if self._gemm.name == "tile" and gpu.vendor == "amd" and self.search.gemm_backend == "auto":
            warnings.append("GEMM times are the tile model's: Origami is not installed")
        return tuple(warnings)
