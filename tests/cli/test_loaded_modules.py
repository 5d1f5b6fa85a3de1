"""The modules that a verb loads: their number has a limit for each, and the daemon loads its HTTP server for a
client."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from litelog import LogWriter
from litelog.codec.lz4_frames import decompress_frames
from litelog.errors import ExitCode
from litelog.native.library import has_fast_checksums
from replica_clients.file import FileStore

if TYPE_CHECKING:
    from pathlib import Path

MODULES = {
    "--help": 152,
    "version": 152,
    "restore --help": 187,
    "generations REPLICA": 321,
    "wal REPLICA": 321,
    "cat REPLICA": 400,
    "restore -o OUTPUT REPLICA": 311,
    "verify REPLICA": 370,
    "copy REPLICA OUTPUT": 267,
    "replicate --once --state-dir STATE LOG REPLICA": 424,
}
"""The most modules that each verb loads with a folder, with Python's own. A twentieth of them is room."""

READERS = (
    "generations REPLICA",
    "generations --wide REPLICA",
    "snapshots REPLICA",
    "segments REPLICA",
    "wal REPLICA",
    "ls REPLICA",
    "restore -o OUTPUT REPLICA",
    "restore --dry-run -o OUTPUT REPLICA",
    "verify REPLICA",
    "copy REPLICA OUTPUT",
    "status --replica REPLICA",
)
"""Verbs that read a replica, and need no records of it."""

SMALL_SEGMENT, SEGMENT = 1 << 18, 64 << 20
COMMITS = {
    "one small commit": (1, 100, SMALL_SEGMENT),
    "many commits": (300, 1000, SMALL_SEGMENT),
    "a large commit": (1, 3_000_000, SMALL_SEGMENT),
    "a log segment of several WAL segments": (180, 100_000, SEGMENT),
}
"""The number of commits, the bytes of each one's record, and those of a log segment."""

HTTP = {"asyncio", "ssl", "http.client", "urllib.request", "uvicorn", "starlette", "jinja2", "prometheus_client"}
HTTP |= {"pydantic"}  # the status as a document; the configuration needs none of it
CLIENT = (
    "import socket; s = socket.socket(socket.AF_UNIX); s.connect({path!r}); "
    "s.sendall(b'GET /livez HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n'); assert b' 200 ' in s.recv(100)"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log of a few records and its replica."""
    folder = tmp_path_factory.mktemp("modules")
    with LogWriter(folder / "log") as writer:
        writer.append([b"record", b"another record"])
    places = ("--state-dir", str(folder / "state"), str(folder / "log"), str(folder / "replica"))
    loaded(["replicate", "--once", *places])
    return folder


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a replica that has sealed segments, WAL segments, and a compressed snapshot."""
    folder = tmp_path_factory.mktemp("sealed")
    with LogWriter(folder / "log", segment_bytes=1 << 16) as writer:
        for number in range(300):
            writer.append([b"%d," % number * 300])
    places = ("--state-dir", str(folder / "state"), str(folder / "log"), str(folder / "replica"))
    loaded(["replicate", "--once", *places])
    store = FileStore(str(folder / "replica"))
    newest = [info.key for info in store.list("generations/") if "/snapshots/" in info.key][-1]
    with store.open(newest) as stream:
        frames = stream.read()
    assert len(decompress_frames(frames, 1 << 20)) > len(frames)
    return folder


def loaded(arguments: list[str]) -> set[str]:
    """The modules that a new process has loaded when the command ends."""
    script = (
        "import json, sys; from litelog_cli.main import run; "
        f"code = run({arguments!r}); print(); print(json.dumps([int(code), *sorted(sys.modules)]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    code, *modules = json.loads(done.stdout.splitlines()[-1])
    assert code == ExitCode.DONE, done.stderr
    return set(modules)


@pytest.mark.process
@pytest.mark.parametrize("verb", MODULES)
def test_a_verb_loads_no_more_modules_than_it_needs(verb: str, place: Path, tmp_path: Path) -> None:
    named = {"REPLICA": place / "replica", "LOG": place / "log", "STATE": place / "state", "OUTPUT": tmp_path / "out"}
    modules = loaded([str(named.get(word, word)) for word in verb.split()])
    assert len(modules) <= MODULES[verb]
    assert not modules & HTTP
    assert "yaml" not in modules  # no configuration file is read


@pytest.mark.process
@pytest.mark.parametrize("verb", READERS)
def test_a_replica_is_read_without_numpy(verb: str, sealed: Path, tmp_path: Path) -> None:
    """It would take a third of such a verb's start. Without the compiled part, it does the work."""
    if not has_fast_checksums():
        pytest.skip("the compiled library is not built, or computes no checksums")
    named = {"REPLICA": sealed / "replica", "OUTPUT": tmp_path / "out"}
    assert "numpy" not in loaded([str(named.get(word, word)) for word in verb.split()])


@pytest.mark.process
@pytest.mark.parametrize("written", COMMITS)
def test_a_daemon_ships_and_seals_without_numpy(written: str, tmp_path: Path) -> None:
    """NumPy would take 10 MiB of a daemon, and a fifth of its start. Without the compiled part, it does the work."""
    if not has_fast_checksums():
        pytest.skip("the compiled library is not built, or computes no checksums")
    count, size, segment_bytes = COMMITS[written]
    with LogWriter(tmp_path / "log", segment_bytes=segment_bytes) as writer:
        for _ in range(count):
            writer.append([bytes(range(250)) * (size // 250), b""])
    command = ["replicate", "--once", "--state-dir", str(tmp_path / "state"), str(tmp_path / "log")]
    assert "numpy" not in loaded([*command, str(tmp_path / "replica")])
    with LogWriter(tmp_path / "log", segment_bytes=segment_bytes) as writer:
        writer.append([b"more"])
    assert "numpy" not in loaded([*command, str(tmp_path / "replica")])


@pytest.mark.process
@pytest.mark.parametrize("has_client", [False, True])
def test_a_daemon_loads_its_http_server_for_the_first_client(has_client: bool, place: Path, tmp_path: Path) -> None:
    socket = str(tmp_path / "socket")
    program = [sys.executable, "-c", CLIENT.format(path=socket) if has_client else "pass"]
    command = ["replicate", "--exec", shlex.join(program), "--addr", f"unix:{socket}", "--state-dir"]
    modules = loaded([*command, str(place / "state"), str(place / "log"), str(place / "replica")])
    assert modules & HTTP == (HTTP if has_client else set())
