"""No secret is in a log line, an error, an event, a state file, an object, or the public data of a process.

The tests plant canaries wherever secrets may be, and make everything fail that can. The server's errors repeat
everything that was sent to it, as proxies' errors do.
"""

from __future__ import annotations

import base64
import json
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from conftest import Command

pytest.importorskip("boto3")
pytest.importorskip("fsspec")
pytest.importorskip("moto.server")

from litelog.errors import ExitCode
from tests.builders.servers import REGION, Answer, Request, S3Server, ScriptedServer, error_answer, forwarded
from tests.builders.short_waits import SHORT_WAITS
from tests.sampling import sampled, sampled_cases, times

if TYPE_CHECKING:
    from conftest import Outcome

    from tests.warm import Warm

ACCESS_KEY = "AKIDOFCANARIES"
SECRET_KEY = "canary/secret+key=of-the-tests-1234567890"
TOKEN = "canary-token-" + "Zm9vYmFy" * 12
HEADER = "canary-header-of-the-tests"
OPTION = "canary-option-of-the-tests"
PASSWORD = "canary-password-of-the-tests"
CUSTOMER_KEY = b"canary-customer-key-of-32-bytes!"
CANARIES = (SECRET_KEY, TOKEN, HEADER, OPTION, PASSWORD, CUSTOMER_KEY.decode(), base64.b64encode(CUSTOMER_KEY).decode())

FINAL = "500ms"
"""How long a daemon whose store fails tries its final sync."""

CHILD = """
import os, sys, pathlib, time
shown = [pathlib.Path(f"/proc/{who}/{what}").read_bytes() for who in ("self", os.getppid()) for what in ("cmdline",)]
shown.append(pathlib.Path("/proc/self/environ").read_bytes())
pathlib.Path(sys.argv[1]).write_bytes(b"; ".join(shown))
while not pathlib.Path(sys.argv[2]).exists():
    time.sleep(0.05)
"""


def assert_kept(*texts: str | bytes) -> None:
    """The output holds none of the canaries, in any spelling."""
    for text in texts:
        data = text if isinstance(text, bytes) else text.encode()
        for canary in CANARIES:
            for spelled in (canary, quote(canary, safe=""), json.dumps(canary)[1:-1], repr(canary)[1:-1]):
                assert spelled.encode() not in data, f"{canary} is in {data[:2000]!r}"


class Indiscreet:
    """moto behind a proxy. While ``failing``, its errors repeat all that was sent to it, and what it ``knows``.

    No request ever carries the secret key itself.
    """

    def __init__(self, server: S3Server, knows: str = "") -> None:
        self._server = server
        self._knows = knows
        self.failing = threading.Event()
        self.failed = 0

    def __call__(self, request: Request) -> Answer:
        if not self.failing.is_set():
            return forwarded(self._server.endpoint, request)
        self.failed += 1
        secrets = (self._knows, *(f"{name}={value}" for name, value in request.headers.items()))
        message = "x " * (self.failed * 13 % 100) + " ".join(secrets)  # litelog cuts it somewhere
        return error_answer(500, "InternalError", message)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "customer-key"
    path.write_bytes(CUSTOMER_KEY)
    return path


def configuration(endpoint: str, bucket: str, key_file: Path) -> str:
    """A configuration with all secrets where they belong."""
    options = {
        "endpoint": endpoint,
        "region": REGION,
        "access-key-id": ACCESS_KEY,
        "secret-access-key": SECRET_KEY,
        "session-token": TOKEN,
        "headers": {"x-tenant": HEADER},
        "sse-customer-key-file": str(key_file),
    }
    replicas = [
        {"url": f"s3://{bucket}/logs", "options": options},
        {"url": "fsspec+memory://canary/logs", "options": {"secret": OPTION}},
    ]
    return json.dumps({"shutdown-timeout": FINAL, "logs": [{"path": "log", "replicas": replicas}]})  # JSON is YAML


def test_a_daemon_and_its_program_show_no_secret(litelog: Command, server: S3Server, key_file: Path) -> None:
    bucket, indiscreet = server.make_bucket(), Indiscreet(server, SECRET_KEY)
    shown, end = litelog.folder / "shown", litelog.folder / "end"
    litelog.lines(10)
    with ScriptedServer(indiscreet) as scripted:
        (litelog.folder / "litelog.yml").write_text(configuration(scripted.endpoint, bucket, key_file))
        (litelog.folder / "child.py").write_text(CHILD)
        program = f"{sys.executable} {litelog.folder}/child.py {shown} {end}"
        words = ("-v", "replicate", "--json", "--config", "litelog.yml", "--exec", program)
        litelog.before = SHORT_WAITS
        process = litelog.start(*words, cold=True)  # the process then has its own command line and environment
        said = [line for _ in range(2) for line in litelog.wait_for_line(process, " begins ")]
        indiscreet.failing.set()
        litelog.lines(10)
        said += litelog.wait_for_line(process, "failure 2 in a row")
        arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        indiscreet.failing.clear()
        said += litelog.wait_for_line(process, "continues after")
        indiscreet.failing.set()
        litelog.lines(10)
        end.touch()
        out, err = process.communicate(timeout=240)
    assert process.returncode == ExitCode.FINAL_SYNC_FAILED
    assert indiscreet.failed > 3
    assert "InternalError" in "".join(said), "the failures were not logged"
    assert "***" in "".join(said), "the secrets that the server repeated were not masked"
    assert "final sync of log" in err
    assert b"child.py" in shown.read_bytes()
    assert_kept(*said, out, err, arguments, shown.read_bytes())
    files = [path for path in (litelog.folder / "state").rglob("*") if path.is_file()]
    assert files
    assert_kept(*(path.read_bytes() for path in files), *(str(path) for path in files))
    listed = server.admin.list_objects_v2(Bucket=bucket)["Contents"]
    assert len(listed) >= 3
    for entry in listed:
        key = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": CUSTOMER_KEY}
        found = server.admin.get_object(Bucket=bucket, Key=entry["Key"], **key)
        with found["Body"] as body:
            assert_kept(entry["Key"], body.read(), json.dumps(found["Metadata"]))


ALL_VERBS = [
    ["replicate", "--json", "--once", "log", "URL"],
    ["check", "--json", "URL"],
    *times([], at_night=[["check", "URL"]]),  # a check takes thousands of requests
    ["restore", "URL", "-o", "out", "--json"],
    ["generations", "--json", "URL"],
    ["wal", "URL"],
    ["cat", "URL"],
    ["snapshots", "--json", "URL"],
    ["segments", "URL"],
    ["verify", "--json", "--against", "log", "--state-dir", "other", "URL"],
    ["verify", "--restore-drill", "URL"],
    ["prune", "--max-age", "1h", "URL"],
    ["prune", "--max-age", "1h", "--confirm", "--state-dir", "other", "URL"],
    ["copy", "URL", "copied"],
    ["snapshot", "--json", "--state-dir", "other", "log", "URL"],
]
VERBS = sampled(ALL_VERBS, 4, "verbs that fail with secrets in the environment")
SIGNED_IN = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_SESSION_TOKEN": TOKEN,
    "BOTO_DEBUG": "1",
}


def named(verb: list[str]) -> str:
    """A verb with its first argument and its number, as the name of a case."""
    return f"{'-'.join(verb[:2])}-{ALL_VERBS.index(verb)}"


@pytest.fixture(scope="module")
def runs(
    warm: Warm, module_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Outcome, Outcome]]:
    """Run each verb while every request succeeds, and while every request fails.

    Verbs retry failing requests, so these run at the same time."""
    indiscreet = Indiscreet(module_server)
    made = tmp_path_factory.mktemp("key") / "customer-key"
    made.write_bytes(CUSTOMER_KEY)
    good, failing = {}, {}
    with ScriptedServer(indiscreet) as scripted:
        for verb in VERBS:
            litelog = Command(tmp_path_factory.mktemp(verb[0]), warm)
            litelog.environment |= SIGNED_IN
            litelog.before = SHORT_WAITS
            litelog.lines(10)
            options = f"endpoint={scripted.endpoint}&region={REGION}&sse-customer-key-file={made}"
            url = f"s3://{module_server.make_bucket()}/logs?{options}"
            assert litelog("replicate", "--once", "--state-dir", "other", "log", url).code == ExitCode.DONE
            arguments = ["-v", *(url if word == "URL" else word for word in verb)]
            if verb[0] == "replicate":
                arguments[2:2] = ["--state-dir", "other"]
            good[named(verb)] = litelog(*arguments)
            failing[named(verb)] = partial(litelog, *(f"{word}-2" if word == "out" else word for word in arguments))
        indiscreet.failing.set()
        with ThreadPoolExecutor(len(failing)) as pool:
            bad = {name: pool.submit(run) for name, run in failing.items()}
        return {name: (outcome, bad[name].result()) for name, outcome in good.items()}


@pytest.mark.xdist_group("verbs_that_fail")  # they wait at the same time
@pytest.mark.parametrize("verb", VERBS, ids=named)
def test_no_verb_shows_a_secret_of_the_environment(runs: dict[str, tuple[Outcome, Outcome]], verb: list[str]) -> None:
    """Whether every request succeeds or every request fails."""
    good, bad = runs[named(verb)]
    assert good.code == ExitCode.DONE
    assert bad.code == ExitCode.FAILURE
    assert "InternalError" in bad.out + bad.err
    assert_kept(good.out, good.err, bad.out, bad.err)


SECRET_URLS = [
    f"s3://{ACCESS_KEY}:{PASSWORD}@bucket/logs",
    f"s3://bucket/logs?secret={PASSWORD}",
    f"s3://bucket/logs?secret-access-key={PASSWORD}",
    f"s3://bucket/logs?session_token={PASSWORD}&region=eu-west-1",
    f"s3://bucket/logs?X-Amz-Signature={PASSWORD}",
    f"s3://bucket/logs?headers=authorization:{PASSWORD}",
    f"s3://bucket/logs?endpoint=http://me:{PASSWORD}@127.0.0.1:1",
    f"sftp://me:{PASSWORD}@127.0.0.1/logs",
    f"sftp://me:pass/{PASSWORD}@127.0.0.1/logs",
    f"fsspec+sftp://me:{PASSWORD}@127.0.0.1/logs",
    f"http://me:{PASSWORD}@127.0.0.1/logs",
    f"https://127.0.0.1/logs?token={PASSWORD}",
    f"gs://bucket/logs?token={PASSWORD}",
    f"az://container/logs?sas={PASSWORD}",
    f"memory://name?secret={PASSWORD}",
    f"fsspec+memory://name?secret={PASSWORD}",
    f"file://me:{PASSWORD}@host/logs",
    f"file:///logs?secret={PASSWORD}",
    f"nosuch://me:{PASSWORD}@host/logs?secret={PASSWORD}",
]


@pytest.mark.parametrize(
    "url", sampled_cases(SECRET_URLS, 4, "secrets in URLs"), ids=lambda url: url.partition("canary")[0]
)
def test_a_secret_in_a_url_is_refused_and_not_repeated(litelog: Command, url: str) -> None:
    litelog.lines(1)
    verbs = [["replicate", "--once", "--json", "log", url], ["restore", url, "-o", "out"], ["check", "--json", url]]
    for verb in verbs:
        done = litelog("-v", *verb)
        assert done.code == ExitCode.USAGE
        assert_kept(done.out, done.err)
        if url.startswith(("s3:", "sftp:", "gs:", "az:", "fsspec+")):
            assert "as ${VARIABLE}" in done.err, "it does not say where secrets belong"
    (litelog.folder / "litelog.yml").write_text(f"logs:\n  - path: log\n    replicas:\n      - url: '{url}'\n")
    done = litelog("-v", "replicate", "--once", "--config", "litelog.yml")
    assert done.code == ExitCode.USAGE
    assert_kept(done.out, done.err)
    assert not (litelog.folder / "out").exists()
    files = [path for path in (litelog.folder / "state").rglob("*") if path.is_file()]
    assert_kept(*(str(path) for path in files))


OTHER_VERBS = [
    ["restore", "URL", "URL", "-o", "out"],
    ["generations", "URL"],
    ["snapshots", "URL"],
    ["segments", "--json", "URL"],
    ["wal", "URL"],
    ["cat", "URL"],
    ["verify", "--against", "log", "URL"],
    ["prune", "URL"],
    ["prune", "--max-age", "1h", "--confirm", "URL"],
    ["snapshot", "log", "URL"],
    ["forget", "log", "URL"],
]


@pytest.mark.parametrize(
    "verb", sampled_cases(OTHER_VERBS, 4, "verbs with a secret in a URL"), ids=lambda verb: "-".join(verb[:2])
)
def test_no_verb_repeats_a_secret_in_a_url(litelog: Command, verb: list[str]) -> None:
    litelog.lines(1)
    litelog("replicate", "--once", "log", "replica")
    for url in (f"s3://bucket/logs?secret-access-key={PASSWORD}", f"sftp://me:{PASSWORD}@127.0.0.1/logs"):
        done = litelog("-v", *(url if word == "URL" else word for word in verb))
        assert done.code == ExitCode.USAGE
        assert done.err
        assert_kept(done.out, done.err)


@pytest.mark.parametrize(
    "text",
    [
        f"logs: [{{path: log, replicas: [{{url: 's3://bucket', options: {{secret-access-key: [{OPTION}]}}}}]}}]",
        f"logs: [{{path: log, replicas: [{{url: 's3://bucket', options: {{secret-acess-key: {OPTION}}}}}]}}]",
        f"logs: [{{path: log, replicas: [{{url: 's3://bucket', options: {{profile: p, access-key-id: a, "
        f"secret-access-key: {OPTION}}}}}]}}]",
        f"logs: [{{path: log, replicas: [{{url: 's3://bucket', options: '{OPTION}'}}]}}]",
        f"logs: [{{path: log, replicas: [{{url: 'sftp://host/x', options: {{no-such: x, password: {OPTION}}}}}]}}]",
        f"logs: [{{path: log, replicas: [{{url: 'file:///x', options: {{password: {OPTION}}}}}]}}]",
    ],
)
def test_a_configuration_that_does_not_fit_shows_no_option(litelog: Command, text: str) -> None:
    litelog.lines(1)
    (litelog.folder / "litelog.yml").write_text(text)
    done = litelog("-v", "replicate", "--once", "--config", "litelog.yml", CANARY=PASSWORD)
    assert done.code == ExitCode.USAGE
    assert_kept(done.out, done.err)


def test_values_from_the_environment_in_the_configuration_are_not_shown(litelog: Command, server: S3Server) -> None:
    """``${VARIABLE}``, a daemon that cannot reach its store, and a signal."""
    litelog.lines(1)
    options = f"{{endpoint: 'http://127.0.0.1:1', access-key-id: {ACCESS_KEY}, secret-access-key: '${{CANARY}}'}}"
    (litelog.folder / "litelog.yml").write_text(
        f"shutdown-timeout: {FINAL}\nlogs: [{{path: log, replicas: [{{url: 's3://bucket/x', options: {options}}}]}}]"
    )
    words = ("-v", "replicate", "--json", "--config", "litelog.yml")
    litelog.before = SHORT_WAITS
    process = litelog.start(*words, cold=True, CANARY=SECRET_KEY)
    said = litelog.wait_for_line(process, "failure 2 in a row")
    arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=240)
    assert process.returncode == ExitCode.FINAL_SYNC_FAILED
    assert_kept(*said, out, err, arguments)
