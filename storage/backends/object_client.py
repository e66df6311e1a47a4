"""The connection to an object store: `obstore`, with bounded patience.

Credentials, region and endpoint are the environment's own affair: the standard variables of AWS,
Google and Azure are read by `obstore`, and nothing here keeps or prints them.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from schemas.errors import EnvironmentMissing, StoreRefused
from storage.backends.object_refusals import refusal
from storage.backends.store_url import StoreUrl

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store

    Client = S3Store | GCSStore | AzureStore

OBSTORE = "obstore>=0.12,<1"
"""The extra `objectstore` of pyproject.toml."""

_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": (),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_ALLOW_HTTP = {"s3": "AWS_ALLOW_HTTP", "gs": "GOOGLE_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}


class Patience(NamedTuple):
    """How long one request may take, and how often it is sent again."""

    connect_s: float = 5.0
    request_s: float = 15.0
    retries: int = 6
    retry_until_s: float = 15.0
    """No attempt begins later than this after the first one."""


def connect(url: StoreUrl, env: Mapping[str, str], patience: Patience) -> "Client":
    """A client for the store at `url`; nothing is sent yet.

    Raises:
        EnvironmentMissing: `obstore` is not installed.
        StoreRefused: the environment's settings make no client.
    """
    try:
        from obstore.exceptions import BaseError
        from obstore.store import AzureStore, GCSStore, S3Store
    except ImportError as error:
        raise EnvironmentMissing(
            f"{url}: stores in an object store need obstore, which is not installed",
            hint=f"pip install '{OBSTORE}'",
        ) from error
    _refuse_control_characters(url, env)
    makers: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
    options: dict[str, Any] = {
        "timeout": timedelta(seconds=patience.request_s),
        "connect_timeout": timedelta(seconds=patience.connect_s),
    }
    if _is_plain(url.scheme, env):
        options["allow_http"] = True
    retries = {
        "max_retries": patience.retries,
        "retry_timeout": timedelta(seconds=patience.retry_until_s),
    }
    try:
        made: Client = makers[url.scheme](
            url.bucket,
            prefix=url.prefix or None,
            client_options=options,
            retry_config=retries,
        )
    except (BaseError, ValueError) as error:
        raise refusal(url, str(url), "cannot be reached", error) from error
    return made


def _is_plain(scheme: str, env: Mapping[str, str]) -> bool:
    """Whether the environment asks for no TLS, by name or by the endpoint it names."""
    named = next((env[name] for name in _ENDPOINTS[scheme] if env.get(name)), "")
    asked = env.get(_ALLOW_HTTP[scheme], "").lower() in ("true", "1")
    return asked or named.lower().startswith("http://")


def _refuse_control_characters(url: StoreUrl, env: Mapping[str, str]) -> None:
    """A line break at the end of a token, as a file has it, would be a crash inside `obstore`."""
    for name, value in env.items():
        if name.startswith(("AWS_", "AZURE_")) and not value.isprintable():
            raise StoreRefused(
                f"{url}: the environment variable {name} holds a line break or another character"
                " that no header can have",
                hint=f"set {name} again without it",
            )
