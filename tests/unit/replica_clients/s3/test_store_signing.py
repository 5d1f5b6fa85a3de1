"""Signed URLs, with which plain HTTP reads an object."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("boto3")

from litelog.errors import StoreError
from litelog.stores.object_store import Signing
from litelog.stores.registry import open_store
from replica_clients.s3.store import S3Store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders.servers import S3Server

KEYS = {"access-key-id": "id", "secret-access-key": "secret", "region": "eu-central-1"}
LOCAL = {**KEYS, "endpoint": "http://127.0.0.1:9"}


def signed(**options: str) -> str | None:
    store = open_store("s3://bucket/log", options)
    assert isinstance(store, Signing)
    return store.sign("a", 60)


def test_a_signed_url_reads_an_object_and_a_range_of_it(server: S3Server) -> None:
    store = open_store(f"s3://{server.make_bucket()}/a folder", server.options())
    assert isinstance(store, S3Store)
    store.put("an+object", [b"0123456789"])
    url = store.sign("an+object", 60)
    assert url is not None
    with urlopen(url) as answer:
        assert answer.read() == b"0123456789"
    with urlopen(Request(url, headers={"Range": "bytes=2-4"})) as answer:
        assert answer.read() == b"234"
        assert answer.headers["Content-Range"] == "bytes 2-4/10"
    store.close()


def test_it_has_a_signature_of_version_4_and_an_end() -> None:
    url = signed(**LOCAL)
    assert url is not None
    assert "X-Amz-Algorithm=AWS4-HMAC-SHA256" in url
    assert "X-Amz-Expires=60" in url
    assert "secret" not in url
    assert "X-Amz" not in str(signed(endpoint="http://127.0.0.1:9", anonymous="true"))


def test_there_is_none_where_a_get_needs_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"k" * 32)
    (tmp_path / "authority.pem").touch()
    assert signed(**LOCAL, **{"sse-customer-key-file": str(tmp_path / "key")}) is None
    assert signed(**KEYS, endpoint="https://127.0.0.1:9", **{"ca-bundle": str(tmp_path / "authority.pem")}) is None
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:10")
    monkeypatch.setenv("no_proxy", "")
    assert signed(**LOCAL) is None


def test_without_credentials_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StoreError, match="no credentials"):
        signed(endpoint="http://127.0.0.1:9", region="eu-central-1")
