"""Numbered trials and inputs for tests of single steps."""

from typing import Any

from projection.legality import normalise
from schemas.search import SearchSpec
from schemas.trial import Candidate, TrialConfig
from schemas.workload import Workload
from tasks.inputs import Inputs
from tasks.seed_batch import NumberedTrial
from tests.builders import cluster, mixtral_8x22b


def mixtral_inputs(**search: Any) -> Inputs:
    """Mixtral 8x22B on 4 nodes of MI355X; GEMM times from the model that is always there."""
    return Inputs(mixtral_8x22b(), cluster(), SearchSpec(gemm_backend="tile", **search))


def numbered(number: int, workload: Workload, **knobs: Any) -> NumberedTrial:
    """Trial `number`: the workload with `knobs` set."""
    config = TrialConfig(**knobs)
    candidate = Candidate(config=config, rule="test", why="a test asks", tag=f"t{number}")
    return NumberedTrial(number, candidate, normalise(config, workload))
