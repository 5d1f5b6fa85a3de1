"""If its output cannot be written, every verb reports that in one line, or ends quietly if its reader has ended."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode
from litelog_cli.main import BROKEN_PIPE, run

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator

    from tests.unit.litelog_cli.conftest import InProcess

PRINTING = (
    "cat log", "cat --json log", "cat replica", "check replica", "check --json replica",
    "completion bash", "config check c.yml", "config example", "config show c.yml", "generations replica",
    "generations --json replica", "help", "help restore", "--help", "restore --help",
    "--version", "ls .", "man restore", "prune replica --max-age 30d", "restore replica -o out",
    "restore replica -o out --dry-run --json", "segments log", "segments --json replica", "service grafana",
    "snapshot log replica", "snapshots replica", "status replica", "status --json replica", "verify replica",
    "verify --help", "verify --json replica", "version", "wal --headers replica", "wal --json replica",
)  # fmt: skip
"""A command line of each verb that prints."""


@pytest.fixture
def replica(command: InProcess) -> str:
    (command.folder / "c.yml").write_text("logs:\n  - {path: log, replicas: [{url: replica}]}\n")
    return command.replica()


def full() -> io.TextIOWrapper:
    return open("/dev/full", "w")


def closed_pipe() -> io.TextIOWrapper:
    reading, writing = os.pipe()
    os.close(reading)
    return open(writing, "w")


@pytest.fixture
def unwritable() -> Iterator[list[io.TextIOWrapper]]:
    opened: list[io.TextIOWrapper] = []
    yield opened
    for each in opened:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), each.fileno())  # the rest of the buffer is written there
        each.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("line", PRINTING)
def test_an_output_that_is_full_is_a_line_and_a_failure(
    replica: str,
    line: str,
    unwritable: list[io.TextIOWrapper],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    capsys.readouterr()
    unwritable.append(full())
    monkeypatch.setattr("sys.stdout", unwritable[-1])
    code = run(line.split())
    said = capsys.readouterr().err.splitlines()
    assert code == ExitCode.FAILURE, said
    assert said[-1] == "litelog: standard output: No space left on device"
    assert not [each for each in said if "Traceback" in each or "unexpected" in each]


@pytest.mark.parametrize("line", PRINTING)
def test_an_output_whose_reader_is_gone_ends_quietly(
    replica: str,
    line: str,
    unwritable: list[io.TextIOWrapper],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    capsys.readouterr()
    unwritable.append(closed_pipe())
    monkeypatch.setattr("sys.stdout", unwritable[-1])
    code = run(line.split())
    said = capsys.readouterr().err
    assert code == BROKEN_PIPE, said
    assert not re.search("standard output|Broken pipe|unexpected|Traceback", said)
