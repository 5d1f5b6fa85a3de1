"""``litelog cat`` of several places of one log: a daemon that is killed, the replica meanwhile, the daemon again."""

from __future__ import annotations

import signal
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from conftest import Command

    from tests.warm import Running

pytestmark = pytest.mark.process


class Place:
    """A log that a daemon serves and replicates, both in this folder."""

    def __init__(self, litelog: Command) -> None:
        self.litelog = litelog
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/logs/log"
        self.replica = f"file://{litelog.folder}/backup"
        for name, more in (("serve", f"addr: 127.0.0.1:{port}\nserve: all\n"), ("quiet", "")):
            (litelog.folder / f"{name}.yml").write_text(
                f"state-dir: ./state\n{more}sync-interval: 20ms\nlogs:\n  - path: ./log\n    replicas: [./backup]\n"
            )

    def append(self, numbers: range) -> None:
        text = "".join(f"line {number}\n" for number in numbers)
        assert self.litelog("append", "log", text=text).code == ExitCode.DONE

    def serve(self) -> Running:
        daemon = self.litelog.start("replicate", "--config", "serve.yml")
        self.litelog.wait_for_line(daemon, "listening")
        return daemon

    def ship(self) -> None:
        """Replicate what the log holds, without a service."""
        assert self.litelog("replicate", "--once", "--config", "quiet.yml").code == ExitCode.DONE


def test_a_follower_is_exact_while_its_daemon_is_killed_and_comes_back(litelog: Command) -> None:
    place = Place(litelog)
    place.append(range(20))
    daemon = place.serve()
    wait_until(lambda: len(litelog("cat", place.url).out.splitlines()) == 20)
    follower = litelog.start("cat", "--follow", place.url, place.replica)
    assert follower.stdout is not None
    lines: list[str] = []
    stdout = follower.stdout
    thread = threading.Thread(target=lambda: lines.extend(iter(stdout.readline, "")), daemon=True)
    thread.start()

    def arrived(count: int) -> None:
        wait_until(lambda: len(lines) >= count, why=lambda: lines[-3:])

    arrived(20)
    for number in range(20, 200, 60):  # killed in the middle of what is appended, and started again
        place.append(range(number, number + 20))
        daemon.kill()
        daemon.wait(WAIT_SECONDS)
        place.append(range(number + 20, number + 40))
        place.ship()
        arrived(number + 40)  # from the replica
        daemon = place.serve()
        place.append(range(number + 40, number + 60))
        arrived(number + 60)
    assert lines == [f"line {number}\n" for number in range(200)]
    follower.send_signal(signal.SIGTERM)
    _, err = follower.communicate(timeout=WAIT_SECONDS)
    litelog.processes.remove(follower)
    assert "the log's other places are read meanwhile" in err


def test_without_its_daemon_the_replica_is_read_to_its_end(litelog: Command) -> None:
    place = Place(litelog)
    place.append(range(20))
    place.ship()
    done = litelog("cat", place.url, place.replica)
    assert (done.code, done.out) == (ExitCode.DONE, "".join(f"line {number}\n" for number in range(20)))
    assert f"{place.url}: cannot be read now" in done.err
    assert litelog("cat", "--from", "15", "--to", "17", place.url, place.replica).out == "line 15\nline 16\n"
    assert litelog("cat", "--from", "latest", place.url, place.replica).out == "line 19\n"
    assert litelog("cat", place.url, "backup").out == done.out
    nowhere = litelog("cat", place.url, place.url)
    assert (nowhere.code, nowhere.out) == (ExitCode.FAILURE, "")


def test_a_log_and_its_replica_are_one(litelog: Command) -> None:
    place = Place(litelog)
    place.append(range(20))
    place.ship()
    place.append(range(20, 25))
    expected = "".join(f"line {number}\n" for number in range(25))
    assert litelog("cat", "log", place.replica).out == expected
    assert litelog("cat", "--from", "1day", "log", place.replica).out == expected
    for options, said in (
        (("--generation", "ab", "log", place.replica), "--generation is for one place of a log, not for several"),
        (("--format", "gazette", "log", place.replica), "--format gazette is for one place"),
        ((place.replica, "log"), "log: is not a replica: of several places of a log, only the first may be a folder"),
    ):
        refused = litelog("cat", *options)
        assert (refused.code, said in refused.err) == (ExitCode.USAGE, True), refused.err
