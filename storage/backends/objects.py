"""Single objects of a bucket: read, created if absent, changed if unchanged, overwritten, removed.

A request whose answer was lost is sent again, and may then meet its own success: "already exists",
or "changed since". So every conditional write carries a mark of its own (an attribute of the
object), and after such an answer, or none, the object is read back and the marks are compared.
"""

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from schemas.errors import StoreRefused
from storage.backends import AlreadyStored, NotStored
from storage.backends.object_client import Patience, connect
from storage.backends.object_refusals import (
    is_missing_bucket,
    is_worth_repeating,
    leaves_open,
    refusal,
)
from storage.backends.store_url import StoreUrl

if TYPE_CHECKING:
    from obstore import PutMode, UpdateVersion

_MARK = "writer"
"""Attribute of an object: which request wrote it. Letters only: Azure allows no more."""


class Stored(NamedTuple):
    """An object as it was read."""

    data: bytes
    version: "UpdateVersion"
    """What `change` compares."""
    modified: datetime
    """By the server's clock."""
    mark: str | None


class Changed(Exception):
    """The object is no longer the one that was read, or is gone."""


class Objects:
    """The objects below the folder of a bucket.

    Args:
        url: bucket and folder.
        env: names the endpoint; credentials are read by the client itself.
        patience: how long a request may take.

    Raises:
        EnvironmentMissing: `obstore` is not installed.
        StoreRefused: the environment's settings make no client. So does every method when the
            server cannot be reached, denies access, or has no such bucket.
    """

    def __init__(self, url: StoreUrl, env: Mapping[str, str], patience: Patience) -> None:
        self._url = url
        self._client = connect(url, env, patience)
        from obstore import exceptions

        self._taken = exceptions.AlreadyExistsError
        self._stale = exceptions.PreconditionError
        self._failed = (exceptions.BaseError, FileNotFoundError, ValueError)

    def where(self, key: str) -> str:
        """The URL of a key, for messages."""
        return f"{self._url}/{key}"

    def read(self, key: str) -> Stored:
        """The object under `key`.

        Raises:
            NotStored: there is none.
        """
        try:
            answer = self._client.get(key)
            data, meta = bytes(answer.bytes()), answer.meta
        except FileNotFoundError as error:
            if is_missing_bucket(error):
                raise self._refusal(key, "cannot be read", error) from error
            raise NotStored(key) from error
        except self._failed as error:
            raise self._refusal(key, "cannot be read", error) from error
        version = _version(meta["e_tag"], meta["version"])
        mark = answer.attributes.get(_MARK)
        return Stored(data, version, meta["last_modified"], None if mark is None else str(mark))

    def create(self, key: str, data: bytes) -> "UpdateVersion":
        """Store `data` under `key` if nothing is there; the version of the new object.

        Raises:
            AlreadyStored: something is.
        """
        made = self._put(key, data, "create")
        if made is None:
            raise AlreadyStored(key)
        return made

    def change(self, key: str, data: bytes, version: "UpdateVersion") -> "UpdateVersion":
        """Put `data` in the place of the object of `version`; the version of the new one.

        Raises:
            Changed: another object is there by now, or none.
        """
        made = self._put(key, data, version)
        if made is None:
            raise Changed(key)
        return made

    def overwrite(self, key: str, data: bytes) -> None:
        """Store `data` under `key`, whatever is there."""
        try:
            self._client.put(key, data, mode="overwrite", use_multipart=False)
        except self._failed as error:
            raise self._refusal(key, "cannot be written", error) from error

    def copy(self, key: str, new_key: str) -> None:
        """Store what is under `key` under `new_key` too.

        Raises:
            NotStored: there is nothing under `key`.
        """
        try:
            self._client.copy(key, new_key)
        except FileNotFoundError as error:
            if is_missing_bucket(error):
                raise self._refusal(key, "cannot be copied", error) from error
            raise NotStored(key) from error
        except self._failed as error:
            raise self._refusal(key, "cannot be copied", error) from error

    def remove(self, keys: Sequence[str]) -> None:
        """Delete the objects under `keys`, those that are there: S3 takes them all at once."""
        if not keys:
            return
        try:
            self._client.delete(list(keys))
        except FileNotFoundError as error:
            if is_missing_bucket(error):
                raise self._refusal(keys[0], "cannot be removed", error) from error
            # Google and Azure say so of one that was not there, and may have left others.
            for key in keys[:0] if len(keys) == 1 else keys:
                self.remove([key])
        except self._failed as error:
            raise self._refusal(keys[0], "cannot be removed", error) from error

    def below(self, prefix: str) -> tuple[list[str], list[str]]:
        """Names of the objects and of the folders directly below `prefix`, sorted."""
        try:
            found = self._client.list_with_delimiter(prefix)
        except self._failed as error:
            raise self._refusal(prefix, "cannot be listed", error) from error
        objects = (entry["path"] for entry in found["objects"])
        return _last_names(objects), _last_names(found["common_prefixes"])

    def _put(self, key: str, data: bytes, mode: "PutMode") -> "UpdateVersion | None":
        """The version `data` is stored as; None: the condition did not hold."""
        mark = secrets.token_hex(16)
        for last in (False, True):
            try:
                made = self._client.put(
                    key, data, mode=mode, attributes={_MARK: mark}, use_multipart=False
                )
                return _version(made["e_tag"], made["version"])
            except (self._taken, self._stale):
                there = self._seen(key)
                if there and there.mark == mark:
                    return there.version
                # S3 answers 409 while another write of the key is under way, which may then fail.
                if last or not _may_be_put(there, mode):
                    return None
            except self._failed as error:
                refused = self._refusal(key, "cannot be written", error)
                if not leaves_open(error):
                    raise refused from error
                there = self._seen_after(key, refused)
                if there and there.mark == mark:
                    return there.version
                if not _may_be_put(there, mode):
                    return None
                if last or not is_worth_repeating(error):
                    raise refused from error
        raise AssertionError("the second attempt returns or raises")

    def _seen(self, key: str) -> Stored | None:
        try:
            return self.read(key)
        except NotStored:
            return None

    def _seen_after(self, key: str, refused: StoreRefused) -> Stored | None:
        """What is there after a write that failed: it may have arrived all the same.

        Raises:
            StoreRefused: that cannot be seen either.
        """
        try:
            return self._seen(key)
        except StoreRefused:
            raise StoreRefused(
                f"{refused}; it may have been stored all the same", hint=refused.hint
            ) from refused

    def _refusal(self, key: str, what: str, error: Exception) -> StoreRefused:
        return refusal(self._url, self.where(key), what, error)


def _version(e_tag: str | None, version: str | None) -> "UpdateVersion":
    """What a server told of a version: it wants no part that it does not use."""
    told: UpdateVersion = {}
    if e_tag is not None:
        told["e_tag"] = e_tag
    if version is not None:
        told["version"] = version
    return told


def _may_be_put(there: Stored | None, mode: "PutMode") -> bool:
    """Whether the condition of a write still holds."""
    return there is None if mode == "create" else there is not None and there.version == mode


def _last_names(paths: Any) -> list[str]:
    return sorted(path.rpartition("/")[2] for path in paths)
