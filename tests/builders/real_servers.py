"""Real servers for tests: starts them on a free port, kills, pauses and restarts them.

tests/README.md says how to get them. ``find_binary`` looks in the folders that ``LITELOG_TEST_SERVERS`` names, in their
``bin``, ``venv/bin`` and ``npm/node_modules/.bin``, and on the path. A skipped test names what is missing.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tests.builders.installed import is_installed

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "LITELOG_TEST_SERVERS"
START_SECONDS = 60
KEY_ID, SECRET = "litelogtests", "litelog-tests-secret"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The public key of the account devstoreaccount1, which every Azurite has."""

REGION = "us-east-1"


def find_binary(name: str) -> str | None:
    """The path of a program; None if it is not installed."""
    for folder in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        for place in (folder, f"{folder}/bin", f"{folder}/venv/bin", f"{folder}/npm/node_modules/.bin"):
            if found := shutil.which(name, path=place):
                return found
    return shutil.which(name) or shutil.which(name, path="/usr/sbin")


def find_jars() -> list[str]:
    """The paths of Spark's optional jars."""
    folders = filter(None, os.environ.get(VARIABLE, "").split(os.pathsep))
    return sorted(str(path) for folder in folders for path in Path(folder, "jars").glob("*.jar"))


@dataclass(frozen=True)
class Kind:
    """How to run a server, and how to connect to it."""

    name: str
    binary: str
    command: Callable[[RealServer], list[str]]
    place: Callable[[RealServer, str], tuple[str, dict[str, object]]]
    """Gives the URL and options of a replica in the bucket of this name."""
    make_bucket: Callable[[RealServer, str], None]
    needs: str
    """The client's package."""
    fencing: str = "required"
    environment: dict[str, str] = field(default_factory=dict)
    end: signal.Signals = signal.SIGKILL
    """The signal that ends it during its work."""
    known_failures: dict[str, str] = field(default_factory=dict)
    """The tests of the conformance suite that it fails, with the reasons."""


class RealServer:
    """One server with its own folder and port."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.data = folder / "data"
        self.data.mkdir(parents=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        with open(self.folder / "output", "ab") as output:
            self._process = subprocess.Popen(
                self.kind.command(self),
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self.kind.environment},
                cwd=self.folder,
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.close()
                return
            said = (self.folder / "output").read_text(errors="replace")[-500:]
            assert self._process.poll() is None, f"{self.kind.name} ended: {said}"
            assert time.monotonic() < deadline, f"{self.kind.name} accepts no connections: {said}"
            time.sleep(0.05)

    def end(self, how: signal.Signals | None = None) -> None:
        """Kill it and all processes that it started."""
        if self._process is not None:
            self._signal(how or self.kind.end)
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, what: signal.Signals) -> None:
        assert self._process is not None
        for process in (*descendants(self._process.pid), self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(process, what)

    def new_place(self) -> tuple[str, dict[str, object]]:
        """The URL and options of a replica in a new bucket."""
        bucket = f"bucket-{uuid4().hex[:16]}"
        self.kind.make_bucket(self, bucket)
        return self.kind.place(self, bucket)


def descendants(parent: int) -> list[int]:
    """All processes below a process: sshd starts one for each connection."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, left = [], [parent]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


def find_lacking(kind: Kind) -> str | None:
    """Why the server cannot be started here: its binary or its client's package is missing. None if it can."""
    if find_binary(kind.binary) is None:
        return f"{kind.binary} is neither on the path nor in ${VARIABLE} (tests/README.md says how to get it)"
    if not is_installed(kind.needs):
        return f"the package {kind.needs} is not installed"
    return None


def started(kind: Kind, folder: Path) -> RealServer:
    """The server, running."""
    server = RealServer(kind, folder)
    server.start()
    return server


def _s3_place(server: RealServer, bucket: str) -> tuple[str, dict[str, object]]:
    options = {"endpoint": server.endpoint, "region": REGION, "access-key-id": KEY_ID, "secret-access-key": SECRET}
    return f"s3://{bucket}/a/prefix", dict(options)


def _make_s3_bucket(server: RealServer, bucket: str) -> None:
    import boto3
    from botocore.exceptions import ClientError, HTTPClientError

    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=REGION,
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
    )
    deadline = time.monotonic() + START_SECONDS
    while True:  # some accept connections before they are ready
        try:
            client.create_bucket(Bucket=bucket)
            client.close()
            return
        except (ClientError, HTTPClientError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _s3(name: str, binary: str, command: Callable[[RealServer], list[str]], **more: Any) -> Kind:
    return Kind(name, binary, command, _s3_place, _make_s3_bucket, "boto3", **more)


def _binary(name: str) -> str:
    found = find_binary(name)
    assert found is not None
    return found


MINIO = _s3(
    "minio",
    "minio",
    lambda server: [_binary("minio"), "server", str(server.data), "--address", f"127.0.0.1:{server.port}", "--quiet"],
    environment={"MINIO_ROOT_USER": KEY_ID, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off"},
)
VERSITYGW = _s3(
    "versitygw",
    "versitygw",
    lambda server: [
        *(_binary("versitygw"), "--access", KEY_ID, "--secret", SECRET),
        *("--port", f"127.0.0.1:{server.port}", "posix", str(server.data)),
    ],
)
RCLONE = _s3(
    "rclone",
    "rclone",
    lambda server: [
        *(_binary("rclone"), "serve", "s3", "--addr", f"127.0.0.1:{server.port}"),
        *("--auth-key", f"{KEY_ID},{SECRET}", str(server.data)),
    ],
    fencing="isolated",
    known_failures={
        **dict.fromkeys(
            (
                "test_a_taken_key_is_refused_and_unchanged",
                "test_a_streamed_body_does_not_replace",
                "test_of_many_writers_exactly_one_wins",
                "test_everything_is_written_once",
            ),
            "it ignores If-None-Match",
        ),
        "test_deleting_a_missing_object_does_nothing": "it deletes a folder with what is in it",
    },
)
S3S = _s3(
    "s3s-fs",
    "s3s-fs",
    lambda server: [
        *(_binary("s3s-fs"), "--host", "127.0.0.1", "--port", str(server.port)),
        *("--access-key", KEY_ID, "--secret-key", SECRET, str(server.data)),
    ],
    fencing="isolated",
    known_failures={
        "test_of_many_writers_exactly_one_wins": "it looks whether a key is free, and then writes",
        **dict.fromkeys(
            ("test_a_missing_object_is_not_found", "test_deleting_a_missing_object_does_nothing"),
            "it answers InternalError for a key below another key",
        ),
    },
)


def _az_options(server: RealServer) -> dict[str, object]:
    account = "devstoreaccount1"
    parts = {
        "DefaultEndpointsProtocol": "http",
        "AccountName": account,
        "AccountKey": AZURE_KEY,
        "BlobEndpoint": f"{server.endpoint}/{account}",
    }
    return {"connection-string": ";".join(f"{name}={value}" for name, value in parts.items())}


def _make_container(server: RealServer, bucket: str) -> None:
    import fsspec

    options = {name.replace("-", "_"): value for name, value in _az_options(server).items()}
    fsspec.filesystem("az", skip_instance_cache=True, **options).mkdir(bucket)


AZURITE = Kind(
    "azurite",
    "azurite-blob",
    lambda server: [
        *(_binary("azurite-blob"), "--location", str(server.data), "--blobHost", "127.0.0.1"),
        *("--blobPort", str(server.port), "--silent", "--skipApiVersionCheck", "--disableTelemetry"),
    ],
    lambda server, bucket: (f"az://{bucket}/a/prefix", _az_options(server)),
    _make_container,
    "adlfs",
    end=signal.SIGTERM,  # it saves its index every 5 s: kill -9 would lose later writes
)


def _make_gs_bucket(server: RealServer, bucket: str) -> None:
    (server.data / bucket).mkdir()
    import json
    import urllib.request

    request = urllib.request.Request(
        f"{server.endpoint}/storage/v1/b", json.dumps({"name": bucket}).encode(), {"Content-Type": "application/json"}
    )
    with suppress(OSError):  # it may have seen the folder already
        urllib.request.urlopen(request).close()


FAKE_GCS = Kind(
    "fake-gcs-server",
    "fake-gcs-server",
    lambda server: [
        *(_binary("fake-gcs-server"), "-scheme", "http", "-host", "127.0.0.1", "-port", str(server.port)),
        *("-public-host", f"127.0.0.1:{server.port}", "-external-url", server.endpoint),
        *("-filesystem-root", str(server.data)),
    ],
    lambda server, bucket: (f"gs://{bucket}/a/prefix", {"token": "anon", "endpoint-url": server.endpoint}),
    _make_gs_bucket,
    "gcsfs",
)


def _sshd(server: RealServer) -> list[str]:
    folder = server.folder
    for name in ("host", "client"):
        if not (folder / name).exists():
            keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(keygen, check=True, stdin=subprocess.DEVNULL)
    shutil.copy(folder / "client.pub", folder / "authorized")
    (folder / "config").write_text(
        f"ListenAddress 127.0.0.1\nPort {server.port}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        f"PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"
        "MaxStartups 100\nMaxSessions 100\nSubsystem sftp internal-sftp\n"
    )
    os.makedirs("/run/sshd", exist_ok=True)
    return [_binary("sshd"), "-D", "-e", "-f", str(folder / "config")]


def _sftp_place(server: RealServer, bucket: str, key_option: str) -> tuple[str, dict[str, object]]:
    options: dict[str, object] = {"username": getpass.getuser(), key_option: str(server.folder / "client")}
    return f"sftp://127.0.0.1:{server.port}{server.data}/{bucket}", options


def _sftp(name: str, needs: str, key_option: str) -> Kind:
    return Kind(
        name,
        "sshd",
        _sshd,
        lambda server, bucket: _sftp_place(server, bucket, key_option),
        lambda server, bucket: (server.data / bucket).mkdir(),
        needs,
        fencing="isolated",
    )


SFTP = _sftp("sshd, paramiko", "paramiko", "key-filename")
SSHFS = _sftp("sshd, sshfs", "sshfs", "client-keys")

KINDS = (MINIO, VERSITYGW, RCLONE, S3S, AZURITE, FAKE_GCS, SFTP, SSHFS)
