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
    "default": "planted-7c1d5e0b-as-a-default",
    "address": "planted-7c1d5e0b-in-an-address",
    "list": "planted-7c1d5e0b-in-a-list",
    "cluster reference": "planted-7c1d5e0b-behind-the-cluster-files-reference",
}
NEEDLE = b"planted-7c1d5e0b"


def plant(folder: Path, *, llm_key: str = PLANTED["cluster"]) -> None:
    write_inputs(
        folder,
        overrides={
            "micro_batch_size": 1,
            "wandb_api_key": PLANTED["workload"],
            "hf_token": "${MY_HF_TOKEN}",
            "github_token": f"${{MY_GITHUB_TOKEN:{PLANTED['default']}}}",
            "wandb_base_url": f"https://me:{PLANTED['address']}@wandb.example/",
            "loggers": [{"name": "mine", "api_key": PLANTED["list"]}],
        },
        agent={"llm": {"model": "openai/gpt-4o", "api_key": llm_key, "base_url": NOBODY}},
    )
    (folder / ".env").write_text(f"ANTHROPIC_API_KEY={PLANTED['dotenv']}\n")


NOBODY = "http://127.0.0.1:9/v1"
"""An address at which no model answers: the search ends with its seeds."""


def with_keys(env: dict[str, str]) -> dict[str, str]:
    return {
        **env,
        "OPENAI_API_KEY": PLANTED["environment"],
        "MY_HF_TOKEN": PLANTED["reference"],
        "MY_LLM_API_KEY": PLANTED["cluster reference"],
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


def search(folder: Path, env: dict[str, str], *options: str) -> None:
    files = ("--workload", "workload.yaml", "--target-cluster", "cluster.yaml")
    limits = ("--seed-budget", 4, "--gemm-backend", "tile")
    done = refold("tune", *files, *limits, *options, cwd=folder, env=with_keys(env))
    assert done.returncode == 0, done.stderr
    assert NEEDLE.decode() not in done.stdout + done.stderr


def run_and_look(
    folder: Path, env: dict[str, str], *watched: Path, options: tuple[str, ...] = ()
) -> None:
    search(folder, env, *options)
    pair = ("workload.yaml", "cluster.yaml")
    more = (("show", "latest", "--events"), ("check", *pair), ("signature", *pair))
    reading = [(verb, "latest") for verb in ("show", "export", "verify", "resume")]
    for arguments in (*reading, *more, ("runs",)):
        done_again = refold(*arguments, "--json", cwd=folder, env=with_keys(env))
        assert done_again.returncode == 0, done_again.stderr
        assert NEEDLE.decode() not in done_again.stdout + done_again.stderr
    assert (folder / "tuning_runs" / "pod" / "recipe").is_dir()
    assert leaks(folder, *watched) == []


def test_no_key_is_written_by_a_search_in_process(tmp_path: Path):
    plant(tmp_path)
    run_and_look(tmp_path, environment())
    overlay = tmp_path / "tuning_runs" / "pod" / "recipe" / "workload.yaml"
    overrides = yaml.safe_load(overlay.read_text())["modules"]["pre_trainer"]["overrides"]
    assert overrides["hf_token"] == "${MY_HF_TOKEN}", "a reference is no key, and is kept"
    assert overrides["github_token"] == "${MY_GITHUB_TOKEN:}"
    assert overrides["wandb_base_url"] == "https://***@wandb.example/"
    assert overrides["loggers"] == [{"name": "mine"}]
    assert "wandb_api_key" not in overrides


def test_no_key_that_the_cluster_file_refers_to_is_written(tmp_path: Path):
    plant(tmp_path, llm_key="${MY_LLM_API_KEY}")
    search(tmp_path, environment(), "--seed-only")
    assert leaks(tmp_path) == []


@pytest.mark.prefect
def test_no_key_reaches_prefect(standing: Standing, tmp_path: Path):
    plant(tmp_path)
    run_and_look(tmp_path, standing.environment, standing.home, options=("--seed-only",))
