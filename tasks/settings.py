"""Knobs as a person types them (`pp=4`, `fp8=hybrid`), or as a JSON object holds them."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import Field, ValidationError

from projection.degrees import gbs_of
from projection.legality import normalise
from schemas.cluster import Cluster
from schemas.errors import LONGEST_QUOTE, UserError, shown
from schemas.trial import NormalTrial, TrialConfig
from schemas.wording import problem
from schemas.workload import Workload

SPELLINGS = {
    "schedule": "pp_schedule",
    "recompute": "recompute_granularity",
    "recompute_layers": "recompute_num_layers",
    "deepep": "use_turbo_deepep",
    "fsdp2": "use_torch_fsdp2",
    "distributed_optimizer": "use_distributed_optimizer",
    "loss_fusion": "cross_entropy_loss_fusion",
    "sync_free": "sync_free_stage",
}
"""Short names that are unmistakable."""


class CountedBatch(TrialConfig):
    """A configuration whose global batch is given in microbatches; `with_global_batch` settles it.

    How many samples that is depends on the data parallelism, and so on the cluster.
    """

    num_microbatches: int = Field(ge=1)
    """Microbatches per iteration and pipeline."""


def parse_settings(assignments: Iterable[str]) -> TrialConfig:
    """The configuration that `KNOB=VALUE` assignments ask for; `null` means the workload's value.

    Raises:
        UserError: an assignment is not one, names no knob, or has a value of the wrong kind.
    """
    values: dict[str, Any] = {}
    for assignment in assignments:
        knob, equals, value = assignment.partition("=")
        if not equals:
            raise UserError(f"--set {shown(assignment)} is not KNOB=VALUE")
        knob, value = knob.strip(), value.strip()
        if not value:
            raise UserError(
                f"--set {shown(assignment)} has no value",
                hint="null means the workload's own value",
            )
        if knob in values:
            raise UserError(f"--set sets {knob} twice")
        values[knob] = None if value == "null" else value
    return trial_config(values, "--set")


def asked_for(assignments: Iterable[str], workload: Workload, cluster: Cluster) -> TrialConfig:
    """What `KNOB=VALUE` assignments ask for of this workload on this cluster.

    Raises:
        UserError: as `parse_settings`.
    """
    return with_global_batch(parse_settings(assignments), workload, cluster)


def configured(assignments: Iterable[str], workload: Workload, cluster: Cluster) -> NormalTrial:
    """The workload's configuration with these assignments made.

    Raises:
        UserError: as `parse_settings`.
    """
    return normalise(asked_for(assignments, workload, cluster), workload)


def with_global_batch(asked: TrialConfig, workload: Workload, cluster: Cluster) -> TrialConfig:
    """`asked` with its microbatches, where it counts in those, as the global batch they make.

    gbs = num_microbatches · mbs · dp, the sizes that `asked` leaves out being the workload's.

    Raises:
        UserError: it names a schedule that does not exist.
    """
    if not isinstance(asked, CountedBatch):
        return asked
    plain = TrialConfig(**asked.model_dump(exclude={"num_microbatches"}))
    sizes = normalise(plain, workload)
    gbs = gbs_of(asked.num_microbatches, sizes, cluster.world_size)
    return plain.model_copy(update={"gbs": gbs})


def trial_config(values: Mapping[str, Any], where: str) -> TrialConfig:
    """The configuration an object of knobs asks for.

    Raises:
        UserError: a key names no knob, a knob is named twice, a value is of the wrong kind, or the
            batch is given both as gbs and as num_microbatches.
    """
    named: dict[str, Any] = {}
    for key, value in values.items():
        knob = _knob(key, where)
        if knob in named:
            raise UserError(f"{where} sets {knob} twice")
        named[knob] = value
    if named.get("num_microbatches") is None:
        named.pop("num_microbatches", None)
    elif named.get("gbs") is not None:
        raise UserError(f"{where} sets gbs and num_microbatches, which are one knob; keep one")
    model = CountedBatch if "num_microbatches" in named else TrialConfig
    try:
        return model.model_validate(named)
    except ValidationError as error:
        first = error.errors()[0]
        knob = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{where} {knob}={first['input']!s:.80}: {problem(first)}") from error


def _knob(key: str, where: str) -> str:
    knob = SPELLINGS.get(key, key)
    if knob in CountedBatch.model_fields:
        return knob
    spellings = [*CountedBatch.model_fields, *SPELLINGS]
    near = get_close_matches(key.strip().lower()[:LONGEST_QUOTE], spellings, n=1)
    did_you_mean = f"; did you mean {near[0]}?" if near else ""
    raise UserError(
        f"{where}: no knob is called {shown(key)}{did_you_mean}",
        hint="knobs: " + ", ".join(CountedBatch.model_fields),
    )
