"""Errors of an S3 replica say what to do, and end with the right exit code. A daemon waits until they are mended.

The servers are real: moto with permissions, or a scripted server that answers as S3 does. Each verb is a process.
"""

from __future__ import annotations

import json
import signal
import ssl
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto.server")
pytest.importorskip("trustme")

import trustme

from litelog.errors import ExitCode
from litelog.stores.trial import RACERS
from tests.builders.servers import (
    CREDENTIALS,
    REGION,
    Answer,
    Request,
    S3Server,
    ScriptedServer,
    error_answer,
    forwarded,
    permissions_checked,
)
from tests.builders.short_waits import SHORT_WAITS

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

ACTIONS = frozenset({"s3:PutObject", "s3:GetObject", "s3:ListBucket", "s3:DeleteObject"})

MAX_REQUESTS = 12
"""The requests that a daemon sends to a store that refuses them, while the test watches."""

LASTING_ANSWERS = [
    (error_answer(403, "RequestTimeTooSkewed", "The difference is too large"), "clock is wrong: set it (NTP)"),
    (error_answer(403, "AccessDenied", "Access Denied"), "no permission on bucket"),
    (error_answer(403, "SignatureDoesNotMatch", "m"), "the secret key does not belong to the access key"),
    (error_answer(403, "InvalidAccessKeyId", "m"), "the access key does not exist there"),
    (error_answer(404, "NoSuchBucket", "m"), "create it, or correct the replica's URL"),
    (error_answer(301, "PermanentRedirect", "m", x_amz_bucket_region="sa-east-1"), "set region: sa-east-1"),
]
"""Failures that do not end by themselves, with words of their messages."""


@pytest.fixture(autouse=True)
def _nothing_is_configured(litelog: Command) -> None:
    litelog.before = SHORT_WAITS
    for name in [name for name in litelog.environment if name.startswith("AWS_")]:
        del litelog.environment[name]
    nowhere = str(litelog.folder / "nowhere")
    litelog.environment |= {
        "AWS_CONFIG_FILE": nowhere,
        "AWS_SHARED_CREDENTIALS_FILE": nowhere,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def sign_in(litelog: Command, credentials: dict[str, str] = CREDENTIALS) -> None:
    litelog.environment["AWS_ACCESS_KEY_ID"] = credentials["access-key-id"]
    litelog.environment["AWS_SECRET_ACCESS_KEY"] = credentials["secret-access-key"]


def url_at(endpoint: str, bucket: str = "bucket", more: str = "") -> str:
    return f"s3://{bucket}/logs?endpoint={endpoint}&region={REGION}{more}"


def ends(litelog: Command, process: object, number: int = signal.SIGTERM) -> tuple[int, str]:
    """Stop a daemon; return its exit code and its last output."""
    process.send_signal(number)  # type: ignore[attr-defined]
    _, said = process.communicate(timeout=240)  # type: ignore[attr-defined]
    return process.returncode, said  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("lacks", "needed"),
    [
        ("s3:PutObject", "s3:PutObject on {bucket}/logs/*"),
        ("s3:ListBucket", "s3:ListBucket on {bucket}:"),
        ("s3:GetObject", "s3:GetObject on {bucket}/logs/*"),
    ],
)
def test_a_permission_that_replication_lacks_is_named_with_its_place(
    litelog: Command, server: S3Server, lacks: str, needed: str
) -> None:
    litelog.lines(10)
    bucket = server.make_bucket()
    some, every = server.make_user(ACTIONS - {lacks}, bucket), server.make_user(ACTIONS, bucket)
    url, expected = url_at(server.endpoint, bucket), f"grant {needed.format(bucket=bucket)}"
    with permissions_checked():
        sign_in(litelog, some)
        done = litelog("replicate", "--once", "log", url)
        assert done.code == ExitCode.FAILURE
        assert expected in done.err
        assert done.err.count("\n") <= 2
        sign_in(litelog, every)
        assert litelog("replicate", "--once", "log", url).code == ExitCode.DONE
        assert litelog("cat", url).out.count("\n") == 10


@pytest.mark.parametrize("lacks", sorted(ACTIONS))
def test_check_names_the_permission_that_lacks(litelog: Command, server: S3Server, lacks: str) -> None:
    bucket = server.make_bucket()
    sign_in(litelog, server.make_user(ACTIONS - {lacks}, bucket))
    with permissions_checked():
        done = litelog("check", "--json", url_at(server.endpoint, bucket))
    assert done.code == (ExitCode.DONE if lacks == "s3:DeleteObject" else ExitCode.FAILURE)
    failed = [step for step in done.lines if step.get("outcome") == "failed"]  # the last line is the verdict
    assert failed
    place = bucket if lacks == "s3:ListBucket" else f"{bucket}/logs/*"
    assert all(f"grant {lacks} on {place}" in step["reason"] for step in failed)


def test_a_wrong_secret_is_distinguished_from_a_missing_permission(litelog: Command, server: S3Server) -> None:
    litelog.lines(1)
    bucket = server.make_bucket()
    user = server.make_user(ACTIONS, bucket)
    sign_in(litelog, {**user, "secret-access-key": "x" * 40})
    with permissions_checked():
        done = litelog("replicate", "--once", "log", url_at(server.endpoint, bucket))
    assert done.code == ExitCode.FAILURE
    assert "the secret key does not belong to the access key" in done.err


def test_a_daemon_without_permission_says_so_and_asks_seldom(litelog: Command, server: S3Server) -> None:
    """Its other replica is not delayed, and it sends few requests to this one."""
    litelog.lines(10)
    bucket = server.make_bucket()
    some = server.make_user(ACTIONS - {"s3:PutObject"}, bucket)
    sign_in(litelog, some)
    with (
        permissions_checked(),
        ScriptedServer(lambda request: forwarded(server.endpoint, request)) as counted,
    ):
        process = litelog.start("replicate", "log", url_at(counted.endpoint, bucket), "second")
        (said,) = [line for line in litelog.wait_for_line(process, "failure 1 in a row") if "failure 1" in line]
        assert " ERROR " in said
        assert "trying again in 30.0 s" in said
        assert f"grant s3:PutObject on {bucket}/logs/*" in said
        code, last = ends(litelog, process)
    assert code == ExitCode.FINAL_SYNC_FAILED
    assert "grant s3:PutObject" in last
    races = 2 * (RACERS + 2)  # before a claim, at the start and at the end: each put of a race is refused
    assert len(counted.requests) <= MAX_REQUESTS + races
    assert litelog("cat", "second").out.count("\n") == 10


@pytest.mark.parametrize(("said", "words"), LASTING_ANSWERS)
def test_replicate_once_fails_at_once_and_names_the_remedy(litelog: Command, said: Answer, words: str) -> None:
    litelog.lines(1)
    sign_in(litelog)
    with ScriptedServer(lambda _: said) as scripted:
        for arguments in (
            ["replicate", "--once", "log", url_at(scripted.endpoint)],
            ["restore", url_at(scripted.endpoint), "-o", "out"],
            ["generations", url_at(scripted.endpoint)],
        ):
            done = litelog(*arguments)
            assert done.code == ExitCode.FAILURE
            assert words in done.err
            assert "Traceback" not in done.err
        assert len(scripted.requests) <= 6, "it asked again, although nothing had changed"
    assert not (litelog.folder / "out").exists()


def test_a_daemon_whose_clock_is_wrong_says_so_and_asks_seldom(litelog: Command) -> None:
    litelog.lines(1)
    sign_in(litelog)
    with ScriptedServer(lambda _: error_answer(403, "RequestTimeTooSkewed")) as scripted:
        process = litelog.start("replicate", "log", url_at(scripted.endpoint), "second")
        said = litelog.wait_for_line(process, "failure 1 in a row")[-1]
        assert "set it (NTP)" in said
        assert "trying again in 30.0 s" in said
        for _ in range(3):
            litelog.lines(1)
        code, last = ends(litelog, process)
        assert len(scripted.requests) <= 3
    assert code == ExitCode.FINAL_SYNC_FAILED
    assert "set it (NTP)" in last
    assert litelog("cat", "second").out.count("\n") == 4


def test_a_conflict_is_waited_for(litelog: Command, server: S3Server) -> None:
    litelog.lines(1)
    sign_in(litelog)
    bucket = server.make_bucket()
    conflicts = iter([True] * 3)

    def answer(request: Request) -> Answer:
        if request.method == "PUT" and next(conflicts, False):
            return error_answer(409, "ConditionalRequestConflict")
        return forwarded(server.endpoint, request)

    with ScriptedServer(answer) as scripted:
        assert litelog("replicate", "--once", "log", url_at(scripted.endpoint, bucket)).code == ExitCode.DONE
    assert next(conflicts, None) is None


def test_no_credentials_at_all_say_where_they_may_be(litelog: Command, server: S3Server) -> None:
    litelog.lines(1)
    done = litelog("replicate", "--once", "log", url_at(server.endpoint, server.make_bucket()))
    assert done.code == ExitCode.FAILURE
    assert "no credentials: set a profile, the environment" in done.err


@dataclass
class Issuer:
    """Issues keys that expire sooner than the chain prefers, as a machine's role does. Only the last one is valid."""

    server: S3Server
    issued: int = 0
    refused: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def issue(self, request: Request) -> Answer:
        with self.lock:
            self.issued += 1
            key = f"AKISSUED{self.issued:04}"
        until = datetime.now(UTC) + timedelta(minutes=5)
        facts = {"AccessKeyId": key, "SecretAccessKey": "s", "Token": "t", "Expiration": f"{until:%Y-%m-%dT%H:%M:%SZ}"}
        return Answer(body=json.dumps(facts).encode())

    def answer(self, request: Request) -> Answer:
        with self.lock:
            good = f"AKISSUED{self.issued:04}" in request.headers["authorization"]
        if not good:
            self.refused.append(f"{request.path} {request.body.decode(errors='replace')}")
            return error_answer(400, "ExpiredToken", "The provided token has expired.")
        return forwarded(self.server.endpoint, request)


def test_credentials_that_the_chain_renews_never_run_out(litelog: Command, server: S3Server) -> None:
    bucket = server.make_bucket()
    issuer = Issuer(server)
    with ScriptedServer(issuer.issue) as role, ScriptedServer(issuer.answer) as scripted:
        litelog.environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = f"{role.endpoint}/role"
        litelog.lines(10)
        process = litelog.start("replicate", "--json", "log", url_at(scripted.endpoint, bucket))
        wait_for_sequence(process, 10)
        litelog.lines(10)
        wait_for_sequence(process, 20)
        code, said = ends(litelog, process)
    assert code == ExitCode.DONE
    failures = [line for line in said.splitlines() if " in a row" in line]
    assert [line for line in failures if "put trials/" not in line] == []
    assert issuer.issued > 1
    assert [each for each in issuer.refused if "/trials/" not in each] == [], "races aside, which all lose except one"


@pytest.mark.parametrize(
    "refusal",
    [error_answer(400, "ExpiredToken", "The provided token has expired."), error_answer(403, "InvalidAccessKeyId")],
)
def test_credentials_that_were_replaced_are_looked_up_again(
    litelog: Command, server: S3Server, tmp_path: Path, refusal: Answer
) -> None:
    bucket, file = server.make_bucket(), tmp_path / "credentials"
    over = threading.Event()

    def write(key: str) -> None:
        file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {'s' * 40}\n")

    def answer(request: Request) -> Answer:
        if over.is_set() and "AKOLD" in request.headers["authorization"]:
            return refusal
        return forwarded(server.endpoint, request)

    litelog.environment["AWS_SHARED_CREDENTIALS_FILE"] = str(file)
    write("AKOLD")
    litelog.lines(10)
    with ScriptedServer(answer) as scripted:
        process = litelog.start("replicate", "--json", "log", url_at(scripted.endpoint, bucket))
        wait_for_sequence(process, 10)
        write("AKNEW")
        over.set()
        litelog.lines(10)
        wait_for_sequence(process, 20)
        code, said = ends(litelog, process)
    assert code == ExitCode.DONE
    assert refusal.body.decode().partition("<Code>")[2].partition("<")[0] in said
    assert "continues after 1 failure [" in said


def wait_for_sequence(process: object, sequence: int) -> None:
    """Read a daemon's events until every record before ``sequence`` is acknowledged."""
    for line in process.stdout:  # type: ignore[attr-defined]
        if json.loads(line).get("next") == sequence:
            return
    raise AssertionError(process.stderr.read())  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Authority:
    """An unknown authority, and server certificates that it has signed."""

    authority: trustme.CA
    bundle: str

    def context(self, name: str, **more: object) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert(name, **more).configure_cert(made)
        return made


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = trustme.CA()
    bundle = tmp_path / "authority.pem"
    made.cert_pem.write_to_path(str(bundle))
    return Authority(made, str(bundle))


def test_an_unknown_certificate_is_refused_at_once_and_accepted_with_its_bundle(
    litelog: Command, server: S3Server, authority: Authority
) -> None:
    litelog.lines(10)
    sign_in(litelog)
    bucket = server.make_bucket()
    context = authority.context("127.0.0.1")
    with ScriptedServer(lambda request: forwarded(server.endpoint, request), context) as scripted:
        url = url_at(scripted.endpoint, bucket)
        done = litelog("replicate", "--once", "log", url)
        assert done.code == ExitCode.FAILURE
        assert f"TLS with {scripted.endpoint} failed: check the endpoint and its certificate" in done.err
        assert "or set ca-bundle" in done.err
        assert scripted.requests == []
        assert scripted.connections <= 2, "it tried again, although nothing had changed"
        url += f"&ca-bundle={authority.bundle}"
        assert litelog("replicate", "--once", "log", url).code == ExitCode.DONE
        assert litelog("restore", url, "-o", "out").code == ExitCode.DONE
        assert litelog("cat", "out").out.count("\n") == 10
        assert {request.headers["host"] for request in scripted.requests} == {
            scripted.endpoint.removeprefix("https://")
        }


@pytest.mark.parametrize("kind", ["of another name", "that ran out"])
def test_a_certificate_that_does_not_fit_is_refused(litelog: Command, authority: Authority, kind: str) -> None:
    litelog.lines(1)
    sign_in(litelog)
    name, more = "127.0.0.1", {}
    if kind == "of another name":
        name = "store.example"
    else:
        more = {"not_after": datetime.now(UTC) - timedelta(days=1), "not_before": datetime.now(UTC) - timedelta(days=2)}
    with ScriptedServer(lambda _: Answer(), authority.context(name, **more)) as scripted:
        url = url_at(scripted.endpoint, more=f"&ca-bundle={authority.bundle}")
        done = litelog("replicate", "--once", "log", url)
    assert done.code == ExitCode.FAILURE
    assert f"TLS with {scripted.endpoint} failed" in done.err
    assert scripted.requests == []


def test_an_unresolved_host_is_reported_with_the_setting_to_check(litelog: Command) -> None:
    litelog.lines(1)
    sign_in(litelog)
    done = litelog("replicate", "--once", "log", url_at("http://no-such-host.invalid"))
    assert done.code == ExitCode.FAILURE
    assert "cannot reach http://no-such-host.invalid: cannot resolve its name: check endpoint, region" in done.err


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("endpoint=localhost:9000", "endpoint must be a URL"),
        ("endpoint=ftp://host", "endpoint must be a URL"),
        ("endpoint=https://", "endpoint must be a URL"),
        ("regoin=eu-west-1", "did you mean region"),
        ("ca-bundle=/not/there.pem", "does not exist"),
        ("region=eu west", "'eu west' doesn't match"),
    ],
)
@pytest.mark.parametrize("verb", ["replicate", "check", "restore"])
def test_invalid_input_is_refused_before_any_request(litelog: Command, query: str, words: str, verb: str) -> None:
    litelog.lines(1)
    sign_in(litelog)
    url = f"s3://bucket/x?{query}"
    arguments = {"replicate": ["--once", "log", url], "check": [url], "restore": [url, "-o", "out"]}[verb]
    done = litelog(verb, *arguments)
    assert done.code == ExitCode.USAGE
    assert words in done.err
