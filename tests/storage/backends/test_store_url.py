"""What a URL may say, and that no secret in one is repeated."""

import pytest

from schemas.errors import StoreRefused, UserError
from storage import Store
from storage.backends.store_url import StoreUrl, is_url, parse


@pytest.mark.parametrize(
    ("name", "url", "again"),
    [
        ("s3://bucket", StoreUrl("s3", "bucket", ""), "s3://bucket"),
        ("s3://bucket/", StoreUrl("s3", "bucket", ""), "s3://bucket"),
        ("S3://bucket/a/b/", StoreUrl("s3", "bucket", "a/b"), "s3://bucket/a/b"),
        ("gs://b.k-t_1/team=x/refold", StoreUrl("gs", "b.k-t_1", "team=x/refold"), None),
        ("az://container/müller 1", StoreUrl("az", "container", "müller 1"), None),
    ],
)
def test_a_url_is_a_bucket_and_a_folder(name: str, url: StoreUrl, again: str | None) -> None:
    assert is_url(name)
    assert parse(name) == url
    assert str(url) == (again or name)
    assert parse(str(url)) == url


@pytest.mark.parametrize("name", ["./.refold", "s3:/bucket", "a/b", "/s3://x", "C:", "~"])
def test_a_folder_is_no_url(name: str) -> None:
    assert not is_url(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("file:///x", "file://…: is no kind of store"),
        ("https://bucket.s3.amazonaws.com/x", "https://…: is no kind of store"),
        ("s3://", "names no bucket"),
        ("s3:///folder", "names no bucket"),
        ("s3://bu cket/x", "names no bucket"),
        ("s3://bucket/a//b", "'' cannot be the name of a folder"),
        ("s3://bucket/../other", "'..' cannot be the name of a folder"),
        ("s3://bucket/./x", "'.' cannot be the name of a folder"),
        ("s3://bucket/a*b", "'a*b' cannot be the name of a folder"),
        ("s3://bucket/a%2Fb", "'a%2Fb' cannot be the name of a folder"),
        ("s3://[::1/x", "is not a URL"),
    ],
)
def test_what_is_no_store_is_refused_in_one_line(name: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        Store.locate(name, {})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "s3://AKIAUSER:hunter2hunter2@bucket/x",
        "s3://hunter2hunter2@bucket/x",
        "az://container/x?sv=2024&sig=hunter2hunter2",
        "s3://bucket/x#hunter2hunter2",
        "https://user:hunter2hunter2@host/x",
    ],
)
def test_a_secret_in_a_url_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(UserError) as caught:
        Store.locate(None, {"REFOLD_STORE": name})
    assert "hunter2" not in f"{caught.value} {caught.value.hint}"


def test_azure_without_an_account_says_which_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StoreRefused) as caught:
        Store.locate("az://container/x", {})
    assert caught.value.hint is not None
    assert "AZURE_STORAGE_ACCOUNT_NAME" in caught.value.hint
