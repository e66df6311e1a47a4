"""A key in the environment, a .env file or a YAML file is used, and found nowhere afterwards."""

from pathlib import Path

import pytest
import yaml

from tests.end_to_end.files import write_inputs
from tests.end_to_end.made_once import Standing
from tests.flows.command import environment, refold

PLANTED = {
    "environment": "planted-7c1d5e0b-in-the-environment",
    "dotenv": "planted-7c1d5e0b-in-a-dotenv-file",
    "cluster": "planted-7c1d5e0b-in-the-cluster-file",
    "workload": "planted-7c1d5e0b-in-the-workload-file",
    "reference": "planted-7c1d5e0b-behind-a-reference",
}
NEEDLE = b"planted-7c1d5e0b"


def plant(folder: Path) -> None:
    write_inputs(
        folder,
        overrides={
            "micro_batch_size": 1,
            "wandb_api_key": PLANTED["workload"],
            "hf_token": "${MY_HF_TOKEN}",
        },
        agent={"llm": {"model": "openai/gpt-4o", "api_key": PLANTED["cluster"]}},
    )
    (folder / ".env").write_text(f"ANTHROPIC_API_KEY={PLANTED['dotenv']}\n")


def with_keys(env: dict[str, str]) -> dict[str, str]:
    return {
        **env,
        "OPENAI_API_KEY": PLANTED["environment"],
        "MY_HF_TOKEN": PLANTED["reference"],
    }


def leaks(folder: Path, *others: Path) -> list[Path]:
    """Files that hold a planted key, other than those it was planted in."""
    planted_in = {folder / name for name in ("workload.yaml", "cluster.yaml", ".env")}
    everything = [path for top in (folder, *others) for path in top.rglob("*")]
    assert len(everything) > 20
    return [
        path
        for path in everything
        if path.is_file() and path not in planted_in and NEEDLE in path.read_bytes()
    ]


def run_and_look(folder: Path, env: dict[str, str], *watched: Path) -> None:
    files = ("--workload", "workload.yaml", "--target-cluster", "cluster.yaml")
    limits = ("--seed-budget", 4, "--gemm-backend", "tile")
    done = refold("tune", *files, *limits, cwd=folder, env=with_keys(env))
    assert done.returncode == 0, done.stderr
    for verb in ("show", "export", "verify"):
        done_again = refold(verb, "latest", "--json", cwd=folder, env=with_keys(env))
        assert done_again.returncode == 0, done_again.stderr
        assert NEEDLE.decode() not in done_again.stdout + done_again.stderr
    assert NEEDLE.decode() not in done.stdout + done.stderr
    assert (folder / "tuning_runs" / "pod" / "recipe").is_dir()
    assert leaks(folder, *watched) == []


def test_no_key_is_written_by_a_search_in_process(tmp_path: Path):
    plant(tmp_path)
    run_and_look(tmp_path, environment())
    overlay = tmp_path / "tuning_runs" / "pod" / "recipe" / "workload.yaml"
    overrides = yaml.safe_load(overlay.read_text())["modules"]["pre_trainer"]["overrides"]
    assert overrides["hf_token"] == "${MY_HF_TOKEN}", "a reference is no key, and is kept"
    assert "wandb_api_key" not in overrides


@pytest.mark.prefect
def test_no_key_reaches_prefect(standing: Standing, tmp_path: Path):
    plant(tmp_path)
    run_and_look(tmp_path, standing.environment, standing.home)
