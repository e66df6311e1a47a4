"""What an error of `obstore` means: what became of the request, and one line for the reader.

Its own text has several lines, with the request's URL and the server's XML; it is taken apart here
and nowhere else.
"""

import re

from schemas.errors import StoreRefused
from storage.backends.store_url import StoreUrl

_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN)",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
_USER_INFO = re.compile(r"//[^/\s@]*@")
_MISSING_BUCKET = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")


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
    return "HTTP error" in text and "kind: Connect" not in text and "builder error" not in text


def refusal(url: StoreUrl, where: str, what: str, error: Exception) -> StoreRefused:
    """What `error` comes to, in one line: `where`: `what`: why."""
    said, _, internals = _USER_INFO.sub("//", str(error)).partition("\n\nDebug source")
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
    if "builder error" in said:
        return "its endpoint is not a URL of a server", "look at AWS_ENDPOINT_URL"
    if "HTTP error" in said:
        return "the connection broke", "try again later; what is stored is unharmed"
    return said.splitlines()[0][:200] if said else "no reason was given", credentials
