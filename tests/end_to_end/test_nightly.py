"""Nights as somebody sees them in the morning: what changed is tuned again, the rest looked at."""

import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.forking import fork
from flows.invalidating import invalidate
from flows.nightly import run_night
from flows.requests import ForkRequest, NightRequest
from schemas.errors import LogError, RunLocked, StoreRefused, UserError
from schemas.events import TrialScored
from schemas.night import TargetTaken
from schemas.scoring import Scoring
from storage import EventLog, list_runs
from storage.nights import read_night
from storage.ranking import eligible
from storage.verify import verify_night
from tasks.evaluators import Full
from tasks.inputs import Inputs
from tasks.nightly import judge as nightly_judge
from tasks.nightly.judge import inputs_of
from tasks.nightly.report import as_json, details, findings, headline, markdown
from tasks.nightly.standing import KnownRuns
from tasks.nightly.targets import read_targets
from tests.end_to_end.cutting import but_export
from tests.end_to_end.nights import (
    AFTER,
    BEFORE,
    at,
    night,
    only,
    store_in,
    write_target,
    write_targets,
)
from tests.flows.command import command_line, environment


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """One target, tuned in a first night."""
    write_target(tmp_path / "mixtral", hipblaslt=BEFORE, gemm_fp8=1.0)
    write_targets(tmp_path, "mixtral")
    assert only(night(tmp_path, at(1), stage=but_export)).outcome == "first"
    return tmp_path


def events_of(folder: Path, run_id: str) -> list[Any]:
    return [record.event for record in EventLog.open(store_in(folder), run_id).iterate()]


def evaluations(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts what the oracle is asked: trial ids."""
    asked: Counter[str] = Counter()
    project = Full.score

    def counted(self: Full, trial: Any) -> Any:
        asked[trial.trial_id] += 1
        return project(self, trial)

    monkeypatch.setattr(Full, "score", counted)
    return asked


def test_of_an_unchanged_target_the_recipe_alone_is_scored_again(
    tuned: Path, monkeypatch: pytest.MonkeyPatch
):
    runs = [run.run_id for run in list_runs(store_in(tuned))]
    asked = evaluations(monkeypatch)
    decided = only(night(tuned, at(2)))
    assert decided.outcome == "kept"
    assert decided.before == decided.again == decided.after
    assert decided.after is not None
    assert asked == {decided.after.trial_id: 1}
    assert [run.run_id for run in list_runs(store_in(tuned))] == runs
    assert "1 unchanged" in headline(
        read_night(store_in(tuned), night(tuned, at(2)).night.night_id)
    )


def test_another_hipblaslt_and_its_calibration_let_another_recipe_win(tuned: Path):
    """Nothing but the declared version and what was fitted for it changes."""
    write_target(tuned / "mixtral", hipblaslt=AFTER, gemm_fp8=0.5)
    done = night(tuned, at(2), stage=but_export)
    decided = only(done)
    assert decided.outcome == "re-tuned"
    assert decided.before is not None
    assert decided.again is not None
    assert decided.after is not None
    assert decided.before.config.fp8 == "hybrid"
    assert decided.after.config.fp8 == "none"
    assert decided.after.trial_id != decided.before.trial_id
    # The recipe that was, on the new software: slower, and its GEMMs are what moved most.
    assert decided.again.tokens_per_s_per_gpu < decided.before.tokens_per_s_per_gpu
    assert decided.after.tokens_per_s_per_gpu > decided.again.tokens_per_s_per_gpu
    (finding,) = findings(done.night)
    assert finding.regressed
    said = list(details(finding))
    assert f"changed: cluster.stack.hipblaslt: {BEFORE} → {AFTER}" in said
    assert "changed: cluster.calibration.factors.gemm_fp8.value: 1.0 → 0.5" in said
    (moved,) = [line for line in said if line.startswith("the recipe before scores -")]
    assert moved.split("tonight: ")[1].startswith("gemm ")
    assert any("fp8 hybrid → none" in line for line in said)
    assert headline(done.night).startswith("REGRESSION in mixtral")
    assert markdown(done.night).startswith("# REGRESSION in mixtral")
    assert as_json(done.night)["regressions"] == ["mixtral"]
    assert next(iter(as_json(done.night)["targets"][0]["parts_ms"])) == "gemm"


def test_a_changed_target_forks_the_last_run_and_scores_its_best_first(tuned: Path):
    first = list_runs(store_in(tuned))[-1].run_id
    ranked = EventLog.open(store_in(tuned), first).state().ranked()
    write_target(tuned / "mixtral", hipblaslt=AFTER, gemm_fp8=0.5)
    write_targets(tuned, "mixtral", defaults={"top_k": 2})
    decided = only(night(tuned, at(2), stage=but_export))
    assert decided.run is not None
    state = EventLog.open(store_in(tuned), decided.run).state()
    assert state.forks[0].event.parent == first
    assert state.forks[0].event.carry == 2
    assert not state.forks[0].event.inherits
    best = [trial.proposed.trial_id for trial in ranked if trial.number != 0][:2]
    assert len(best) == 2
    rules = [trial.proposed.rule for trial in state.trials.values()]
    assert rules[1:3] == ["carried", "carried"]
    assert "carried" not in rules[3:]
    assert len(rules) > 3
    own = [e for e in events_of(tuned, decided.run) if isinstance(e, TrialScored)]
    own = own[-state.spent.perf_calls :]
    scored = [
        event.trial_id for event in own if event.trial_id != state.trials[0].proposed.trial_id
    ]
    assert scored[:2] == best


def test_a_gain_is_no_regression_and_is_said(tuned: Path):
    write_target(tuned / "mixtral", hipblaslt=AFTER, gemm_fp8=1.2)
    done = night(tuned, at(2), stage=but_export)
    (finding,) = findings(done.night)
    assert not finding.regressed
    assert finding.change_percent is not None
    assert finding.change_percent > 1
    assert "REGRESSION" not in headline(done.night)


@pytest.mark.parametrize(("percent", "regressed"), [(0.0, True), (50.0, False)])
def test_what_a_regression_is_is_the_targets_to_say(tuned: Path, percent: float, regressed: bool):
    write_target(tuned / "mixtral", hipblaslt=AFTER, gemm_fp8=0.95)
    write_targets(tuned, "mixtral", defaults={"regression_percent": percent})
    (finding,) = findings(night(tuned, at(2), stage=but_export).night)
    assert finding.decided.outcome == "re-tuned"
    assert finding.regressed == regressed


def test_a_version_that_moves_no_score_is_searched_again_and_named(tuned: Path):
    """What is declared is what a score depends on, also where nothing of it reaches the oracle."""
    write_target(tuned / "mixtral", hipblaslt=AFTER, gemm_fp8=1.0)
    decided = only(night(tuned, at(2), stage=but_export))
    assert decided.outcome == "re-tuned"
    assert [moved.path for moved in decided.moved] == ["cluster.stack.hipblaslt"]
    assert decided.before is not None
    assert decided.after is not None
    assert decided.after.trial_id == decided.before.trial_id
    assert decided.after.tokens_per_s_per_gpu == decided.before.tokens_per_s_per_gpu


def test_another_budget_is_no_reason_to_search_and_another_pin_is(tuned: Path):
    budget = {"optimization": {"budget": {"max_perf_calls": 7}}}
    write_target(tuned / "mixtral", hipblaslt=BEFORE, gemm_fp8=1.0, **budget)
    assert only(night(tuned, at(2))).outcome == "kept"
    pin = {"optimization": {"pinned": {"fp8": "none"}}}
    write_target(tuned / "mixtral", hipblaslt=BEFORE, gemm_fp8=1.0, **pin)
    decided = only(night(tuned, at(3), stage=but_export))
    assert decided.outcome == "re-tuned"
    assert decided.again is None
    assert decided.again_why is not None
    assert decided.after is not None
    assert decided.after.config.fp8 == "none"


def test_one_target_failing_never_stops_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    names = ("missing", "broken", "bug", "well")
    for name in names:
        write_target(tmp_path / name, target_cluster={"name": name})
    write_targets(tmp_path, *names)
    (tmp_path / "missing" / "workload.yaml").unlink()
    (tmp_path / "broken" / "cluster.yaml").write_text("target_cluster: {num_nods: 4}")
    evaluator = Inputs.evaluator

    def with_a_bug(self: Inputs) -> Any:
        if self.cluster.name == "bug":
            raise ZeroDivisionError("a secret of the code")
        return evaluator(self)

    monkeypatch.setattr(Inputs, "evaluator", with_a_bug)
    done = night(tmp_path, at(1), stage=but_export)
    found = done.night.decided
    assert {name: found[name].outcome for name in names} == {
        "missing": "failed",
        "broken": "failed",
        "bug": "failed",
        "well": "first",
    }
    assert found["missing"].failure is not None
    assert "no such file" in found["missing"].failure.message
    assert found["broken"].failure is not None
    assert "did you mean num_nodes?" in found["broken"].failure.message
    assert found["bug"].failure is not None
    assert found["bug"].failure.error == "ZeroDivisionError"
    assert "secret" not in found["bug"].failure.message
    assert headline(done.night).startswith("FAILED: missing, broken, bug;")


def test_a_failed_target_is_compared_with_its_last_recipe_once_it_works_again(tuned: Path):
    cluster = (tuned / "mixtral" / "cluster.yaml").read_text()
    (tuned / "mixtral" / "cluster.yaml").write_text("target_cluster: 7")
    failed = only(night(tuned, at(2)))
    assert failed.outcome == "failed"
    (tuned / "mixtral" / "cluster.yaml").write_text(cluster)
    assert only(night(tuned, at(3))).outcome == "kept"


def test_a_message_of_a_failed_target_repeats_no_key(tmp_path: Path):
    write_target(tmp_path / "a")
    write_targets(tmp_path, "a")
    secret = "sk-planted-in-the-file-0123456789"
    cluster = yaml.safe_load((tmp_path / "a" / "cluster.yaml").read_text())
    cluster["agent"] = {"llm": {"api_key": secret}}
    cluster["target_cluster"]["gpu_arch"] = secret
    (tmp_path / "a" / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    decided = only(night(tmp_path, at(1)))
    assert decided.failure is not None
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name != "cluster.yaml":
            assert secret.encode() not in path.read_bytes(), path


def test_a_night_writes_no_key_that_its_targets_file_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    secret = "sk-0123456789abcdef"
    monkeypatch.setenv("LAB_API_KEY", secret)
    write_target(tmp_path / "a")
    write_targets(tmp_path, "a", defaults={"llm": "${LAB_API_KEY}"})
    with pytest.raises(LogError, match="holds a configured secret"):
        night(tmp_path, at(1))
    assert store_in(tmp_path).nights.run_ids() == []
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path


def test_an_engine_that_cannot_be_had_spends_no_slot(tuned: Path):
    with pytest.raises(UserError, match="has no workers"):
        night(tuned, at(2), scoring=Scoring(engine="inline", workers=2))
    assert not night(tuned, at(2)).already


def test_a_slot_fired_twice_is_a_no_op(tuned: Path, monkeypatch: pytest.MonkeyPatch):
    asked = evaluations(monkeypatch)
    first = night(tuned, at(2))
    count = sum(asked.values())
    head = first.night.head_hash
    for hour in (4, 12, 23):
        again = night(tuned, at(2, hour))
        assert again.already
        assert again.night.head_hash == head
    assert sum(asked.values()) == count
    assert not night(tuned, at(3)).already


def test_missed_nights_are_caught_up_once(tuned: Path):
    done = night(tuned, at(6))
    assert done.night.started.missed == 4
    assert done.night.started.slot == at(6, 2)
    assert night(tuned, at(6, 5)).already
    assert night(tuned, at(7)).night.started.missed == 0
    assert len(store_in(tuned).nights.run_ids()) == 3


class Killed(BaseException):
    """The process is gone: nothing of ours handles it."""


@pytest.mark.parametrize("survives", range(1, 8))
def test_a_night_that_was_cut_off_is_gone_on_with_and_repeats_nothing(
    tmp_path: Path, survives: int
):
    """Two targets are searched; the process dies after so many events of the night."""
    for name in ("a", "b"):
        write_target(tmp_path / name, target_cluster={"name": name})
    write_targets(tmp_path, "a", "b", defaults={"seed_budget": 3})
    seen = 0

    def dies(event: Any, envelope: Any) -> None:
        nonlocal seen
        seen += event.type.startswith(("Night", "Target"))
        if seen == survives:
            raise Killed

    request = NightRequest(
        targets=tmp_path / "targets.yaml", store=str(tmp_path / "store"), out_dir=tmp_path / "out"
    )
    if survives < 7:
        with pytest.raises(Killed):
            run_night(request, stage=but_export, listeners=[dies], clock=lambda: at(1))
    done = run_night(request, stage=but_export, clock=lambda: at(1, 4))
    assert done.night.finished is not None
    assert {d.outcome for d in done.night.decided.values()} == {"first"}
    runs = [run.run_id for run in list_runs(store_in(tmp_path))]
    assert sorted(runs) == sorted(d.run for d in done.night.decided.values() if d.run)
    taken = [
        record.event.target
        for record in EventLog.open(store_in(tmp_path).nights, done.night.night_id).iterate()
        if isinstance(record.event, TargetTaken)
    ]
    assert sorted(set(taken)) == ["a", "b"]
    assert verify_night(store_in(tmp_path), done.night.night_id).ok


def test_a_made_up_score_is_no_measure_of_a_projected_one(tmp_path: Path):
    write_target(tmp_path / "a")
    write_targets(tmp_path, "a", defaults={"mode": "dry"})
    made_up = only(night(tmp_path, at(1), stage=but_export)).after
    assert made_up is not None
    assert made_up.source == "dry"
    write_targets(tmp_path, "a", defaults={"mode": "full"})
    (finding,) = findings(night(tmp_path, at(2), stage=but_export).night)
    assert (finding.decided.outcome, finding.decided.before) == ("first", None)
    assert finding.decided.after is not None
    assert finding.decided.after.source == "simulate"
    assert not finding.regressed


@pytest.mark.parametrize("knows_a_recipe", [False, True])
def test_a_search_that_was_cut_off_is_taken_up_in_its_own_run(tmp_path: Path, knows_a_recipe: bool):
    """What it has found until then is no recipe of the night before."""
    write_target(tmp_path / "a")
    write_targets(tmp_path, "a")

    def dies(event: Any, envelope: Any) -> None:
        if isinstance(event, TrialScored) and (eligible(event.evaluation) or not knows_a_recipe):
            raise KeyboardInterrupt

    request = NightRequest(
        targets=tmp_path / "targets.yaml", store=str(tmp_path / "store"), out_dir=tmp_path / "out"
    )
    with pytest.raises(KeyboardInterrupt):
        run_night(request, stage=but_export, listeners=[dies], clock=lambda: at(1))
    (cut,) = list_runs(store_in(tmp_path))
    assert cut.status == "interrupted"
    assert (cut.best_trial is not None) == knows_a_recipe
    decided = only(night(tmp_path, at(1, 5), stage=but_export))
    assert decided.run == cut.run_id
    assert (decided.outcome, decided.before) == ("first", None)
    (whole,) = list_runs(store_in(tmp_path))
    assert whole.status == "finished"


def test_a_night_cut_off_before_the_next_slot_is_superseded_by_it(tuned: Path):
    def dies(event: Any, envelope: Any) -> None:
        raise Killed

    request = NightRequest(
        targets=tuned / "targets.yaml", store=str(tuned / "store"), out_dir=tuned / "out"
    )
    with pytest.raises(Killed):
        run_night(request, listeners=[dies], clock=lambda: at(2))
    done = night(tuned, at(3))
    assert only(done).outcome == "kept"
    before = done.night.started.before
    assert before is not None
    old = read_night(store_in(tuned), before)
    assert old.abandoned is not None
    assert old.abandoned.slot == done.night.started.slot
    assert verify_night(store_in(tuned), before).ok


def test_a_night_that_is_being_done_is_left_to_whoever_does_it(tuned: Path):
    done = night(tuned, at(2))
    other = EventLog.create(store_in(tuned).nights, "20260303t020000-not-ours")
    other.append([(done.night.started.model_copy(update={"slot": at(3, 2)}), None, None)], 0)
    with pytest.raises(RunLocked):
        night(tuned, at(4))
    other.close()
    assert not night(tuned, at(4)).already


def test_a_slot_fired_by_several_processes_at_once_is_done_once(tmp_path: Path):
    for name in ("a", "b"):
        write_target(tmp_path / name, target_cluster={"name": name})
    write_targets(tmp_path, "a", "b", defaults={"seed_budget": 3})
    arguments = ("nightly", "targets.yaml", "--store", "store", "--slot", "2026-03-01T02:00")
    fired = [
        subprocess.Popen(
            command_line(*arguments, "--no-prefect", "--out-dir", "out"),
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    said = [process.communicate(timeout=300) for process in fired]
    codes = [process.returncode for process in fired]
    assert 0 in codes, said
    assert set(codes) <= {0, 4}, said
    (name,) = store_in(tmp_path).nights.run_ids()
    assert read_night(store_in(tmp_path), name).finished is not None
    assert len(list_runs(store_in(tmp_path))) == 2


def test_a_report_that_was_not_written_is_written_by_the_next_fire(tuned: Path):
    done = night(tuned, at(2))
    written = (tuned / "out" / "report.md").read_bytes()
    shutil.rmtree(tuned / "out")
    assert night(tuned, at(2)).already
    assert (tuned / "out" / "report.md").read_bytes() == written
    assert done.night.finished is not None


def test_a_better_recipe_that_somebody_found_meanwhile_is_taken_over(tmp_path: Path):
    """Same signature and same search, by hand, and it looked further."""
    write_target(tmp_path / "a")
    write_targets(tmp_path, "a", defaults={"seed_budget": 7})
    night(tmp_path, at(1), stage=but_export)
    (first,) = list_runs(store_in(tmp_path))
    better = fork(
        ForkRequest(
            run=first.run_id,
            store=str(tmp_path / "store"),
            out_dir=tmp_path / "by-hand",
            settings=("search.budget.seed_budget=12",),
        ),
        stage=but_export,
    )
    found = EventLog.open(store_in(tmp_path), better).state().best
    assert found is not None
    assert found.score is not None
    assert first.best_tokens_per_s_per_gpu is not None
    assert found.score > first.best_tokens_per_s_per_gpu
    decided = only(night(tmp_path, at(2)))
    assert decided.outcome == "better known"
    assert decided.after is not None
    assert decided.after.run_id == better
    assert only(night(tmp_path, at(3))).outcome == "kept"


def test_what_another_run_found_wrong_is_no_better_recipe(tmp_path: Path):
    """A fork has the score from its parent, which takes it back afterwards."""
    write_target(tmp_path / "a")
    write_targets(tmp_path, "a", defaults={"seed_budget": 12})
    store = str(tmp_path / "store")
    first = only(night(tmp_path, at(1), stage=but_export)).after
    assert first is not None
    fork(
        ForkRequest(run=first.run_id, store=store, out_dir=tmp_path / "fork", seed_budget=13),
        stage=but_export,
    )
    invalidate(store_in(tmp_path), first.run_id, first.trial, "measured: it hangs")
    left = EventLog.open(store_in(tmp_path), first.run_id).state().best
    assert left is not None
    assert left.score is not None
    known = KnownRuns.of(store_in(tmp_path))
    (target,) = read_targets(tmp_path / "targets.yaml").targets
    inputs = inputs_of(target)
    best = known.best(inputs)
    assert best is not None
    assert best.trial_id != first.trial_id
    better = known.best(inputs, better_than=left.score)
    assert better is None or better.trial_id != first.trial_id


def test_a_score_that_moved_though_nothing_did_is_an_alarm(
    tuned: Path, monkeypatch: pytest.MonkeyPatch
):
    score = Full.score

    def slower(self: Full, trial: Any) -> Any:
        found = score(self, trial)
        speed = found.tokens_per_s_per_gpu
        return found.model_copy(update={"tokens_per_s_per_gpu": speed and speed * 0.9})

    monkeypatch.setattr(Full, "score", slower)
    done = night(tuned, at(2))
    (finding,) = findings(done.night)
    assert finding.decided.outcome == "drifted"
    assert finding.regressed
    assert any("refold invalidate" in line for line in details(finding))


def test_a_target_that_stopped_fitting_is_a_regression_and_not_searched_every_night(tuned: Path):
    small = {"optimization": {"memory_safety_margin": 0.95}}
    write_target(tuned / "mixtral", hipblaslt=BEFORE, gemm_fp8=1.0, **small)
    (finding,) = findings(night(tuned, at(2), stage=but_export).night)
    assert finding.decided.after is None
    assert finding.regressed
    runs = len(list_runs(store_in(tuned)))
    decided = only(night(tuned, at(3)))
    assert decided.outcome == "kept"
    assert decided.notes == ("nothing legal fits, as before",)
    assert len(list_runs(store_in(tuned))) == runs
    write_target(tuned / "mixtral", hipblaslt=BEFORE, gemm_fp8=1.0)
    decided = only(night(tuned, at(4), stage=but_export))
    assert decided.after is not None
    assert decided.before is not None


def test_the_first_night_starts_from_what_was_tuned_by_hand(tuned: Path):
    write_targets(tuned, "mixtral", name="another file")
    decided = only(night(tuned, at(1)))
    assert decided.outcome == "kept"
    assert decided.run is None


def test_a_run_that_is_gone_is_searched_anew_and_said(tuned: Path):
    (run,) = list_runs(store_in(tuned))
    (tuned / "store" / "heads" / f"{run.run_id}.json").unlink()
    for segment in (tuned / "store" / "runs" / f"run_id={run.run_id}" / "events").iterdir():
        segment.unlink()
    write_target(tuned / "mixtral", hipblaslt=AFTER, gemm_fp8=0.9)
    decided = only(night(tuned, at(2), stage=but_export))
    assert decided.outcome == "re-tuned"
    assert any("is gone" in note for note in decided.notes)
    assert decided.after is not None


def test_the_report_comes_back_from_the_log_byte_for_byte(tuned: Path):
    from tasks.nightly.report import write_report

    done = night(tuned, at(2))
    for name in ("report.md", "report.json"):
        written = (tuned / "out" / name).read_bytes()
        write_report(read_night(store_in(tuned), done.night.night_id), tuned / "again")
        assert (tuned / "again" / name).read_bytes() == written


def test_a_night_in_a_bucket_is_the_same(tuned: Path, s3_store: str):
    write_target(tuned / "mixtral", hipblaslt=BEFORE, gemm_fp8=1.0)
    assert only(night(tuned, at(1), store=s3_store, stage=but_export)).outcome == "first"
    assert only(night(tuned, at(2), store=s3_store)).outcome == "kept"
    assert night(tuned, at(2, 9), store=s3_store).already


def test_a_changed_night_does_not_verify(tuned: Path):
    done = night(tuned, at(2))
    (segment,) = (
        tuned / "store" / "nights" / "runs" / f"run_id={done.night.night_id}" / "events"
    ).iterdir()
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    assert not verify_night(store_in(tuned), done.night.night_id).ok


def test_a_targets_file_that_is_wrong_is_the_users_to_mend(tmp_path: Path):
    with pytest.raises(UserError, match="no such file"):
        night(tmp_path, at(1))


def test_a_recipe_that_was_withdrawn_is_not_a_targets_any_more(tuned: Path):
    before = only(night(tuned, at(2))).after
    assert before is not None
    invalidate(store_in(tuned), before.run_id, before.trial, "hangs")
    after = only(night(tuned, at(3))).after
    assert after is not None
    assert after.trial_id != before.trial_id
    assert after.tokens_per_s_per_gpu < before.tokens_per_s_per_gpu


def test_what_the_workload_fixes_is_a_reason_to_search(tuned: Path):
    """It is in no signature, and in no search either."""
    workload = tuned / "mixtral" / "workload.yaml"
    text = workload.read_text()
    workload.write_text(text.replace("global_batch_size: 128", "global_batch_size: 256"))
    found = only(night(tuned, at(2)))
    assert (found.outcome, found.again) == ("re-tuned", None)
    assert found.after is not None
    assert found.after.config.gbs == 256
    assert only(night(tuned, at(3))).outcome == "kept"
    write_target(tuned / "mixtral", target_cluster={"num_nodes": 1})
    assert only(night(tuned, at(4))).after is None
    assert only(night(tuned, at(5))).run is None
    workload.write_text(text.replace("global_batch_size: 128", "global_batch_size: 64"))
    assert only(night(tuned, at(6))).run is not None


@pytest.mark.parametrize("made_up", ["dry", "memory-real"])
def test_a_score_is_never_compared_with_a_made_up_one(tmp_path: Path, made_up: str):
    write_target(tmp_path / "a")
    write_targets(tmp_path, "a", defaults={"mode": made_up})
    first = only(night(tmp_path, at(1)))
    write_targets(tmp_path, "a")
    done = night(tmp_path, at(2))
    found = only(done)
    assert first.after is not None
    assert (found.outcome, found.before) == ("first", None)
    assert found.after is not None
    assert found.after.source == "simulate"
    assert as_json(done.night)["regressions"] == []


def test_an_out_dir_that_cannot_be_written_costs_no_target(tmp_path: Path):
    write_target(tmp_path / "a")
    write_targets(tmp_path, "a")
    (tmp_path / "out").write_text("in the way")
    with pytest.raises(UserError, match="out: cannot be written"):
        night(tmp_path, at(1))
    (tmp_path / "out").unlink()
    done = night(tmp_path, at(1))
    assert not done.already
    assert only(done).outcome == "first"


def test_a_store_that_refuses_costs_no_target(tuned: Path, monkeypatch: pytest.MonkeyPatch):
    write_target(tuned / "mixtral", hipblaslt=AFTER, gemm_fp8=1.0)

    def full(*_: Any, **__: Any) -> None:
        raise StoreRefused("no space left")

    with monkeypatch.context() as patched:
        patched.setattr("flows.retuning.fork", full)
        with pytest.raises(StoreRefused):
            night(tuned, at(2))
    assert only(night(tuned, at(2))).outcome == "re-tuned"


@pytest.mark.parametrize("name", ["a", "b", "c", "d"])
def test_after_an_edit_the_next_night_follows_the_later_fire(tmp_path: Path, name: str):
    """Nights of one slot are told apart by a hash, which says nothing of their order."""
    write_target(tmp_path / "t", hipblaslt=BEFORE)
    write_targets(tmp_path, "t", name=name, defaults={"mode": "dry"})
    night(tmp_path, at(1))
    write_target(tmp_path / "t", hipblaslt=AFTER)
    edited = night(tmp_path, at(1, 4)).night
    done = night(tmp_path, at(2))
    assert done.night.started.before == edited.night_id
    assert only(done).outcome == "kept"


def test_a_night_of_the_same_slot_before_an_edit_is_not_left_open(tuned: Path):
    write_target(tuned / "mixtral", hipblaslt=AFTER, gemm_fp8=1.0)

    def interrupted(name: str, function: Any, *args: Any) -> Any:
        if name == "resolve":
            raise KeyboardInterrupt
        return function(*args)

    with pytest.raises(KeyboardInterrupt):
        night(tuned, at(2), stage=interrupted)
    cut_off = store_in(tuned).nights.run_ids()[-1]
    write_targets(tuned, "mixtral", defaults={"top_k": 2})
    with EventLog.open(store_in(tuned).nights, cut_off, writing=True), pytest.raises(RunLocked):
        night(tuned, at(2))
    assert only(night(tuned, at(2))).outcome == "re-tuned"
    assert read_night(store_in(tuned), cut_off).abandoned is not None


def test_a_key_in_the_targets_reaches_no_night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    key = "sk-not-to-be-written-0123456789"
    monkeypatch.setenv("SOME_API_KEY", key)
    write_target(tmp_path / "a")
    write_targets(tmp_path, "a", defaults={"llm": "${SOME_API_KEY}"})
    with pytest.raises(LogError, match="holds a configured secret") as raised:
        night(tmp_path, at(1))
    assert key not in str(raised.value)
    assert store_in(tmp_path).nights.run_ids() == []


def test_a_store_that_takes_no_night_says_so(tuned: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: Any, **__: Any) -> None:
        raise StoreRefused("read-only")

    monkeypatch.setattr(EventLog, "create", full)
    with pytest.raises(StoreRefused, match="read-only"):
        night(tuned, at(2))


def test_a_finding_with_a_key_in_it_is_a_failure_that_stops_nobody(
    tuned: Path, monkeypatch: pytest.MonkeyPatch
):
    """What became a key since: the night before recorded it as a name."""
    monkeypatch.setenv("SOME_API_KEY", "mixtral-pretrain-of-mine")
    write_target(tuned / "other", target_cluster={"name": "other"})
    write_targets(tuned, "mixtral", "other", defaults={"seed_budget": 3})
    judge = nightly_judge.failed

    def looked_at(*arguments: Any) -> Any:
        raise UserError("no")

    def telling(target: Any, error: Exception, before: Any) -> Any:
        found = judge(target, error, before)
        return found.model_copy(update={"notes": ("mixtral-pretrain-of-mine",)})

    monkeypatch.setattr(nightly_judge, "_looked_at", looked_at)
    monkeypatch.setattr(nightly_judge, "failed", telling)
    decided = night(tuned, at(2), stage=but_export).night.decided
    assert decided["mixtral"].outcome == "failed"
    assert decided["mixtral"].failure is not None
    assert decided["mixtral"].failure.error == "LogError"
    assert decided["other"].outcome == "first"


def test_a_night_whose_process_died_before_it_was_anchored_is_anchored_by_the_next_fire(
    tuned: Path, monkeypatch: pytest.MonkeyPatch
):
    def dies(event: Any, envelope: Any) -> None:
        if event.type == "NightFinished":
            raise Killed

    request = NightRequest(
        targets=tuned / "targets.yaml", store=str(tuned / "store"), out_dir=tuned / "out"
    )
    with pytest.raises(Killed):
        run_night(request, listeners=[dies], clock=lambda: at(2))
    done = night(tuned, at(2))
    assert done.already
    report = verify_night(store_in(tuned), done.night.night_id)
    assert report.ok
    assert report.anchored_seq == done.night.head_seq


def test_an_old_slot_leaves_the_newest_report_where_it_is(tuned: Path):
    night(tuned, at(2))
    newest = (tuned / "out" / "report.md").read_bytes()
    old = night(tuned, at(1))
    assert old.already
    assert (tuned / "out" / "report.md").read_bytes() == newest
