"""The program that ``litelog replicate --exec`` runs beside the replication."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING

from litelog.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable


class Child:
    """A running program; ``on_end`` is called once, from a thread, when it has ended."""

    def __init__(self, command: str, on_end: Callable[[], None]) -> None:
        try:
            arguments = shlex.split(command)
        except ValueError as error:
            raise ConfigError(f"--exec: {error}") from error
        if not arguments:
            raise ConfigError("--exec: names no program")
        try:
            self._process = subprocess.Popen(arguments)  # noqa: S603 - what the caller asked for, without a shell
        except OSError as error:
            raise ConfigError(f"--exec: {arguments[0]}: {error.strerror}") from error
        self._on_end = on_end
        self._waiter = Thread(target=self._wait, name="child", daemon=True)
        self._waiter.start()

    @property
    def exit_code(self) -> int | None:
        """Its exit code, 128 + n where signal n ended it; None while it runs."""
        code = self._process.poll()
        return 128 - code if code is not None and code < 0 else code

    def forward(self, number: int) -> None:
        """Send it a signal, unless the terminal has sent it to both of us."""
        if number == signal.SIGINT and _in_foreground():
            return
        self._send(number)

    def kill(self) -> None:
        """End it at once."""
        self._send(signal.SIGKILL)

    def end(self, timeout: float) -> None:
        """Ask it to end, wait for ``timeout`` seconds, then kill it."""
        self._send(signal.SIGTERM)
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()

    def _send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def _wait(self) -> None:
        self._process.wait()
        self._on_end()


def _in_foreground() -> bool:
    try:
        return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False
