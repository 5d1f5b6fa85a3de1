"""The example configuration under the unit's hardening: only the unit's folders are writable."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import litelog
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
UNIT = (ROOT / "etc" / "litelog.service").read_text()
ENTER = ["unshare", "--mount", "--propagation", "private"]


@pytest.fixture(autouse=True)
def _needs_mounts() -> None:
    if not os.path.isdir("/var/backups"):
        pytest.skip("there is no /var/backups to mount a folder at")
    if subprocess.run([*ENTER, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount: unshare --mount fails")


def setting(name: str) -> list[str]:
    lines = [line.partition("=")[2] for line in UNIT.splitlines() if line.startswith(f"{name}=")]
    return [word for line in lines for word in shlex.split(line)]


class Sandbox:
    """The daemon as the unit starts it. ``lib`` is /var/lib, and ``backups`` is /var/backups."""

    def __init__(self, folder: Path, writable: list[str]) -> None:
        self.lib, self.backups = folder / "lib", folder / "backups"
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(str(folder / "notify"))
        self.notify.settimeout(WAIT_SECONDS)
        mounts = [f"mount --bind {self.lib} /var/lib", f"mount --bind {self.backups} /var/backups"]
        mounts += [f"mount -o remount,bind,ro {place}" for place in ("/", "/var/lib", "/var/backups")]
        for place in writable:
            source = Path(str(place).replace("/var/lib", str(self.lib)).replace("/var/backups", str(self.backups)))
            source.mkdir(parents=True)
            mounts.append(f"mount --bind {source} {place}")
        program, *arguments = setting("ExecStart")
        assert Path(program).name == "litelog"
        command = [sys.executable, "-m", "litelog_cli", *arguments]
        command[command.index("/etc/litelog.yml")] = str(ROOT / "etc" / "litelog.yml")
        environment = dict(pair.split("=", 1) for pair in setting("Environment") if "%" not in pair)
        environment |= {"NOTIFY_SOCKET": str(folder / "notify"), "PATH": os.environ["PATH"]}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "cmd")])
        script = "\n".join(["set -e", *mounts, f"exec {shlex.join(command)}"])
        self.process = subprocess.Popen(
            [*ENTER, "sh", "-c", script], env=environment, cwd="/", stderr=subprocess.PIPE, text=True
        )

    def hear_until(self, line: str) -> list[str]:
        """The lines of the first message with that line."""
        while line not in (received := self.notify.recv(4096).decode().split("\n")):
            pass
        return received

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.notify.close()


WRITABLE = [f"/var/lib/{name}" for name in setting("StateDirectory")]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "lib").mkdir()
    (tmp_path / "backups").mkdir()
    return tmp_path


def test_the_example_is_ready_before_its_log_exists_and_replicates_it_later(folder: Path) -> None:
    granted = [path.removeprefix("-") for path in setting("ReadWritePaths")]
    with closing(Sandbox(folder, [*WRITABLE, *granted])) as sandbox:
        ready = sandbox.hear_until("READY=1")
        assert "STATUS=replicates to 1 replica; waiting for /var/lib/events to appear" in ready
        events, backup = sandbox.lib / "events", sandbox.backups / "events"
        with litelog.LogWriter(events) as writer:
            writer.append([b"first", b"second"])
        wait_until(lambda: list(backup.glob("generations/*/wal/*/*")), "the log is shipped")
        sandbox.process.send_signal(signal.SIGTERM)
        sandbox.hear_until("STOPPING=1")
        assert sandbox.process.wait(WAIT_SECONDS) == 0
        assert litelog.verify_replica(backup, against=events).is_sound


def test_without_a_writable_folder_the_example_does_not_become_ready(folder: Path) -> None:
    """So the file system is read-only, and only ReadWritePaths allows the daemon to write."""
    with closing(Sandbox(folder, WRITABLE)) as sandbox:
        with litelog.LogWriter(sandbox.lib / "events") as writer:
            writer.append(b"first")
        assert sandbox.process.stderr is not None
        assert next(line for line in sandbox.process.stderr if "Read-only file system" in line)
        sandbox.process.send_signal(signal.SIGTERM)
        assert sandbox.process.wait(WAIT_SECONDS) != 0
        sandbox.notify.setblocking(False)
        received = []
        while True:
            try:
                received.append(sandbox.notify.recv(4096).decode())
            except BlockingIOError:
                break
        assert not [message for message in received if "READY=1" in message]
