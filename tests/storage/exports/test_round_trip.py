"""An exported trial file, read back by the resolver, is the same trial."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projection.legality import LegalSpace
from projection.legality.derived import derived_settings
from schemas.search import SearchSpec
from schemas.trial import NormalTrial
from schemas.workload import Workload
from storage.exports.overlay import overlay_yaml
from tasks.resolve import resolve_cluster, resolve_workload

EXAMPLES = Path(__file__).parents[3] / "examples"
WORKLOADS = sorted(path.stem for path in (EXAMPLES / "workloads").glob("*.yaml"))


@cache
def example(name: str) -> Workload:
    return resolve_workload(EXAMPLES / "workloads" / f"{name}.yaml", env={})


@cache
def legal_space(name: str) -> LegalSpace:
    cluster = resolve_cluster(EXAMPLES / "clusters" / "mi355x_4nodes.yaml", env={}).cluster
    return LegalSpace(example(name), cluster, SearchSpec())


def read_back(workload: Workload, trial: NormalTrial, *, derived: bool = True) -> Workload:
    text = overlay_yaml(
        workload, trial, derived_settings(trial, workload) if derived else None, header="a trial"
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "000_trial.yaml"
        path.write_text(text)
        return resolve_workload(path, env={})


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_baselines_file_is_the_workload_again(name: str) -> None:
    workload = example(name)
    again = read_back(workload, workload.baseline)
    kept = {"source", "files", "warnings"}
    assert again.model_dump(exclude=kept) == workload.model_dump(exclude=kept)


@pytest.mark.parametrize("name", WORKLOADS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_legal_trial_reads_back_to_itself(name: str, data: st.DataObject) -> None:
    workload, space = example(name), legal_space(name)
    trial = space[data.draw(st.integers(0, space.count() - 1))]
    for derived in (True, False):
        again = read_back(workload, trial, derived=derived)
        assert again.baseline == trial
        assert again.baseline.trial_id == trial.trial_id
        assert again.architecture == workload.architecture
        assert again.seq_length == workload.seq_length
