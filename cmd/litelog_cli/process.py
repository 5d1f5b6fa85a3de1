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

FORWARDED = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
"""The signals that are the program's alone, besides those that end it."""

_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH)
"""What a terminal sends to all of its foreground group."""


class Child:
    """A running program; ``on_end`` is called once, from a thread, when it has ended.

    Where we are PID 1, processes that lose their parent become ours: they are waited for when they end.
    """

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
        Thread(target=self._wait, name="child", daemon=True).start()
        if os.getpid() == 1:
            Thread(target=self._reap_orphans, name="orphans", daemon=True).start()

    @property
    def exit_code(self) -> int | None:
        """Its exit code, 128 + n where signal n ended it; None while it runs."""
        code = self._process.poll()
        return 128 - code if code is not None and code < 0 else code

    def forward(self, number: int) -> None:
        """Send it a signal, unless the terminal has sent it to both of us."""
        if number in _FROM_TERMINAL and _in_foreground():
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

    def _reap_orphans(self) -> None:
        """Wait for whichever process ends, but leave the program's end to those who ask for its exit code."""
        while (ended := _look_for_ended()) is not None:
            if ended == self._process.pid and self._process.returncode is None:
                self._process.wait()
            else:
                with suppress(ChildProcessError):
                    os.waitpid(ended, 0)


def _look_for_ended() -> int | None:
    """The next of our processes to have ended, which stays to be waited for; None if there is no process of ours."""
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        return None
    return ended.si_pid if ended is not None else None


def _in_foreground() -> bool:
    try:
        return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False
