"""The URL of a store in an object store: `s3://bucket/prefix`, `gs://…`, `az://container/prefix`."""

import re
from typing import NamedTuple
from urllib.parse import urlsplit

from schemas.errors import UserError, shown

KINDS = {
    "s3": "S3, or what speaks its protocol (AWS_ENDPOINT_URL)",
    "gs": "Google Cloud Storage",
    "az": "Azure Blob Storage",
}
"""Scheme → the service it means."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SEGMENT = re.compile(r"(?!\.{1,2}$)[\w.=+~@ -]+")


class StoreUrl(NamedTuple):
    """A bucket (or container) and the folder in it that is the store."""

    scheme: str
    bucket: str
    prefix: str
    """Without slashes at its ends; empty: the whole bucket."""

    def __str__(self) -> str:
        """As it is named on the command line."""
        return "/".join(filter(None, (f"{self.scheme}://{self.bucket}", self.prefix)))


def is_url(name: str) -> bool:
    """Whether a store's name is a URL of any kind, not a folder."""
    return _SCHEME.match(name) is not None


def parse(name: str) -> StoreUrl:
    """The store that a URL names.

    Raises:
        UserError: it is of another kind, names no bucket, or holds what does not belong in a name;
            a user name or password is never repeated.
    """
    try:
        parts = urlsplit(name)
    except ValueError as error:
        raise UserError(f"store {shown(_SCHEME.findall(name)[0])}…: is not a URL") from error
    scheme = parts.scheme.lower()
    if scheme not in KINDS:
        raise UserError(
            f"store {scheme}://…: is no kind of store",
            hint=f"name a folder, or one of {', '.join(f'{kind}://' for kind in KINDS)}",
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise UserError(
            f"store {scheme}://…: a store's URL is a bucket and a folder, without user, password,"
            " query or fragment",
            hint="keys come from the environment and are never recorded (docs/operations.md)",
        )
    if not _BUCKET.fullmatch(parts.netloc):
        raise UserError(
            f"store {shown(name)}: names no bucket", hint=f"say {scheme}://BUCKET/FOLDER"
        )
    prefix = parts.path.strip("/")
    for segment in prefix.split("/") if prefix else ():
        if not _SEGMENT.fullmatch(segment):
            raise UserError(
                f"store {shown(name)}: {shown(segment)} cannot be the name of a folder",
                hint="letters, digits, spaces and . _ = + ~ @ - may be in it",
            )
    return StoreUrl(scheme, parts.netloc, prefix)
