"""Each error of S3 says what to do and whether it may pass, and shows no secret."""

from __future__ import annotations

import io
import logging
import socket
import threading
import traceback
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

pytest.importorskip("boto3")

from litelog.errors import ExistsError, NotFoundError, StoreError
from litelog.stores.object_store import ByteRange
from replica_clients.s3 import S3Store, open_store
from tests.builders.servers import REGION, Answer, Request, ScriptedServer, error_answer

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET, TOKEN = "canary-secret-key-7731", "canary-token-" + "Zm9v" * 40
OPTIONS = {"region": REGION, "access-key-id": "AKIDCANARY", "secret-access-key": SECRET, "session-token": TOKEN}
OPERATIONS: dict[str, Callable[[S3Store], object]] = {
    "put": lambda store: store.put("key", [b"x"]),
    "open": lambda store: store.open("key"),
    "list": lambda store: list(store.list("")),
    "delete": lambda store: store.delete(["key"]),
}


def open_at(endpoint: str, **more: object) -> S3Store:
    return open_store("s3://bucket", {"endpoint": endpoint, "read-timeout": "5s", **OPTIONS, **more})


def failure(said: Answer, operation: str = "put", requests: int = 1, **more: object) -> StoreError:
    with ScriptedServer(lambda _: said) as server:
        store = open_at(server.endpoint, **more)
        with pytest.raises(StoreError) as caught:
            OPERATIONS[operation](store)
        store.close()
        assert len(server.requests) == requests, "the SDK tried again by itself"
    return caught.value


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (500, "InternalError", True),
        (503, "SlowDown", True),
        (503, "ServiceUnavailable", True),
        (502, "", True),
        (429, "TooManyRequests", True),
        (409, "ConditionalRequestConflict", True),
        (409, "OperationAborted", True),
        (400, "RequestTimeout", True),
        (400, "BadDigest", True),
        (400, "ExpiredToken", True),
        (400, "InvalidArgument", False),
        (403, "AccessDenied", False),
        (403, "InvalidAccessKeyId", False),
        (403, "SignatureDoesNotMatch", False),
        (403, "RequestTimeTooSkewed", False),
        (404, "NoSuchBucket", False),
        (501, "NotImplemented", False),
    ],
)
def test_failures_that_may_pass_are_distinguished_from_those_that_will_not(
    status: int, code: str, retryable: bool
) -> None:
    error = failure(error_answer(status, code))
    assert error.retryable is retryable
    assert code in str(error)


def test_the_redirect_of_a_new_bucket_passes() -> None:
    said = error_answer(307, "TemporaryRedirect", x_amz_bucket_region="eu-west-1")
    error = failure(said, requests=2)  # the SDK sends it to that region, once
    assert error.retryable
    assert "the bucket is new, and its name" in str(error)


def test_answers_are_not_failures() -> None:
    assert isinstance(failure(error_answer(412, "PreconditionFailed")), ExistsError)
    assert isinstance(failure(Answer(304)), ExistsError)
    assert isinstance(failure(error_answer(404, "NoSuchKey"), "open"), NotFoundError)
    assert not isinstance(failure(error_answer(404, "NoSuchBucket"), "open"), NotFoundError)
    assert not isinstance(failure(error_answer(404, "NoSuchBucket"), "list"), NotFoundError)


@pytest.mark.parametrize(
    ("operation", "action"),
    [("put", "s3:PutObject"), ("open", "s3:GetObject"), ("list", "s3:ListBucket"), ("delete", "s3:DeleteObject")],
)
def test_a_permission_that_lacks_is_named(operation: str, action: str) -> None:
    assert f"grant {action}" in str(failure(error_answer(403, "AccessDenied", "Access Denied"), operation))


def test_a_permission_on_the_key_is_named() -> None:
    said = "not authorized to perform: kms:GenerateDataKey on this resource"
    assert "grant kms:GenerateDataKey" in str(failure(error_answer(403, "AccessDenied", said)))
    error = failure(error_answer(403, "AccessDenied", "Access Denied"), sse="aws:kms")
    assert "s3:PutObject" in str(error)
    assert "kms:GenerateDataKey" in str(error)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (error_answer(403, "InvalidAccessKeyId"), "the access key does not exist there: check the profile"),
        (error_answer(404, "XAdminUserNotFound"), "the access key does not exist there: check the profile"),
        (error_answer(403, "NotSignedUp"), "the access key does not exist there: check the profile"),
        (error_answer(404, "NoSuchBucket"), "bucket bucket does not exist at http://127.0.0.1"),
        (error_answer(403, "RequestTimeTooSkewed"), "set it (NTP)"),
        (error_answer(400, "ExpiredToken"), "looked up again"),
        (error_answer(400, "InvalidArgument", "Unsupported header x-amz-checksum-sha256"), "set checksum: md5"),
        (Answer(502, b"<html>a proxy speaks</html>" * 100), "502"),
    ],
)
def test_messages_name_the_remedy(said: Answer, words: str) -> None:
    error = failure(said)
    assert words in str(error)
    assert len(str(error)) < 700
    assert "\n" not in str(error)


WRONG_REGIONS = [
    error_answer(301, "PermanentRedirect", x_amz_bucket_region="sa-east-1"),
    Answer(
        400, b"<Error><Code>AuthorizationHeaderMalformed</Code><Message>m</Message><Region>sa-east-1</Region></Error>"
    ),
]


@pytest.mark.parametrize("said", WRONG_REGIONS)
def test_the_right_region_is_taken_from_the_answer(said: Answer) -> None:
    def answer(request: Request) -> Answer:
        return Answer() if "/sa-east-1/s3/" in request.headers["authorization"] else said

    with ScriptedServer(answer) as server:
        store = open_at(server.endpoint)
        store.put("key", [b"x"])
        store.put("other", [b"x"])
        assert len(server.requests) == 3


@pytest.mark.parametrize("said", WRONG_REGIONS)
def test_a_region_that_does_not_help_is_named(said: Answer) -> None:
    assert "set region: sa-east-1" in str(failure(said, requests=2))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry_After": "7"}, 7.0),
        ({"Retry_After": "Wed, 21 Oct 2015 07:28:30 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 30.0),
        ({"Retry_After": "soon"}, None),
        ({}, None),
    ],
)
def test_the_store_says_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert failure(error_answer(503, "SlowDown", **headers)).retry_after == seconds


def test_a_refused_connection_is_retryable_and_names_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(StoreError, match=f"cannot reach {endpoint}") as caught:
        open_at(endpoint).put("key", [b"x"])
    assert caught.value.retryable


def test_an_unknown_host_name_is_distinguished_from_a_server_that_is_down() -> None:
    with pytest.raises(StoreError, match="cannot resolve its name") as caught:
        open_at("http://no-such-host.invalid").put("key", [b"x"])
    assert caught.value.retryable


def test_tls_to_a_server_without_tls_is_named_at_once() -> None:
    with (
        ScriptedServer(lambda _: Answer()) as server,
        pytest.raises(StoreError, match=r"https.* does not speak TLS: write http://") as caught,
    ):
        open_at(server.endpoint.replace("http:", "https:")).put("key", [b"x"])
    assert not caught.value.retryable


GO_OVER_HTTP = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
NGINX_OVER_HTTP = b"HTTP/1.1 400 Bad Request\r\n\r\n<html>The plain HTTP request was sent to HTTPS port</html>"


@pytest.mark.parametrize("said", [b"", GO_OVER_HTTP, NGINX_OVER_HTTP])
def test_http_to_a_port_that_speaks_tls_is_named(said: bytes) -> None:
    """Most servers end such a connection at once. Some send a few bytes first."""

    def refuse(listening: socket.socket) -> None:
        with listening.accept()[0] as connection:
            connection.recv(65536)
            connection.sendall(said)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        endpoint = f"http://127.0.0.1:{listening.getsockname()[1]}"
        refusing = threading.Thread(target=refuse, args=(listening,))
        refusing.start()
        with pytest.raises(StoreError, match="if the endpoint speaks TLS, write https://"):
            open_at(endpoint).put("key", [b"x"])
        refusing.join()


def test_a_silent_server_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = open_at(f"http://127.0.0.1:{silent.getsockname()[1]}", **{"read-timeout": "100ms"})
        with pytest.raises(StoreError, match="Timeout") as caught:
            store.put("key", [b"x"])
    assert caught.value.retryable


def test_no_credentials_say_so(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    empty = str(tmp_path_factory.mktemp("home"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", f"{empty}/none")
    monkeypatch.setenv("AWS_CONFIG_FILE", f"{empty}/none")
    store = open_store("s3://bucket", {"endpoint": "http://127.0.0.1:1"})
    with pytest.raises(StoreError, match="no credentials: set a profile") as caught:
        store.put("key", [b"x"])
    assert not caught.value.retryable


def test_credentials_that_ran_out_are_looked_up_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("home") / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)

    def write(key_id: str) -> None:
        file.write_text(f"[default]\naws_access_key_id = {key_id}\naws_secret_access_key = x\n")

    def answer(request: Request) -> Answer:
        return Answer() if "AKNEW" in request.headers["authorization"] else error_answer(400, "ExpiredToken")

    write("AKOLD")
    with ScriptedServer(answer) as server:
        store = open_store("s3://bucket", {"endpoint": server.endpoint, "region": REGION})
        write("AKNEW")
        with pytest.raises(StoreError, match="looked up again") as caught:
            store.put("key", [b"x"])
        assert caught.value.retryable
        store.put("key", [b"x"])


LONG_KEY = "generations/0000000112345678/wal/0000000000000000/0000000000000800.wal.lz4"


@pytest.mark.parametrize("prefix", ["", "a/prefix of some/length+more"])
@pytest.mark.parametrize(
    "request_",
    [
        lambda store: store.put(LONG_KEY, [b"x"]),
        lambda store: store.open(LONG_KEY),
        lambda store: store.delete([LONG_KEY]),
        lambda store: list(store.list(LONG_KEY)),
    ],
)
def test_an_error_shows_the_host_the_port_the_bucket_and_the_key(
    prefix: str, request_: Callable[[S3Store], object]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    store = open_store(f"s3://a-bucket-of-ours/{prefix}", {"endpoint": f"http://{address}", **OPTIONS})
    with pytest.raises(StoreError, match="cannot reach") as caught:
        request_(store)
    shown = unquote(str(caught.value))
    assert f"http://{address}/a-bucket-of-ours" in shown
    assert shown.count(LONG_KEY) == 2, "once in the error itself, and once in the URL"
    assert "***" not in shown
    assert caught.value.__cause__ is not None, "the traceback also shows the cause"


def test_a_token_next_to_a_long_key_is_masked() -> None:
    with ScriptedServer(
        lambda _: error_answer(403, "AccessDenied", f"{LONG_KEY}{TOKEN} {LONG_KEY}?{'k' * 90}")
    ) as server:
        store = open_store("s3://bucket", {"endpoint": server.endpoint, **OPTIONS, "session-token": "t" * 20})
        with pytest.raises(StoreError, match="AccessDenied") as caught:
            store.put(LONG_KEY, [b"x"])
        shown = "".join(traceback.format_exception(caught.value))
    assert TOKEN not in shown
    assert "k" * 90 not in shown
    assert LONG_KEY in shown


def test_a_session_token_of_the_environment_is_masked_no_matter_how_it_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """MinIO's STS returns a JWT. Dots separate its parts, and some of these are short."""
    token = "eyJhbGciOiJIUzUxMiJ9.eyJjYW5hcnkiOiJ5ZXMifQ.c2lnbmF0dXJl"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDCANARY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    with ScriptedServer(lambda request: error_answer(403, "AccessDenied", str(request.headers))) as server:
        store = open_store("s3://bucket", {"endpoint": server.endpoint})
        with pytest.raises(StoreError, match="AccessDenied") as caught:
            store.put("key", [b"x"])
        store.close()
        assert server.requests[0].headers["x-amz-security-token"] == token
    assert token not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("found", ["given", "in the environment"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_server_that_says_our_secrets_is_not_repeated(
    operation: str, found: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store, or a proxy, shows requests in its errors. No message, traceback or log line contains a secret."""

    def answer(request: Request) -> Answer:
        known = f" and {SECRET}" if found == "given" else ""  # no request contains the secret key itself
        return error_answer(403, "AccessDenied", request.headers["x-amz-security-token"] + known)

    caplog.set_level(logging.DEBUG)
    shown = io.StringIO()
    with ScriptedServer(answer) as server:
        if found == "given":
            store = open_at(server.endpoint)
        else:
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDCANARY")
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
            monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
            store = open_store("s3://bucket", {"endpoint": server.endpoint})
        try:
            OPERATIONS[operation](store)
        except StoreError as error:
            traceback.print_exception(error, file=shown)
            logging.getLogger("a.caller").exception("failed")
        store.close()
    seen = shown.getvalue() + caplog.text
    assert "StoreError" in seen or "S3Error" in seen
    assert SECRET not in seen
    assert TOKEN not in seen


def test_no_part_of_a_secret_is_left_where_a_message_is_cut() -> None:
    padding = iter(range(120))
    with ScriptedServer(lambda _: error_answer(403, "AccessDenied", "x " * next(padding) + SECRET)) as server:
        store = open_at(server.endpoint)
        for _ in range(120):
            with pytest.raises(StoreError, match=r"\(AccessDenied\)") as caught:
                store.put("key", [b"x"])
            assert SECRET[:12] not in str(caught.value)
        store.close()


def test_debug_logs_show_no_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with ScriptedServer(lambda _: Answer()) as server:
        store = open_at(server.endpoint)
        store.put("key", [b"x"])
        assert server.requests[0].headers["x-amz-security-token"] == TOKEN
        store.close()
    assert TOKEN not in caplog.text


def body_of(said: Answer, byte_range: ByteRange | None = None) -> bytes:
    with ScriptedServer(lambda _: said) as server:
        store = open_at(server.endpoint)
        with store.open("key", byte_range) as stream:
            return stream.read()


def test_a_body_that_ends_early_is_an_error_and_no_end() -> None:
    with pytest.raises(StoreError, match="read key") as caught:
        body_of(Answer(200, b"12345", length=9))
    assert caught.value.retryable


def test_a_body_that_ends_early_between_two_reads_is_an_error() -> None:
    with ScriptedServer(lambda _: Answer(200, b"12345", length=9)) as server:
        stream = open_at(server.endpoint).open("key")
        assert stream.read(5) == b"12345"
        with pytest.raises(StoreError, match="read key"):
            stream.read(5)
        stream.close()


@pytest.mark.parametrize(
    ("said", "byte_range"),
    [
        (Answer(200, b"0123456789"), ByteRange(2, 3)),
        (Answer(200, b"0123456789"), ByteRange(2)),
        (Answer(200, b"0123456789"), ByteRange(0, 5)),
        (Answer(206, b"012", {"Content-Range": "bytes 0-2/10"}), ByteRange(2, 3)),
        (Answer(206, b"23", {"Content-Range": "bytes 2-3/10"}), ByteRange(2, 3)),
        (Answer(206, b"234", {"Content-Range": "bytes 2-5/10"}), ByteRange(2, 4)),
    ],
)
def test_another_range_than_was_asked_for_is_an_error(said: Answer, byte_range: ByteRange) -> None:
    with pytest.raises(StoreError, match="another range"):
        body_of(said, byte_range)


@pytest.mark.parametrize("byte_range", [None, ByteRange(2, 3)])
def test_a_body_without_a_stated_length_is_named_as_such(byte_range: ByteRange | None) -> None:
    chunked = Answer(200 if byte_range is None else 206, b"3\r\n234\r\n0\r\n\r\n", {"Transfer-Encoding": "chunked"})
    with pytest.raises(StoreError, match="does not say how long it is"):
        body_of(chunked, byte_range)


def test_a_range_that_is_the_whole_object_may_be_answered_with_it() -> None:
    assert body_of(Answer(200, b"0123456789"), ByteRange(0, 10)) == b"0123456789"
    assert body_of(Answer(200, b"0123456789"), ByteRange(0)) == b"0123456789"
