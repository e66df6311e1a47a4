"""Which parts of a job each step depends on: the one list that caches are keyed by.

A part is a hash or a word. Two searches that agree in all parts of a step get the same answer from
it, wherever and whenever they run; a test changes every setting there is and holds that. The table
for people is in docs/caching.md, and a test holds it to this list.
"""

import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

import projection
import schemas
from schemas.signature import content_hash
from schemas.trial import NormalTrial
from storage.evaluation_cache import ResultIdentity
from tasks import seed_plan
from tasks.inputs import Inputs

Kept = Literal["in memory", "in the store", "in the log", "not kept"]


class Step(NamedTuple):
    """A step of a search, the parts it depends on, and where its answers are kept."""

    name: str
    depends_on: tuple[str, ...]
    kept: Kept


STEPS = (
    Step("resolve", ("files", "variables"), "in memory"),
    Step("recall", ("model", "cluster", "stack", "regime", "mode"), "in the log"),
    Step("derive_axes", ("model", "baseline", "size", "space", "code"), "in the store"),
    Step("seed_batch", ("model", "baseline", "size", "space", "code"), "in the store"),
    # The software too: of several orders of a pipeline, the fastest decides what is in memory.
    Step("memory_filter", ("trial", "model", "cluster", "stack", "regime", "mode"), "not kept"),
    Step("score", ("trial", "model", "cluster", "stack", "regime", "mode"), "in the store"),
)


def _model(inputs: Inputs) -> str:
    """The signature's: the architecture and the workload's own settings."""
    return inputs.signature.hashes.model


def _cluster(inputs: Inputs) -> str:
    """The signature's: GPU, network, size, placement, capacity, margin, overheads."""
    return inputs.signature.hashes.cluster


def _stack(inputs: Inputs) -> str:
    """The signature's: declared or detected software, this projection, GEMM model, calibration."""
    return inputs.signature.hashes.stack


def _baseline(inputs: Inputs) -> str:
    """The workload's own configuration, which is trial 0."""
    return content_hash(inputs.workload.baseline.model_dump(mode="json"))


def _size(inputs: Inputs) -> str:
    """What of a cluster decides which trials are legal: how many GPUs, how ranks lie, and FP8."""
    cluster = inputs.cluster
    return content_hash(
        {
            "nodes": cluster.num_nodes,
            "gpus_per_node": cluster.gpus_per_node,
            "placement": cluster.placement,
            "gpu": cluster.gpu.name,
            "fp8": cluster.gpu.fp8_tflops is not None,
        }
    )


def _space(inputs: Inputs) -> str:
    """What the search may move: `axes`, `pinned`, `max_gbs`."""
    return content_hash(
        inputs.search.model_dump(mode="json", include={"axes", "pinned", "max_gbs"})
    )


def _code(_: Inputs) -> str:
    """The code that says what is legal and what is proposed first."""
    return code_of_the_plan()


def _regime(inputs: Inputs) -> str:
    """Whose memory account is asked: the configuration's or the paper's."""
    return inputs.search.memory_regime


def _mode(inputs: Inputs) -> str:
    """Who answers: the oracle, its memory alone, or a made-up dry run."""
    return inputs.search.mode


PARTS: Mapping[str, Callable[[Inputs], str]] = MappingProxyType(
    {
        "model": _model,
        "cluster": _cluster,
        "stack": _stack,
        "baseline": _baseline,
        "size": _size,
        "space": _space,
        "code": _code,
        "regime": _regime,
        "mode": _mode,
    }
)
"""Every part that is the same for all trials of a search. The others: `trial`, a trial's id;
`files` and `variables`, what a resolution asked for (`tasks/resolve/known_workloads.py`)."""


def parts_of_step(name: str, inputs: Inputs) -> dict[str, str]:
    """The parts that the answers of a step depend on, but for the trial."""
    step = next(step for step in STEPS if step.name == name)
    return {part: PARTS[part](inputs) for part in step.depends_on if part in PARTS}


def key_of_step(name: str, inputs: Inputs) -> str:
    """SHA-256 of a step's parts, 64 hex digits: what its answers are kept under."""
    text = "\n".join(f"{part}={value}" for part, value in parts_of_step(name, inputs).items())
    return hashlib.sha256(text.encode()).hexdigest()


def score_identity(inputs: Inputs, trial: NormalTrial) -> ResultIdentity:
    """What makes two scores the same question: the parts of `score`, and the cap, which follows
    from the cluster."""
    return ResultIdentity(
        trial_id=trial.trial_id,
        signature=inputs.signature.hashes,
        source=inputs.search.source,
        memory_regime=inputs.search.memory_regime,
        cap_gb=inputs.cluster.cap_gb,
    )


@cache
def code_of_the_plan() -> str:
    """Hash of the code that says what is legal and what is proposed first. The rules have no
    version of their own, so a changed line of theirs makes their answers be asked again."""
    digest = hashlib.sha256()
    for package in (schemas, projection, seed_plan):
        root = Path(str(package.__file__)).parent
        for path in sorted(path for path in root.rglob("*") if path.suffix in (".py", ".yaml")):
            digest.update(f"{package.__name__}/{path.relative_to(root)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
