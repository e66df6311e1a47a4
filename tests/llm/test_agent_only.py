"""A search without a seed plan: a model goes on with what was found before."""

from pathlib import Path
from typing import Any

import pytest

from flows.llm_rounds import LLM
from flows.replaying import verify_replay
from flows.requests import TuneRequest
from flows.seeding import SEED
from flows.tune import tune
from schemas.errors import EnvironmentMissing, UserError
from storage import EventLog, State, Store, list_runs
from tests.end_to_end.cutting import but_export
from tests.end_to_end.files import write_inputs
from tests.flows.inline import refold_inline
from tests.llm import tuner
from tests.llm.endpoint import endpoint

pytestmark = pytest.mark.whole
MODEL = "openai/scripted"


@pytest.fixture
def nobody_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("OPENAI_API_KEY", "LLM_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def asking(folder: Path, url: str | None, *, rounds: int = 3, **asked: Any) -> TuneRequest:
    llm: dict[str, Any] = (
        {} if url is None else {"base_url": url, "api_key": "sk-x", "timeout": 5.0}
    )
    workload, cluster = write_inputs(
        folder,
        agent={"llm": llm},
        optimization={"budget": {"max_perf_calls": 60, "max_proposals": 40, "max_rounds": rounds}},
    )
    return TuneRequest(
        workload=workload, target_cluster=cluster, out_dir=folder / "out",
        store=str(folder / "store"), mode="dry", gemm_backend="tile",
        llm=None if url is None else MODEL, **asked,
    )  # fmt: skip


def state_of(request: TuneRequest, run_id: str) -> State:
    return EventLog.open(Path(str(request.store)), run_id).state()


def proposers(state: State) -> list[str]:
    return [known.started.proposer for known in state.rounds]


def test_a_model_goes_on_with_the_newest_finished_run_that_asked_the_same(tmp_path: Path):
    with endpoint(tuner.tune) as server:
        seeded = asking(tmp_path, server.url, seed_only=True)
        tune(seeded, stage=but_export)
        newest = tune(seeded, stage=but_export)
        tune(seeded.model_copy(update={"memory_regime": "paper"}), stage=but_export)
        before = state_of(seeded, newest)
        assert server.prompts == []
        run_id = tune(asking(tmp_path, server.url, agent_only=True), stage=but_export)
    assert run_id == newest
    after = state_of(seeded, run_id)
    assert proposers(before) == [SEED]
    assert proposers(after)[:2] == [SEED, LLM]
    assert any(trial.proposed.rule == LLM for trial in after.trials.values())
    assert after.spent.perf_calls > before.spent.perf_calls
    assert verify_replay(Store.at(tmp_path / "store"), run_id).identical


def test_where_nothing_was_asked_before_the_baseline_alone_comes_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with endpoint(tuner.tune) as server:
        request = asking(tmp_path, server.url, agent_only=True)
        run_id = tune(request, stage=but_export)
    state = state_of(request, run_id)
    seeds = [t for t in state.trials.values() if t.proposed.rule != LLM]
    assert [trial.proposed.rule for trial in seeds] == ["baseline"]
    assert proposers(state)[:2] == [SEED, LLM]
    assert "no run has asked this yet" in capsys.readouterr().err
    assert verify_replay(Store.at(tmp_path / "store"), run_id).identical


def killed(name: str, step: Any, *args: Any) -> Any:
    """A stage runner whose process dies before anything is scored."""
    if name == "score":
        raise RuntimeError("killed")
    return but_export(name, step, *args)


def test_a_run_whose_seeds_are_not_done_is_named_with_what_does_them(tmp_path: Path):
    with endpoint(tuner.tune) as server:
        with pytest.raises(RuntimeError):
            tune(asking(tmp_path, server.url, seed_only=True), stage=killed)
        [run] = list_runs(tmp_path / "store")
        with pytest.raises(UserError, match=run.run_id) as refused:
            tune(asking(tmp_path, server.url, agent_only=True), stage=but_export)
    assert refused.value.hint is not None
    assert f"refold resume {run.run_id} --llm" in refused.value.hint


def test_one_whose_seeds_are_done_is_gone_on_with_past_a_newer_one_whose_are_not(tmp_path: Path):
    with endpoint(tuner.tune) as server:
        seeded = asking(tmp_path, server.url, seed_only=True)
        ready = tune(seeded, stage=but_export)
        with pytest.raises(RuntimeError):
            tune(seeded.model_copy(update={"recall": False}), stage=killed)
        assert tune(asking(tmp_path, server.url, agent_only=True), stage=but_export) == ready


def test_its_own_run_that_died_while_the_model_was_asked_is_gone_on_with(tmp_path: Path):
    def dead(name: str, step: Any, *args: Any) -> Any:
        if name == "llm_round":
            raise RuntimeError("killed")
        return but_export(name, step, *args)

    with endpoint(tuner.tune) as server:
        request = asking(tmp_path, server.url, agent_only=True)
        with pytest.raises(RuntimeError):
            tune(request, stage=dead)
        [run] = list_runs(tmp_path / "store")
        assert tune(request, stage=but_export) == run.run_id
    state = state_of(request, run.run_id)
    assert state.finished is not None
    assert state.spent.llm_calls >= 1


def test_what_the_files_say_otherwise_is_named_and_the_runs_own_stands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with endpoint(tuner.tune) as server:
        run_id = tune(asking(tmp_path, server.url, seed_only=True), stage=but_export)
        request = asking(tmp_path, server.url, agent_only=True, rounds=1)
        assert tune(request, stage=but_export) == run_id
        said = capsys.readouterr().err
        assert "search.budget.max_rounds: 3 → 1" in said
        assert f"refold fork {run_id}" in said
    assert state_of(request, run_id).spec.search.budget.max_rounds == 3


def test_the_model_that_is_named_is_the_one_that_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with endpoint(tuner.tune) as server:
        request = asking(tmp_path, server.url, agent_only=True)
        run_id = tune(request, stage=but_export)
        capsys.readouterr()
        another = request.model_copy(update={"llm": "openai/another"})
        assert tune(another, stage=but_export) == run_id
    assert "search.llm" not in capsys.readouterr().err
    assert {call.event.model for call in state_of(request, run_id).calls} == {MODEL, another.llm}


def test_a_run_without_a_round_left_is_refused_with_what_gives_it_more(tmp_path: Path):
    with endpoint(lambda prompt, number: (500, "{}")) as server:
        first = asking(tmp_path, server.url, agent_only=True, rounds=1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("flows.llm_tape.FIRST_WAIT_S", 0.01)
            run_id = tune(first, stage=but_export)
        with pytest.raises(UserError, match="max_rounds: all 1 rounds are spent") as refused:
            tune(first, stage=but_export)
    assert refused.value.hint is not None
    assert f"refold fork {run_id}" in refused.value.hint


def test_without_a_model_it_is_refused_and_nothing_begins(tmp_path: Path, nobody_configured: None):
    with pytest.raises(EnvironmentMissing, match="no language model is configured"):
        tune(asking(tmp_path, None, agent_only=True), stage=but_export)
    assert not (tmp_path / "store" / "runs").exists()


@pytest.mark.parametrize("other", ["--seed-only", "--resume", "--seed-budget"])
def test_what_it_contradicts_is_refused(
    other: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    workload, cluster = write_inputs(tmp_path)
    said = ["tune", "--workload", str(workload), "--target-cluster", str(cluster)]
    value = ("3",) if other == "--seed-budget" else ()
    code, _, err = refold_inline(capsys, *said, "--agent-only", other, *value)
    assert code == 2
    assert f"--agent-only and {other} contradict each other" in err
