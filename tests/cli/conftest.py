"""Runs the command as people do: as a process.

Commands are forked from a process that has imported everything (``tests/warm.py``), as the start of an interpreter
takes longer than most commands. LITELOG_TEST_COLD_STARTS=1 starts an interpreter for each command. An interpreter also
starts for a command with variables that it reads, and for a command that a test starts cold.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from litelog.log.writer import LogWriter
from litelog_cli.verbs.append import DEFAULT_BATCH
from tests.builders.short_waits import RUN_COMMAND

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.warm import Running, Warm

DEADLINE_SECONDS = 240
"""Longer than any process here takes, even on a busy machine."""

MODULE = "-m litelog_cli"


@dataclass(frozen=True)
class Outcome:
    """The exit code and the output of a process."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """The JSON objects that it printed."""
        return [json.loads(line) for line in self.out.splitlines()]


class Command:
    """The litelog command in a new folder, with an environment in which nothing is configured."""

    def __init__(self, folder: Path, warm: Warm) -> None:
        self.folder = folder
        self._warm = warm
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("LITELOG")}
        self.environment["XDG_STATE_HOME"] = str(folder / "state")
        self.environment["LITELOG_LOG_FORMAT"] = "text"  # as people see it; auto would give JSON here
        self.processes: list[Running] = []
        self.before = ""
        """Lines of Python that run first, such as SHORT_WAITS of tests/builders/short_waits.py."""

    def __call__(self, *arguments: str, text: str = "", **environment: str) -> Outcome:
        """Run the command to its end with ``text`` as standard input."""
        process = self.start(*arguments, **environment)
        out, err = process.communicate(text, timeout=DEADLINE_SECONDS)
        self.processes.remove(process)
        assert process.returncode is not None
        return Outcome(process.returncode, out, err)

    def start(self, *arguments: str, cold: bool = False, **environment: str) -> Running:
        """Start the command and leave it running. ``cold``: in a new interpreter."""
        everything = {**self.environment, **environment}
        program = f"{self.before}\n{RUN_COMMAND}" if self.before else MODULE
        process = self._warm.spawn(program, *arguments, cwd=self.folder, environment=everything, cold=cold)
        self.processes.append(process)
        return process

    def wait_for_line(self, process: Running, *texts: str) -> list[str]:
        """Read a process's log until each of ``texts`` was in a line, in any order; return those lines."""
        assert process.stderr
        said, awaited = [], set(texts)
        for line in process.stderr:
            said.append(line)
            awaited = {text for text in awaited if text not in line}
            if not awaited:
                return said
        raise AssertionError(f"the process ended before it said {awaited}: {said}")

    def lines(self, count: int, log: str = "log") -> str:
        """Append a number of lines to the log, and return them."""
        lines = [f"line {number}" for number in range(count)]
        with LogWriter(str(self.folder / log)) as writer:
            for first in range(0, count, DEFAULT_BATCH):
                writer.append([line.encode() for line in lines[first : first + DEFAULT_BATCH]])
        return "".join(f"{line}\n" for line in lines)


@pytest.fixture
def litelog(tmp_path: Path, warm: Warm) -> Iterator[Command]:
    command = Command(tmp_path, warm)
    yield command
    for process in command.processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with the processes that it started
        process.wait()
        with suppress(BrokenPipeError), process:
            pass


@pytest.fixture(autouse=True)
def _text_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELOG_LOG_FORMAT", "text")
