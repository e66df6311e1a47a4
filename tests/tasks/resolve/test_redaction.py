from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.inputs import secrets_in, secrets_in_files
from tasks.resolve.redaction import (
    as_reference,
    is_secret_key,
    is_secret_variable,
    redact,
    redact_text,
    secret_paths,
    secret_references,
    without_defaults,
    without_user,
)


@pytest.mark.parametrize(
    "key",
    [
        *("api_key", "apiKey", "API_KEY", "apikey", "openai_api_key", "key", "private_key"),
        *("token", "hf_token", "access_token", "authToken", "wandb_api_token"),
        *("github_token", "GITHUB_TOKEN", "aws_session_token", "slack_bot_token"),
        *("secret", "client_secret", "db_password", "password", "credentials", "keys"),
    ],
)
def test_keys_of_secrets(key: str) -> None:
    assert is_secret_key(key)


@pytest.mark.parametrize(
    "key",
    [
        *("max_tokens", "max_llm_tokens", "tokenizer_model", "moe_token_dispatcher_type"),
        *("eod_token", "pad_token", "num_query_groups", "monkey", "keyboard", "key_size"),
        *("tokens", "train_tokens", "loss_per_token", "", "primary_key"),
    ],
)
def test_keys_of_settings(key: str) -> None:
    assert not is_secret_key(key)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "GITHUB_TOKEN",
            "OPENAI_KEY",
            "AZURE_KEY",
            "AWS_SESSION_TOKEN",
            "DB_PASS",
            "OPENAI_KEY_2",
        ),
        *("AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "DB_PASS_FILE", "SSH_PASSPHRASE", "GITHUB_PAT"),
        *("LLM_API_KEY", "MY_SECRET", "ADMIN_PWD", "hf_token"),
    ],
)
def test_variables_of_secrets(name: str) -> None:
    assert is_secret_variable(name)


@pytest.mark.parametrize(
    "name",
    [
        *("TOKENIZER_PATH", "PRIMUS_TOKENIZED_DATA_PATH", "EOD_TOKEN", "PAD_TOKEN", "MAX_TOKENS"),
        *("PRIMUS_EXP_NAME", "KEY_SIZE", "MONKEY", "BYPASS", "PATH", "NUM_TOKENS", "", "1", "PWD"),
    ],
)
def test_variables_of_settings(name: str) -> None:
    assert not is_secret_variable(name)


def test_the_environments_secrets_are_known_by_value() -> None:
    env = {"AZURE_KEY": "azure-value", "DB_PASS": "db-value", "PAD_TOKEN": "<pad>", "EMPTY_KEY": ""}
    found = {secret.get_secret_value() for secret in secrets_in(env)}
    assert found == {"azure-value", "db-value"}


def test_a_files_secrets_are_known_while_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(
        "agent:\n  llm:\n    api_key: written-out\n    auth_token: ${WHERE}\n    max_tokens: 5\n"
    )
    (tmp_path / "broken.yaml").write_text("agent: [")
    paths = [str(tmp_path / name) for name in ("cluster.yaml", "broken.yaml", "gone.yaml")]
    found = secrets_in_files(paths, {"WHERE": "from-the-environment"})
    assert {secret.get_secret_value() for secret in found} == {
        "written-out",
        "from-the-environment",
    }


def test_a_variable_of_a_secret_stays_a_reference() -> None:
    settings = {"wandb": {"entity": "${TEAM:x}", "login": "${AZURE_KEY}"}}
    assert list(secret_references(settings)) == [(("wandb", "login"), "${AZURE_KEY}")]


def test_secrets_are_replaced_at_any_depth() -> None:
    value = {"agent": {"llm": {"api_key": "sk-1", "max_tokens": 5}}, "list": [{"token": ["x"]}]}
    assert redact(value) == {
        "agent": {"llm": {"api_key": "***", "max_tokens": 5}},
        "list": [{"token": "***"}],
    }
    assert redact({"api_key": None}) == {"api_key": None}


def test_secrets_inside_text_are_replaced() -> None:
    assert redact_text("use sk-ant-0123456789 please") == "use *** please"
    assert redact_text("https://me:pass@host/v1") == "https://***@host/v1"
    assert redact_text("http://localhost:11434/v1") == "http://localhost:11434/v1"


@given(st.text(alphabet="abcdefghij0123456789", min_size=8, max_size=30))
def test_a_providers_key_never_survives(key: str) -> None:
    assert key not in redact_text(f"see sk-{key}!")


def test_a_secret_stays_only_as_a_reference_without_its_default() -> None:
    assert as_reference("${HF_TOKEN}") == "${HF_TOKEN}"
    assert as_reference("${HF_TOKEN:hf_real}") == "${HF_TOKEN:}"
    assert as_reference("hf_real${EMPTY:}") is None
    assert as_reference("hf_real") is None
    assert as_reference(7) is None


def test_defaults_of_other_variables_are_no_secrets() -> None:
    text = "${TEAM:amd}/${DB_PASSWORD:planted}"
    assert without_defaults(text) == "${TEAM:amd}/${DB_PASSWORD:}"
    assert redact_text(text) == "${TEAM:amd}/${DB_PASSWORD:}"


def test_references_in_an_address_stay() -> None:
    assert without_user("https://me:planted@host/x") == "https://***@host/x"
    assert without_user("https://${ME}:${DB_PASS}@host/x") == "https://${ME}:${DB_PASS}@host/x"
    assert without_user("https://host/a@b") == "https://host/a@b"


def test_secrets_in_lists_are_found() -> None:
    settings = {"loggers": [{"api_key": "planted"}, "${AZURE_KEY}"]}
    assert list(secret_paths(settings)) == [("loggers", 0, "api_key")]
    assert list(secret_references(settings)) == [(("loggers", 1), "${AZURE_KEY}")]
