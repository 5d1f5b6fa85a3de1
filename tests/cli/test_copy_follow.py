"""``litelog copy --follow``: a copy in another place is kept up to date until a signal, and refuses a second writer."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode
from tests.waiting import wait_until

if TYPE_CHECKING:
    from conftest import Command

    from tests.warm import Running


def cat(litelog: Command, place: str) -> str:
    return litelog("cat", place).out


def follow(litelog: Command, *arguments: str) -> Running:
    process = litelog.start("copy", "--follow", "--interval", "50ms", *arguments)
    litelog.wait_for_line(process, "up to date every")
    return process


def ship(litelog: Command, text: str, log: str = "log", replica: str = "all/log") -> None:
    assert litelog("append", log, text=text).code == 0
    assert litelog("replicate", "--once", log, replica).code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_copy_follows_its_replica_and_a_signal_ends_it_with_0(litelog: Command, number: int) -> None:
    ship(litelog, "one\n")
    process = follow(litelog, "all/log", "copy")
    wait_until(lambda: cat(litelog, "copy") == "one\n")
    ship(litelog, "two\n")
    wait_until(lambda: cat(litelog, "copy") == "one\ntwo\n")
    process.send_signal(number)
    out, _ = process.communicate()
    assert (process.returncode, out.count("copied ")) == (ExitCode.DONE, 2)
    assert litelog("verify", "copy").code == ExitCode.DONE


def test_with_all_new_replicas_are_found_after_kill_9_too(litelog: Command) -> None:
    ship(litelog, "one\n")
    killed = follow(litelog, "--all", "all", "copies")
    wait_until(lambda: cat(litelog, "copies/log") == "one\n")
    killed.kill()
    killed.communicate()
    follow(litelog, "--all", "all", "copies")
    ship(litelog, "other\n", "log2", "all/deep/log2")
    wait_until(lambda: cat(litelog, "copies/deep/log2") == "other\n")


def test_a_copy_that_became_a_log_of_its_own_fences_the_copying(litelog: Command) -> None:
    ship(litelog, "one\n")
    process = follow(litelog, "all/log", "copy")
    wait_until(lambda: cat(litelog, "copy") == "one\n")
    assert litelog("restore", "copy", "-o", "moved").code == 0
    assert litelog("append", "moved", text="mine\n").code == 0
    assert litelog("replicate", "--once", "--takeover", "moved", "copy").code == 0
    _, err = process.communicate()
    assert (process.returncode, "is not a copy of" in err) == (ExitCode.FENCED, True)
    assert cat(litelog, "copy") == "one\nmine\n"
