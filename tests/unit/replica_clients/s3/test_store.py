"""The requests of the S3 store: conditions, digests, encryption, batches, parts; and refusals of these."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("boto3")

from hypothesis import given
from hypothesis import strategies as st

from litelog.errors import ExistsError, StoreError
from litelog.stores.object_store import ObjectInfo
from litelog.system.buffers import Room
from replica_clients.s3 import S3Store, open_store
from replica_clients.s3.clients import CONTINUE_BYTES
from replica_clients.s3.settings import read_settings
from replica_clients.s3.upload import PARTS_AT_ONCE, Parts
from tests.builders.servers import CREDENTIALS, REGION, Answer, Request, ScriptedServer, error_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BODY = b"0123456789" * 7


def options(server: ScriptedServer, **more: object) -> dict[str, object]:
    return {"endpoint": server.endpoint, "region": REGION, **CREDENTIALS, **more}


def sent(body: bytes = BODY, **more: object) -> Request:
    """The request that a put sends."""
    with ScriptedServer(lambda _: Answer()) as server:
        store = open_store("s3://bucket/logs", options(server, **more))
        store.put("a/key", [body[:50], bytearray(body[50:60]), memoryview(body)[60:]])
        store.close()
        (request,) = server.requests
    return request


def encoded(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def test_a_put_is_one_request_with_a_condition_and_a_digest() -> None:
    request = sent()
    assert (request.method, request.path, request.body) == ("PUT", "/bucket/logs/a/key", BODY)
    assert request.headers["if-none-match"] == "*"
    assert request.headers["x-amz-content-sha256"] == hashlib.sha256(BODY).hexdigest()
    assert sent(b"123456789").headers["x-amz-checksum-crc32c"] == "4waSgw=="  # RFC 3720's
    assert request.headers["x-amz-sdk-checksum-algorithm"] == "CRC32C"  # buckets with a default retention ask for it
    assert re.search(r" litelog/[0-9]", request.headers["user-agent"])
    for header in ("expect", "transfer-encoding", "content-encoding", "x-amz-trailer"):
        assert header not in request.headers


def test_only_a_large_body_waits_until_it_is_asked_for() -> None:
    assert "expect" not in sent(bytes(CONTINUE_BYTES)).headers
    large = sent(bytes(CONTINUE_BYTES + 1))
    assert large.headers["expect"] == "100-continue"
    assert large.body == bytes(CONTINUE_BYTES + 1)


def test_other_digests_are_sent_where_they_are_asked_for() -> None:
    md5 = sent(checksum="md5").headers
    assert md5["content-md5"] == encoded(hashlib.md5(BODY).digest())
    assert not any("checksum" in name for name in md5)
    assert sent(checksum="sha256").headers["x-amz-checksum-sha256"] == encoded(hashlib.sha256(BODY).digest())


def test_a_put_that_may_replace_has_no_condition() -> None:
    with ScriptedServer(lambda _: Answer()) as server:
        open_store("s3://bucket", options(server)).put("key", [BODY], create_only=False)
    assert "if-none-match" not in server.requests[0].headers


def test_storage_class_encryption_and_headers_are_sent(tmp_path: Path) -> None:
    asked = {
        "storage-class": "standard_ia",
        "sse": "aws:kms",
        "sse-kms-key-id": "my-key",
        "headers": {"X-Tenant": "blue"},
    }
    headers = sent(**asked).headers
    assert headers["x-amz-storage-class"] == "STANDARD_IA"
    assert headers["x-amz-server-side-encryption"] == "aws:kms"
    assert headers["x-amz-server-side-encryption-aws-kms-key-id"] == "my-key"
    assert headers["x-tenant"] == "blue"
    assert "x-tenant" in headers["authorization"], "a header that is not signed may be changed on the way"
    assert sent(sse="AES256").headers["x-amz-server-side-encryption"] == "AES256"


def test_every_request_for_bytes_sends_the_customer_key(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(bytes(range(32)))
    with ScriptedServer(lambda request: Answer(body=b"" if request.method == "PUT" else b"x")) as server:
        store = open_store("s3://bucket", options(server, **{"sse-customer-key-file": str(tmp_path / "key")}))
        store.put("key", [b"x"])
        store.open("key").close()
    for request in server.requests:
        assert request.headers["x-amz-server-side-encryption-customer-key"] == encoded(bytes(range(32)))
    assert len(server.requests) == 2


def test_requests_share_connections() -> None:
    with ScriptedServer(lambda request: Answer(body=b"" if request.method == "PUT" else BODY)) as server:
        store = open_store("s3://bucket", options(server))
        for number in range(20):
            store.put(f"key/{number}", [BODY])
            with store.open(f"key/{number}") as stream:
                assert stream.read(30) + stream.read(1000) == BODY
        assert server.connections == 1


def test_threads_share_one_client() -> None:
    with ScriptedServer(lambda _: Answer()) as server:
        store = open_store("s3://bucket", options(server))
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: store.put(f"key/{number}", [BODY]), range(100)))
        assert sorted(request.path for request in server.requests) == sorted(f"/bucket/key/{n}" for n in range(100))
        assert server.connections <= 8


def page(keys: list[str], token: str = "") -> Answer:
    entries = "".join(f"<Contents><Key>{key}</Key><Size>{len(key)}</Size></Contents>" for key in keys)
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    truncated = str(bool(token)).lower()
    body = f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{more}{entries}</ListBucketResult>"
    return Answer(body=body.encode())


def test_a_listing_asks_for_pages_as_it_is_consumed() -> None:
    pages = [page(["p/a", "p/b"], "t1"), page(["p/c"], "t2"), page(["p/d"])]
    with ScriptedServer(lambda _: pages[len(server.requests) - 1]) as server:
        listing = open_store("s3://bucket/p", options(server)).list("", "0")
        assert server.requests == []
        assert next(listing) == ObjectInfo("a", 3)
        assert len(server.requests) == 1
        assert [info.key for info in listing] == ["b", "c", "d"]
    queries = [request.path for request in server.requests]
    assert all("prefix=p%2F" in query and "start-after=p%2F0" in query for query in queries)
    assert ["continuation-token" in query for query in queries] == [False, True, True]


def test_list_omits_placeholders_and_keys_before_the_start() -> None:
    with ScriptedServer(lambda _: page(["p/", "p/a", "p/b/", "p/c"])) as server:
        store = open_store("s3://bucket/p", options(server))
        assert [info.key for info in store.list("", "a")] == ["c"]


@pytest.mark.parametrize("token", ["", "same"])
def test_a_listing_that_never_ends_is_an_error(token: str) -> None:
    body = (
        page(["a"], "same").body if token else b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"
    )
    with ScriptedServer(lambda _: Answer(body=body)) as server, pytest.raises(StoreError, match="repeats itself"):
        list(open_store("s3://bucket", options(server)).list(""))
    assert len(server.requests) <= 2


def test_deletes_go_in_batches_with_a_digest() -> None:
    with ScriptedServer(lambda _: Answer(body=b"<DeleteResult/>")) as server:
        open_store("s3://bucket/p", options(server)).delete(f"key/{number}" for number in range(2001))
    batches, single = server.requests[:2], server.requests[2]
    for request in batches:
        assert request.path == "/bucket?delete"
        assert request.headers["content-md5"] == encoded(hashlib.md5(request.body).digest())
        assert not any(name.startswith("x-amz-checksum") for name in request.headers)
        assert request.body.count(b"<Key>p/key/") == 1000
    assert (single.method, single.path) == ("DELETE", "/bucket/p/key/2000")


@pytest.mark.parametrize(
    "refusal",
    [error_answer(501, "NotImplemented"), error_answer(400, "MalformedXML"), error_answer(405, "MethodNotAllowed")],
)
def test_a_store_without_batches_is_asked_for_one_only_once(refusal: Answer) -> None:
    with ScriptedServer(lambda request: refusal if request.method == "POST" else Answer(204)) as server:
        store = open_store("s3://bucket", options(server))
        store.delete(["a", "b"])
        store.delete(["c", "d"])
    asked = [(request.method, request.path) for request in server.requests]
    assert asked == [("POST", "/bucket?delete"), *(("DELETE", f"/bucket/{key}") for key in "abcd")]


def test_a_key_that_a_batch_could_not_delete_is_named() -> None:
    entry = "<Error><Key>p/b</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
    said = Answer(
        body=f"<DeleteResult><Error><Key>p/a</Key><Code>NoSuchKey</Code></Error>{entry}</DeleteResult>".encode()
    )
    with ScriptedServer(lambda _: said) as server:
        store = open_store("s3://bucket/p", options(server))
        with pytest.raises(StoreError, match=r"delete b: .*grant s3:DeleteObject") as caught:
            store.delete(["a", "b"])
    assert not caught.value.retryable


@given(st.lists(st.binary(max_size=30), max_size=12), st.integers(1, 40))
def test_parts_are_the_body_and_as_large_as_asked_for(buffers: list[bytes], part_bytes: int) -> None:
    cut, parts = Parts(buffers, part_bytes, Room(part_bytes)), []
    while cut.has_more():
        with cut.take() as part:
            parts += part.content
    assert b"".join(parts) == b"".join(buffers)
    assert all(len(part) == part_bytes for part in parts[:-1])
    assert all(0 < len(part) <= part_bytes for part in parts)


class Multipart:
    """The server's side of an upload in parts. ``refuse`` may return another answer to a request."""

    def __init__(self, refuse: Callable[[Request], Answer | None] = lambda _: None) -> None:
        self.refuse = refuse
        self.most_at_once = 0
        self._running = 0
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Answer:
        with self._lock:
            self._running += 1
            self.most_at_once = max(self.most_at_once, self._running)
        try:
            return self.refuse(request) or self._accept(request)
        finally:
            with self._lock:
                self._running -= 1

    def _accept(self, request: Request) -> Answer:
        if request.method == "POST" and "uploads" in request.path:
            return Answer(
                body=b"<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>"
            )
        if request.method == "POST":
            return Answer(body=b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")
        return Answer(204 if request.method == "DELETE" else 200, headers={"ETag": '"e"'})


def put_parts(script: Multipart, **more: object) -> list[Request]:
    """The requests of a put of 70 bytes in parts of 10."""
    with ScriptedServer(script) as server:
        settings = read_settings("s3://bucket", options(server, **more))
        S3Store(settings, single_bytes=20, part_bytes=10).put("key", [BODY[:33], BODY[33:]])
    return server.requests


def test_a_large_body_is_uploaded_in_parts_a_few_at_a_time() -> None:
    script = Multipart()
    begin, *parts, complete = put_parts(
        script, **{"storage-class": "STANDARD_IA", "sse": "AES256", "checksum": "sha256"}
    )
    assert begin.headers["x-amz-checksum-algorithm"] == "SHA256"
    assert begin.headers["x-amz-storage-class"] == "STANDARD_IA"
    assert begin.headers["x-amz-server-side-encryption"] == "AES256"
    numbered = {int(re.search(r"partNumber=(\d+)", part.path)[1]): part for part in parts}  # type: ignore[index]
    assert b"".join(numbered[number].body for number in range(1, 8)) == BODY
    for part in parts:
        assert part.headers["x-amz-checksum-sha256"] == encoded(hashlib.sha256(part.body).digest())
    assert complete.headers["if-none-match"] == "*"
    assert re.findall(rb"<PartNumber>(\d)</PartNumber>", complete.body) == [b"%d" % number for number in range(1, 8)]
    assert complete.body.count(b"<ChecksumSHA256>") == 7
    assert 1 <= script.most_at_once <= PARTS_AT_ONCE


class CountedBody(list[bytes]):
    """Buffers that count how many were taken since ``taken`` was set to 0."""

    taken = 0

    def __iter__(self) -> Iterator[bytes]:
        for buffer in super().__iter__():
            self.taken += 1
            yield buffer


def test_no_more_parts_are_copied_than_are_in_progress() -> None:
    body = CountedBody([b"0123456789"] * 40)
    ahead: list[int] = []
    answered = 0

    def look(request: Request) -> None:
        nonlocal answered
        with lock:
            if "partNumber" in request.path:
                ahead.append(body.taken - len(body) - answered)  # the first pass measures the size
                answered += 1

    lock = threading.Lock()
    with ScriptedServer(Multipart(look)) as server:
        S3Store(read_settings("s3://bucket", options(server)), single_bytes=20, part_bytes=10).put("key", body)
    assert len(ahead) == 40
    assert max(ahead) <= PARTS_AT_ONCE


def test_a_generated_body_is_not_kept_in_memory() -> None:
    made, ahead, answered = 0, [], 0
    lock = threading.Lock()

    class Made:
        def __iter__(self) -> Iterator[bytes]:
            nonlocal made
            for number in range(400):
                with lock:
                    made += 1
                yield b"%d" % (number % 10)

    def look(request: Request) -> None:
        nonlocal answered
        with lock:
            if "partNumber" in request.path:
                ahead.append(made / 10 - answered)
                answered += 1

    with ScriptedServer(Multipart(look)) as server:
        S3Store(read_settings("s3://bucket", options(server)), single_bytes=1 << 20, part_bytes=10).put("key", Made())
    assert (made, len(ahead)) == (400, 40)
    assert max(ahead) <= PARTS_AT_ONCE + 0.1, "plus one buffer of the next part, which shows that there is one"
    sent = {re.search(r"partNumber=(\d+)", request.path)[1]: request.body for request in server.requests[1:-1]}  # type: ignore[index]
    assert b"".join(sent[str(number)] for number in range(1, 41)) == b"0123456789" * 40


def test_a_short_generated_body_is_one_request() -> None:
    with ScriptedServer(Multipart()) as server:
        store = S3Store(read_settings("s3://bucket", options(server)), single_bytes=5, part_bytes=10)
        store.put("key", map(bytes, [b"01", b"234567"]))
    assert [(request.method, request.path, request.body) for request in server.requests] == [
        ("PUT", "/bucket/key", b"01234567")
    ]


def test_parts_with_md5_declare_no_algorithm() -> None:
    begin, *parts, _ = put_parts(Multipart(), checksum="md5")
    assert "x-amz-checksum-algorithm" not in begin.headers
    assert all(part.headers["content-md5"] == encoded(hashlib.md5(part.body).digest()) for part in parts)


@pytest.mark.parametrize(
    ("broken", "answer", "kind"),
    [
        ("partNumber=3", error_answer(400, "InvalidArgument"), StoreError),
        ("partNumber=7", error_answer(403, "AccessDenied"), StoreError),
        ("uploadId=u1", error_answer(412, "PreconditionFailed"), ExistsError),
    ],
)
def test_an_upload_that_fails_is_aborted(broken: str, answer: Answer, kind: type[StoreError]) -> None:
    def refuse(request: Request) -> Answer | None:
        ends = request.path.endswith(broken) and request.method == "POST"
        return answer if ends or (request.method == "PUT" and f"{broken}&" in f"{request.path}&") else None

    script = Multipart(refuse)
    with ScriptedServer(script) as server:
        store = S3Store(read_settings("s3://bucket", options(server)), single_bytes=20, part_bytes=10)
        with pytest.raises(kind) as caught:
            store.put("key", [BODY])
    assert type(caught.value) is kind or kind is StoreError
    assert (server.requests[-1].method, server.requests[-1].path) == ("DELETE", "/bucket/key?uploadId=u1")


@pytest.mark.parametrize("seed", range(3))
def test_parts_are_tried_again_each_by_itself(seed: int) -> None:
    random, lock = Random(seed), threading.Lock()
    failures = [
        error_answer(500, "InternalError"),
        error_answer(503, "SlowDown"),
        Answer(200, b"", {}),  # no tag: half an answer
        Answer(400, error_answer(400, "RequestTimeout").body),
    ]

    def refuse(request: Request) -> Answer | None:
        with lock:
            return random.choice(failures) if "partNumber" in request.path and random.random() < 0.3 else None

    body = bytes(range(90))
    with ScriptedServer(script := Multipart(refuse)) as server:
        S3Store(read_settings("s3://bucket", options(server)), single_bytes=20, part_bytes=10).put("key", [body])
    begin, *parts, complete = server.requests
    assert begin.path.endswith("?uploads")
    assert len(parts) > 9, "nothing failed"
    numbered = [(int(re.search(r"partNumber=(\d+)", part.path)[1]), part.body) for part in parts]  # type: ignore[index]
    assert set(numbered) == {(number, body[number * 10 - 10 : number * 10]) for number in range(1, 10)}
    assert re.findall(rb"<PartNumber>(\d)</PartNumber>", complete.body) == [b"%d" % number for number in range(1, 10)]
    assert script.most_at_once <= PARTS_AT_ONCE


def test_a_part_that_fails_for_good_ends_the_others() -> None:
    """One part is refused while the others would still be tried for a long time."""

    def refuse(request: Request) -> Answer | None:
        if "partNumber=2" in request.path:
            return error_answer(403, "AccessDenied")
        return error_answer(503, "SlowDown", Retry_After="25") if "partNumber" in request.path else None

    started = time.monotonic()
    with pytest.raises(StoreError, match="AccessDenied"):
        put_parts(Multipart(refuse))
    assert time.monotonic() - started < 20


def test_a_store_that_is_closed_tries_no_part_again() -> None:
    def refuse(request: Request) -> Answer | None:
        if "partNumber" not in request.path:
            return None
        store.close()
        return error_answer(503, "SlowDown", Retry_After="25")

    started = time.monotonic()
    with ScriptedServer(Multipart(refuse)) as server:
        store = S3Store(read_settings("s3://bucket", options(server)), single_bytes=20, part_bytes=10)
        with pytest.raises(StoreError, match="SlowDown"):
            store.put("key", [BODY])
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (["NoSuchUpload"], False),
        (["InternalError", "SlowDown", ""], False),
        (["InternalError", "NoSuchUpload"], False),
        (["InternalError"] * 9, True),
        (["AccessDenied"], True),
    ],
)
def test_an_abort_is_tried_again_and_reported_only_if_parts_may_be_left(
    answers: list[str], told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer to the completion is lost. Then the abort does not find the upload any more, or fails itself."""
    left = iter(answers)
    statuses = {"NoSuchUpload": 404, "AccessDenied": 403}

    def refuse(request: Request) -> Answer | None:
        if request.method == "DELETE":
            return error_answer(statuses.get(code, 500), code) if (code := next(left)) else None
        completes = request.method == "POST" and request.path.endswith("uploadId=u1")
        return error_answer(500, "InternalError") if completes else None

    with pytest.raises(StoreError, match="InternalError"):
        put_parts(Multipart(refuse))
    assert ("parts may be left" in caplog.text) is told


def test_a_completion_that_fails_after_a_good_status_is_an_error() -> None:
    late = Answer(200, b"<?xml version='1.0'?><Error><Code>InternalError</Code><Message>late</Message></Error>")
    script = Multipart(
        lambda request: late if request.path.endswith("uploadId=u1") and request.method == "POST" else None
    )
    with pytest.raises(StoreError, match="InternalError") as caught:
        put_parts(script)
    assert caught.value.retryable
