"""Each option of an S3 replica appears in requests, whether a URL or a configuration file sets it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c

pytest.importorskip("boto3")

from litelog.config import load_config
from litelog.errors import StoreError
from litelog.stores.registry import open_store as open_by_url
from tests.builders.servers import Answer, Request, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from litelog.stores.object_store import ObjectStore

    Way = Callable[[str, dict[str, str]], ObjectStore]

KEY_ID, SECRET = "AKIDFROMTHEENVIRONMENT", "secret-of-the-environment"
REGION = "eu-west-1"


def encoded(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Set only credentials in the environment. Returns the folder for files that configure more."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


def from_query(url: str, options: dict[str, str]) -> ObjectStore:
    return open_by_url(f"{url}?{'&'.join(f'{name}={value}' for name, value in options.items())}")


def from_file(url: str, options: dict[str, str]) -> ObjectStore:
    entry = {"path": "/log", "replicas": [{"url": url, "options": options}]}
    (replica,) = load_config(json.dumps({"logs": [entry]}), {}).logs[0].replicas
    return open_by_url(replica.url, replica.options)


@pytest.fixture(params=[from_query, from_file], ids=["query", "file"])
def way(request: pytest.FixtureRequest) -> Way:
    return request.param  # type: ignore[no-any-return]


def sent(way: Way, **options: str) -> Request:
    """The one request that a put of ``key`` sends."""
    named = {name.replace("_", "-"): value for name, value in options.items()}
    with ScriptedServer(lambda _: Answer()) as server:
        store = way("s3://bucket/logs", {"endpoint": server.endpoint, "region": REGION, **named})
        store.put("key", [b"x"])
        store.close()
    (request,) = server.requests
    return request


def scope(request: Request) -> tuple[str, str]:
    """The access key and the region of a request's signature."""
    match = re.search(r"Credential=([^/]+)/\d+/([^/]+)/s3/aws4_request", request.headers["authorization"])
    assert match
    return match[1], match[2]


def test_credentials_are_found_by_the_default_chain_and_region_is_as_asked(way: Way) -> None:
    assert scope(sent(way)) == (KEY_ID, REGION)
    assert scope(sent(way, region="ap-south-1")) == (KEY_ID, "ap-south-1")


def test_a_profile_brings_its_credentials_and_its_region(way: Way, environment: Path) -> None:
    (environment / "config").write_text("[profile other]\nregion = sa-east-1\n")
    (environment / "credentials").write_text("[other]\naws_access_key_id = AKOTHER\naws_secret_access_key = s\n")
    with ScriptedServer(lambda _: Answer()) as server:
        store = way("s3://bucket/logs", {"endpoint": server.endpoint, "profile": "other"})
        store.put("key", [b"x"])
        store.close()
    assert scope(server.requests[0]) == ("AKOTHER", "sa-east-1")


def test_credentials_may_be_options_of_the_configuration_file() -> None:
    options = {"access_key_id": "AKOPTION", "secret_access_key": "s", "session_token": "the-token"}
    request = sent(from_file, **options)
    assert scope(request)[0] == "AKOPTION"
    assert request.headers["x-amz-security-token"] == "the-token"


def test_anonymous_requests_are_not_signed_even_with_credentials_in_the_environment(way: Way) -> None:
    with ScriptedServer(lambda _: Answer(body=b"x")) as server:
        store = way("s3://bucket/logs", {"endpoint": server.endpoint, "region": REGION, "anonymous": "true"})
        with store.open("key") as stream:
            assert stream.read() == b"x"
        store.close()
    assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize(
    ("options", "headers"),
    [
        ({"storage_class": "STANDARD_IA"}, {"x-amz-storage-class": "STANDARD_IA"}),
        ({"sse": "AES256"}, {"x-amz-server-side-encryption": "AES256"}),
        (
            {"sse": "aws:kms", "sse_kms_key_id": "alias/mine"},
            {
                "x-amz-server-side-encryption": "aws:kms",
                "x-amz-server-side-encryption-aws-kms-key-id": "alias/mine",
            },
        ),
        ({"checksum": "md5"}, {"content-md5": encoded(hashlib.md5(b"x").digest())}),
        ({"checksum": "sha256"}, {"x-amz-checksum-sha256": encoded(hashlib.sha256(b"x").digest())}),
        ({"checksum": "crc32c"}, {"x-amz-checksum-crc32c": encoded(crc32c(b"x").to_bytes(4, "big"))}),
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_are_headers_of_a_put(way: Way, options: dict[str, str], headers: dict[str, str]) -> None:
    request = sent(way, **options)
    assert {name: request.headers.get(name) for name in headers} == headers
    assert request.headers["if-none-match"] == "*"


def test_headers_of_ones_own_go_with_every_request() -> None:
    for way, headers in ((from_query, "X-Tenant:blue,X-Other:1"), (from_file, {"X-Tenant": "blue", "X-Other": "1"})):
        request = sent(way, headers=headers)  # type: ignore[arg-type]
        assert (request.headers["x-tenant"], request.headers["x-other"]) == ("blue", "1")


def test_a_customer_key_is_sent_from_its_file(way: Way, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(bytes(range(32)))
    request = sent(way, sse_customer_key_file=str(tmp_path / "key"))
    assert request.headers["x-amz-server-side-encryption-customer-key"] == encoded(bytes(range(32)))
    assert request.headers["x-amz-server-side-encryption-customer-algorithm"] == "AES256"


@pytest.mark.parametrize(
    ("options", "url"),
    [
        ({}, "http://store.example/bucket/logs/key"),
        ({"path-style": "true"}, "http://store.example/bucket/logs/key"),
        ({"path-style": "false"}, "http://bucket.store.example/logs/key"),
    ],
    ids=["default", "path", "virtual"],
)
def test_the_bucket_is_in_the_path_or_in_the_host(
    way: Way, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], url: str
) -> None:
    """A forward proxy receives whole URLs, so no name is looked up."""
    with ScriptedServer(lambda _: Answer()) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.endpoint)
        monkeypatch.setenv("NO_PROXY", "")
        store = way("s3://bucket/logs", {"endpoint": "http://store.example", "region": REGION, **options})
        store.put("key", [b"x"])
        store.close()
    assert [request.path for request in proxy.requests] == [url]
    assert proxy.requests[0].headers["host"] == url.split("/")[2]


def test_amazon_itself_is_asked_over_tls_at_the_bucket_of_its_region(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(lambda _: Answer(403)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.endpoint)
        monkeypatch.setenv("NO_PROXY", "")
        store = way("s3://bucket/logs", {"region": "eu-central-1"})
        with pytest.raises(StoreError):
            store.put("key", [b"x"])
        store.close()
    asked = [(request.method, request.path) for request in proxy.requests]
    assert asked == [("CONNECT", "bucket.s3.eu-central-1.amazonaws.com:443")], "exactly one attempt, by TLS"


def test_a_store_that_takes_no_connection_is_given_up(way: Way) -> None:
    with ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = full.getsockname()
        for _ in range(8):  # these connections fill its queue, so later ones are not answered
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        endpoint = f"http://127.0.0.1:{address[1]}"
        store = way("s3://bucket/logs", {"endpoint": endpoint, "region": REGION, "connect-timeout": "200ms"})
        with pytest.raises(StoreError, match=r"(?i)connect timeout") as caught:
            store.put("key", [b"x"])
        store.close()
    assert caught.value.retryable
