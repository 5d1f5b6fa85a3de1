"""Runs the daemon as a process: with the program of ``--exec``, notifications to the service manager, and reloads."""

from __future__ import annotations

import logging
import math
import os
import shlex
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING

import click

from litelog.errors import ConfigError, LitelogError
from litelog.events import fields
from litelog_cli.output import escape

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from litelog.config import Config
    from litelog.replicator import Replicator

FORWARDED = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
"""Signals that are only forwarded to the program, besides those that end it."""

_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH)
"""Signals that a terminal sends to its whole foreground group."""


class Child:
    """A running program. A thread calls ``on_end`` once, after the program has ended.

    If this process is PID 1, it inherits processes that lose their parent, and reaps them when they end.
    """

    def __init__(self, command: str, on_end: Callable[[], None]) -> None:
        from subprocess import Popen

        try:
            arguments = shlex.split(command)
        except ValueError as error:
            raise ConfigError(f"--exec: {error}") from error
        if not arguments:
            raise ConfigError("--exec: names no program")
        try:
            self._process = Popen(arguments)  # noqa: S603 - the command that the user gave, without a shell
        except OSError as error:
            raise ConfigError(f"--exec: {arguments[0]}: {error.strerror}") from error
        self._on_end = on_end
        Thread(target=self._wait, name="child", daemon=True).start()
        if os.getpid() == 1:
            Thread(target=self._reap_orphans, name="orphans", daemon=True).start()

    @property
    def exit_code(self) -> int | None:
        """Its exit code; 128 + n if signal n ended it; None while it runs."""
        code = self._process.poll()
        return 128 - code if code is not None and code < 0 else code

    def forward(self, number: int) -> None:
        """Send it a signal, unless the terminal has already sent that to both processes."""
        if number in _FROM_TERMINAL and _in_foreground():
            return
        self._send(number)

    def kill(self) -> None:
        """Kill it at once."""
        self._send(signal.SIGKILL)

    def end(self, timeout: float) -> None:
        """Ask it to end, wait for ``timeout`` seconds, then kill it."""
        from subprocess import TimeoutExpired

        self._send(signal.SIGTERM)
        try:
            self._process.wait(timeout)
        except TimeoutExpired:
            self.kill()
            self._process.wait()

    def _send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def _wait(self) -> None:
        self._process.wait()
        self._on_end()

    def _reap_orphans(self) -> None:
        """Reap every process that ends. The program itself is reaped through its Popen, which keeps the exit code."""
        while (ended := _look_for_ended()) is not None:
            if ended == self._process.pid and self._process.returncode is None:
                self._process.wait()
            else:
                with suppress(ChildProcessError):
                    os.waitpid(ended, 0)


def _look_for_ended() -> int | None:
    """The next child process that has ended, without reaping it; None if there are no child processes."""
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


FEEDS_PER_TIMEOUT = 4
"""How often the watchdog is fed within its timeout: a message may be late, or lost to a full socket."""

LOOK_SECONDS = 10.0
"""Seconds between two updates of the status line, and between two extensions of the start."""

START_SECONDS = 60.0
"""Seconds by which an extension lengthens a start whose first sync is in progress. A multiple of LOOK_SECONDS, since a
message may be lost."""

_logger = logging.getLogger(__name__)


class ServiceManager:
    """Notifies the service manager that started this process, if there is one.

    No method blocks or fails, since replication does not depend on notifications. Any thread may call them.
    """

    def __init__(self, environment: MutableMapping[str, str], steady: Callable[[], float] = time.monotonic) -> None:
        """Remove this process's settings from ``environment``, so that a program it starts does not notify for it.

        ``steady``: monotonic seconds.
        """
        address = environment.pop("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._feed_seconds = _watchdog_seconds(environment) / FEEDS_PER_TIMEOUT
        self._steady = steady
        self._fed = -math.inf
        self._ready = False
        self._stopping = False
        self._failed = False
        self._said = ""
        self._look_at = steady() + LOOK_SECONDS

    def turned(
        self,
        is_ready: Callable[[], bool],
        status: Callable[[], str],
        is_advancing: Callable[[], bool] = lambda: False,
    ) -> None:
        """Feed the watchdog if it is due, and report readiness once it is reached.

        The main loop, and nothing else, calls this after each turn: a timer would not prove that the loop runs.

        Args:
            is_ready: returns whether the first sync is done.
            status: returns one line for people. It is sent with readiness, and later whenever it has changed.
            is_advancing: returns whether the first sync is in progress without an error. If so, the start may take
                longer.
        """
        if not self._address:
            return
        now = self._steady()
        if not self._ready and is_ready():
            self._ready, self._said = True, status()
            self._send("READY=1", f"STATUS={self._said}")
            self._look_at = now + LOOK_SECONDS
        elif now >= self._look_at and not self._stopping:
            self._look_at = now + LOOK_SECONDS
            if not self._ready and is_advancing():
                self._send(f"EXTEND_TIMEOUT_USEC={int(START_SECONDS * 1e6)}")
            elif self._ready and (said := status()) != self._said:
                self._said = said
                self.status(said)
        if self._feed_seconds and now >= self._fed + self._feed_seconds:
            self._fed = now
            self._send("WATCHDOG=1")

    def stopping(self, seconds: float) -> None:
        """Report that the final sync begins, and how many seconds it may take."""
        self._ready = self._stopping = True  # too late to report readiness
        self._send("STOPPING=1", "STATUS=final sync", f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def status(self, text: str) -> None:
        """Report a line of status for people."""
        self._send(f"STATUS={text}")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker:
                speaker.setblocking(False)
                speaker.sendto("\n".join(map(escape, lines)).encode(), self._address)
        except OSError as error:
            if not self._failed:
                extra = fields("notify-failed")
                _logger.warning("the service manager cannot be notified: %s", error.strerror, extra=extra)
            self._failed = True


def _watchdog_seconds(environment: MutableMapping[str, str]) -> float:
    """The watchdog's timeout in seconds; 0 if none is set for this process."""
    microseconds = environment.pop("WATCHDOG_USEC", "")
    meant_for = environment.pop("WATCHDOG_PID", "")
    if not microseconds.isdecimal() or (meant_for and meant_for != str(os.getpid())):
        return 0.0
    return int(microseconds) / 1e6


FIXED = (
    "state_dir",
    "addr",
    "token_file",
    "tokens",
    "tls",
    "allowed_hosts",
    "serve",
    "max_readers",
    "max_reader_rate",
    "max_reader_bytes",
    "max_lag",
    "heartbeat_url",
    "heartbeat_interval",
)
"""The keys that the daemon reads only when it starts."""


class Reloader:
    """Reads the configuration again on request, each time in a separate thread, since files may hang."""

    def __init__(self, replicator: Replicator, read: Callable[[], Config]) -> None:
        self._replicator = replicator
        self._started_with = replicator.config
        self._read = read
        self._one_at_a_time = threading.Lock()

    def start(self) -> None:
        """Start to read the configuration again. The result is logged."""
        threading.Thread(target=self.reload, name="reload", daemon=True).start()

    def reload(self) -> None:
        """Read the configuration again, and apply it unless it is invalid."""
        with self._one_at_a_time:
            try:
                config = self._read()
                if not self._replicator.reload(config):
                    return
            except (LitelogError, OSError, click.ClickException) as error:
                said = "the configuration was not reloaded; the previous one stays in effect: %s"
                _logger.error(said, error, extra=fields("reload-failed"))
                return
            start = self._started_with  # earlier reloads did not apply these keys
            late = [name.replace("_", "-") for name in FIXED if getattr(start, name) != getattr(config, name)]
            if late:
                said = "the configuration's %s: changes take effect at the next start"
                _logger.warning(said, ", ".join(late), extra=fields("reload-partial", changed_keys=",".join(late)))
            _logger.info("the configuration was reloaded", extra=fields("reloaded"))
