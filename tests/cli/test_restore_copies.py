"""``litelog restore --delta`` brings copies up to date, and ``--follow`` keeps them up to date."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command


def segments(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.log")}


@pytest.fixture
def replica(litelog: Command) -> str:
    litelog.lines(1000)
    assert litelog("replicate", "--once", "log", "replica").code == ExitCode.DONE
    return "replica"


def test_a_copy_follows_until_a_signal(litelog: Command, replica: str) -> None:
    process = litelog.start("restore", replica, "-o", "copy", "--follow", "--poll-interval", "0.05")
    try:
        wait_until(lambda: segments(litelog.folder / "copy") == segments(litelog.folder / "log"))
        litelog.lines(500)
        assert litelog("replicate", "--once", "log", "replica").code == ExitCode.DONE
        wait_until(lambda: segments(litelog.folder / "copy") == segments(litelog.folder / "log"))
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(WAIT_SECONDS)
    assert code == ExitCode.DONE


def test_a_delta_brings_an_older_copy_up_to_date(litelog: Command, replica: str) -> None:
    assert litelog("restore", replica, "-o", "copy").code == ExitCode.DONE
    litelog.lines(500)
    assert litelog("replicate", "--once", "log", "replica").code == ExitCode.DONE
    assert litelog("restore", replica, "-o", "copy").code == ExitCode.FAILURE
    assert litelog("restore", replica, "-o", "copy", "--delta").code == ExitCode.DONE
    assert segments(litelog.folder / "copy") == segments(litelog.folder / "log")


@pytest.mark.parametrize("others", [["--follow", "--sequence", "1"], ["--delta", "--if-not-exists"]])
def test_options_that_contradict_each_other_are_refused(litelog: Command, replica: str, others: list[str]) -> None:
    done = litelog("restore", replica, "-o", "copy", *others)
    assert done.code == ExitCode.USAGE
    assert others[0] in done.err
    assert not (litelog.folder / "copy").exists()
