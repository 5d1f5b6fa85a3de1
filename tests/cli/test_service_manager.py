"""The notifications of ``litelog replicate`` to systemd, received on a real socket."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from litelog_cli.process import ServiceManager

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

DEADLINE_SECONDS = 240


class Manager:
    """A service manager's end of the socket."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self._socket.settimeout(DEADLINE_SECONDS)

    def receive(self) -> list[str]:
        """The lines of the next message."""
        return self._socket.recv(4096).decode().split("\n")

    def hear_until(self, line: str) -> list[list[str]]:
        """All messages up to the one with that line, within the deadline."""
        received = [self.receive()]
        end = time.monotonic() + DEADLINE_SECONDS
        while line not in received[-1]:
            assert time.monotonic() < end, received
            received.append(self.receive())
        return received

    def hears_nothing(self) -> bool:
        """Whether no message is waiting."""
        self._socket.setblocking(False)
        try:
            self._socket.recv(4096)
        except BlockingIOError:
            return True
        finally:
            self._socket.settimeout(DEADLINE_SECONDS)
        return False

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "notify") if request.param == "path" else f"@litelog-test-{os.getpid()}-{tmp_path.name}"


def test_a_daemon_is_ready_after_its_first_sync_and_says_when_it_stops(litelog: Command, address: str) -> None:
    litelog.lines(10)
    with closing(Manager(address)) as manager:
        process = litelog.start("replicate", "log", "replica", NOTIFY_SOCKET=address)
        before = manager.hear_until("READY=1")
        assert ["STATUS=first sync"] in before
        assert litelog("generations", "--json", "replica").lines[-1]["next"] == 10, "READY=1 came before the first sync"
        process.send_signal(signal.SIGTERM)
        (*_, stopping) = manager.hear_until("STOPPING=1")
        assert "EXTEND_TIMEOUT_USEC=20000000" in stopping  # shutdown-timeout, and 10 s
        assert process.wait(DEADLINE_SECONDS) == 0


def test_a_daemon_whose_replica_cannot_be_reached_is_not_ready(litelog: Command, tmp_path: Path) -> None:
    litelog.lines(10)
    (litelog.folder / "replica").write_text("a file where a folder has to be")
    with closing(Manager(str(tmp_path / "notify"))) as manager:
        process = litelog.start("replicate", "log", "replica", NOTIFY_SOCKET=manager.address)
        litelog.wait_for_line(process, "failure 2 in a row")
        process.send_signal(signal.SIGTERM)
        assert all("READY=1" not in message for message in manager.hear_until("STOPPING=1"))


def test_a_daemon_is_ready_without_its_log_and_reports_that_it_waits(litelog: Command, tmp_path: Path) -> None:
    with closing(Manager(str(tmp_path / "notify"))) as manager:
        process = litelog.start("replicate", "log", "replica", NOTIFY_SOCKET=manager.address)
        ready = manager.hear_until("READY=1")[-1]
        assert f"STATUS=replicates to 1 replica; waiting for {litelog.folder / 'log'} to appear" in ready
        litelog.lines(10)
        litelog.wait_for_line(process, "continues after")


def test_one_replica_that_is_down_does_not_hold_up_the_others(litelog: Command, tmp_path: Path) -> None:
    litelog.lines(10)
    (litelog.folder / "down").write_text("a file where a folder has to be")
    with closing(Manager(str(tmp_path / "notify"))) as manager:
        litelog.start("replicate", "log", "replica", "down", NOTIFY_SOCKET=manager.address)
        assert manager.hear_until("READY=1")


def test_the_watchdog_is_fed_while_the_loop_turns_and_not_when_it_is_stopped(litelog: Command, tmp_path: Path) -> None:
    litelog.lines(10)
    with closing(Manager(str(tmp_path / "notify"))) as manager:
        environment = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "600000"}
        process = litelog.start("replicate", "log", "replica", **environment)
        manager.hear_until("READY=1")
        for _ in range(3):
            manager.hear_until("WATCHDOG=1")
        process.send_signal(signal.SIGSTOP)
        wait_for_state(process.pid, "T")
        while not manager.hears_nothing():
            pass
        process.send_signal(signal.SIGCONT)
        manager.hear_until("WATCHDOG=1")


def test_a_fenced_daemon_says_that_it_stops_before_it_waits_for_its_program(litelog: Command, tmp_path: Path) -> None:
    """Its main loop has ended: without the message, the watchdog would kill it and start it again."""
    litelog.lines(10)
    program = f"sh -c \"trap '' TERM; echo ready; read line < {tmp_path / 'end'}\""
    os.mkfifo(tmp_path / "end")
    with closing(Manager(str(tmp_path / "notify"))) as manager:
        environment = {"NOTIFY_SOCKET": manager.address}
        process = litelog.start("replicate", "--exec", program, "--state-dir", "mine", "log", "replica", **environment)
        manager.hear_until("READY=1")
        assert litelog("replicate", "--once", "--state-dir", "other", "--takeover", "log", "replica").code == 0
        litelog.lines(1)
        assert "EXTEND_TIMEOUT_USEC=20000000" in manager.hear_until("STOPPING=1")[-1]
        os.close(
            os.open(tmp_path / "end", os.O_WRONLY | os.O_NONBLOCK)
        )  # the pipe has a reader: the program still runs
        assert process.wait(DEADLINE_SECONDS) == 5


def test_a_start_may_take_longer_only_while_its_first_sync_advances(tmp_path: Path) -> None:
    now = 100.0
    with closing(Manager(str(tmp_path / "notify"))) as manager:
        service = ServiceManager({"NOTIFY_SOCKET": manager.address}, lambda: now)
        said = "replicates to 1 replica; waiting for a to appear"

        def turn(*, ready: bool, advancing: bool) -> None:
            service.turned(lambda: ready, lambda: said, lambda: advancing)

        turn(ready=False, advancing=True)
        now += 10
        turn(ready=False, advancing=False)
        assert manager.hears_nothing()
        now += 10
        turn(ready=False, advancing=True)
        assert manager.receive() == ["EXTEND_TIMEOUT_USEC=60000000"]
        turn(ready=True, advancing=True)
        assert manager.receive() == ["READY=1", f"STATUS={said}"]
        now += 10
        turn(ready=True, advancing=True)
        assert manager.hears_nothing()
        said, now = "replicates to 1 replica", now + 10
        turn(ready=True, advancing=True)
        assert manager.receive() == ["STATUS=replicates to 1 replica"]


def test_only_the_loops_turns_feed_the_watchdog_several_times_within_its_time(tmp_path: Path) -> None:
    now = 100.0
    threads = threading.active_count()
    with closing(Manager(str(tmp_path / "notify"))) as manager:
        service = ServiceManager({"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "8000000"}, lambda: now)
        assert threading.active_count() == threads, "a timer would feed it for a hung loop"
        service.turned(lambda: False, lambda: "")
        assert manager.receive() == ["WATCHDOG=1"]
        now += 1.9
        service.turned(lambda: False, lambda: "")
        assert manager.hears_nothing()
        now += 0.2  # more than a quarter of its time
        service.turned(lambda: False, lambda: "")
        assert manager.receive() == ["WATCHDOG=1"]


@pytest.mark.parametrize("extra", [{"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {}])
def test_a_watchdog_that_is_not_ours_is_not_fed(tmp_path: Path, extra: dict[str, str]) -> None:
    with closing(Manager(str(tmp_path / "notify"))) as manager:
        service = ServiceManager({"NOTIFY_SOCKET": manager.address, **extra})
        service.turned(lambda: True, lambda: "now")
        assert manager.receive() == ["READY=1", "STATUS=now"]
        assert manager.hears_nothing()


def test_the_program_cannot_speak_for_the_daemon(litelog: Command, tmp_path: Path) -> None:
    litelog.lines(1)
    with closing(Manager(str(tmp_path / "notify"))) as manager:
        environment = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "9000000", "LEFT": "as it was"}
        done = litelog("replicate", "--exec", "env", "log", "replica", **environment)
    assert "LEFT=as it was" in done.out
    assert "NOTIFY_SOCKET" not in done.out
    assert "WATCHDOG" not in done.out


def test_replication_does_not_depend_on_being_heard(litelog: Command) -> None:
    litelog.lines(10)
    done = litelog("replicate", "--once", "log", "replica", NOTIFY_SOCKET="/no/such/socket", WATCHDOG_USEC="1000")
    assert done.code == 0
    assert done.err.count("cannot be notified") == 1


def wait_for_state(pid: int, state: str) -> None:
    """Wait until the kernel reports that a process is in that state."""
    end = time.monotonic() + DEADLINE_SECONDS
    while True:
        with open(f"/proc/{pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] == state:
                return
        assert time.monotonic() < end
