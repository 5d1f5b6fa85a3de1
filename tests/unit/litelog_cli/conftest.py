"""Runs the command in this process, in a new folder, without a configuration."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from litelog.log.writer import LogWriter
from litelog_cli.main import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMIT = 100
"""Records in a commit of the log."""


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """The JSON objects that it printed."""
        return [json.loads(line) for line in self.out.splitlines()]


class InProcess:
    """Runs the command. ``folder`` is the working folder."""

    def __init__(self, folder: Path, captured: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._captured = captured

    def __call__(self, *arguments: str) -> Ended:
        self._captured.readouterr()
        code = run(list(arguments))
        return Ended(code, *self._captured.readouterr())

    def append(self, commits: int, log: str = "log") -> None:
        """Append commits of COMMIT records to a log."""
        with LogWriter(str(self.folder / log)) as writer:
            for _ in range(commits):
                writer.append([b"a record"] * COMMIT)

    def replica(self, commits: int = 3) -> str:
        """A replica of a log of that many commits."""
        self.append(commits)
        assert self("replicate", "--once", "log", "replica").code == 0
        return "replica"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[InProcess]:
    for name in [name for name in os.environ if name.startswith("LITELOG")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("LITELOG_LOG_FORMAT", "text")
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield InProcess(tmp_path, capsys)
    root.handlers[:] = handlers
    root.setLevel(level)
