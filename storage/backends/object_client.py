"""The connection to an object store: `obstore` with bounded patience, and its errors in one line.

Credentials, region and endpoint are the environment's own affair: the standard variables of AWS,
Google and Azure are read by `obstore`, and nothing here looks at them, keeps or prints them.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from schemas.errors import EnvironmentMissing, StoreRefused
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
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN)",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
_MISSING_BUCKET = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")


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


def is_missing_bucket(error: Exception) -> bool:
    """Whether a "not found" is about the bucket and not about a key in it."""
    return any(text in str(error) for text in _MISSING_BUCKET)


def leaves_open(error: Exception) -> bool:
    """Whether a request that failed may have been carried out: no answer, or a server's failure."""
    text = str(error)
    return "HTTP error" in text or re.search(r"status code: 5\d\d", text) is not None


def is_worth_repeating(error: Exception) -> bool:
    """Whether `obstore` gave up at once: it repeats no write whose answer was lost."""
    text = str(error)
    return "HTTP error" in text and "kind: Connect" not in text


def refusal(url: StoreUrl, where: str, what: str, error: Exception) -> StoreRefused:
    """What `error` of obstore comes to, in one line: `where`: `what`: why.

    Its own text has several lines, with the request's URL and the server's XML.
    """
    said, _, internals = str(error).partition("\n\nDebug source")
    reason, hint = _reason(url, said, internals)
    return StoreRefused(f"{where}: {what}: {reason}", hint=hint)


def _reason(url: StoreUrl, said: str, internals: str) -> tuple[str, str]:
    status = re.search(r"status code: (\d{3})", said)
    code = re.search(r"<Code>(\w+)</Code>", said)
    answer = " ".join(filter(None, (status and f"HTTP {status[1]}", code and code[1])))
    credentials = f"set {_CREDENTIALS[url.scheme]}"
    if "169.254.169.254" in said or "token request" in said or "MissingAccount" in internals:
        return "there are no credentials in the environment", credentials
    if any(text in said for text in _MISSING_BUCKET):
        return f"there is no bucket {url.bucket}", "make it first, or name another"
    if status and status[1] in ("401", "403"):
        return f"access is denied ({answer})", f"{credentials} to a key that may do this"
    if answer:
        return f"the server answers {answer}", "try again later; what is stored is unharmed"
    if "BareRedirect" in internals:
        return "the bucket is in another region", "set AWS_REGION"
    if "kind: Timeout" in internals:
        return "no answer in time", "try again later; what is stored is unharmed"
    if "kind: Connect" in internals:
        host = re.search(r"https?://[^/\s]+", said)
        return (
            f"no connection to {host[0] if host else 'the server'}",
            "check the network, and AWS_ENDPOINT_URL if it is set",
        )
    if "HTTP error" in said:
        return "the connection broke", "try again later; what is stored is unharmed"
    return said.splitlines()[0][:200] if said else "no reason was given", credentials
