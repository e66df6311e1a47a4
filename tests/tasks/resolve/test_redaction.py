import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.resolve.redaction import is_secret_key, redact, redact_text


@pytest.mark.parametrize(
    "key",
    [
        *("api_key", "apiKey", "API_KEY", "apikey", "openai_api_key", "key", "private_key"),
        *("token", "hf_token", "access_token", "authToken", "wandb_api_token"),
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
        *("tokens", "train_tokens", "", "primary_key"),
    ],
)
def test_keys_of_settings(key: str) -> None:
    assert not is_secret_key(key)


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
