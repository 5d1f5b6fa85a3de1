"""SpacetimeDB's own crate for tests and recordings: a program that writes, compresses, resets and reads commitlogs.

tests/README.md says how to build the program, whose source is in ``tests/fixtures/spacetimedb``.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, Self, cast

import pytest

from tests.builders.real_servers import find_binary

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = "stdb-recorder"
CRATE = "spacetimedb-commitlog 1.3.0"
REASON = f"{PROGRAM} is not built (see tests/README.md)"

needs_recorder = pytest.mark.skipif(find_binary(PROGRAM) is None, reason=REASON)


class CrateError(Exception):
    """The crate refused what it was asked, and the program ended."""


class CommitlogWriter:
    """A process that has a commitlog open for writing. A context manager: at its end the log is closed."""

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [_program(), "write", str(folder), str(segment_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.last: int | None = self._answer()["last"]

    def append(self, commits: int, records: int = 1, size: int = 40) -> int:
        """Append commits of ``records`` transactions of ``size`` bytes each, synced. Return the last transaction."""
        return cast("int", self._ask(f"append {commits} {records} {size}")["last"])

    def set_epoch(self, epoch: int) -> None:
        self._ask(f"epoch {epoch}")

    def compress(self) -> None:
        """Compress all log segments except for the newest one, in place."""
        self._ask("compress")

    def reset(self, last: int) -> None:
        """Remove all transactions after the commit that holds ``last``."""
        self._ask(f"reset {last}")

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._pipe(self._process.stdin).write("close\n")
            self._end()
            assert self._process.returncode == 0

    def _ask(self, command: str) -> dict[str, Any]:
        pipe = self._pipe(self._process.stdin)
        pipe.write(f"{command}\n")
        pipe.flush()
        answer = self._answer()
        self.last = answer["last"]
        return answer

    def _answer(self) -> dict[str, Any]:
        line = self._pipe(self._process.stdout).readline()
        if not line:
            self._end()
            raise CrateError(f"{PROGRAM} ended with {self._process.returncode}")
        return cast("dict[str, Any]", json.loads(line))

    def _end(self) -> None:
        with suppress(BrokenPipeError):
            self._pipe(self._process.stdin).close()
        self._process.wait()
        self._pipe(self._process.stdout).close()

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


def read_commitlog(folder: Path) -> dict[str, Any]:
    """What the crate reads in a folder: ``meta`` (its ``committed_meta``), ``commits`` (first transaction, epoch, n,
    bytes, checksum), ``errors``, the number of ``transactions``, and its ``fold`` over them."""
    return _run("read", str(folder))


def write_version_0(folder: Path, segment_bytes: int, commits: int, records: int, size: int) -> None:
    """Append to a log with the last release that wrote version 0."""
    folder.mkdir(parents=True, exist_ok=True)
    _run("write-v0", str(folder), *map(str, (segment_bytes, commits, records, size)))


def mirror(stream: Path, folder: Path) -> dict[str, Any]:
    """Feed a file with log segments, one after the other, to the crate's stream writer."""
    folder.mkdir(parents=True, exist_ok=True)
    return _run("mirror", str(stream), str(folder))


def _run(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([_program(), *arguments], capture_output=True, text=True, check=True)
    return cast("dict[str, Any]", json.loads(done.stdout))


def _program() -> str:
    found = find_binary(PROGRAM)
    assert found is not None, REASON
    return found
