"""The daemon as a process: the program of ``--exec``, notifications to the service manager, and reloads."""

from __future__ import annotations

import logging
import math
import os
import shlex
import signal
import socket
import subprocess
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


FEEDS_PER_TIMEOUT = 4
"""How often the watchdog is fed within its time: one may be late, or lost to a full socket."""

_logger = logging.getLogger(__name__)


class ServiceManager:
    """Speaks to whoever started this process and waits for its word; without one it says nothing.

    Nothing here blocks or fails: replication does not depend on being heard. Used by any thread.
    """

    def __init__(self, environment: MutableMapping[str, str], steady: Callable[[], float] = time.monotonic) -> None:
        """Takes what is meant for this process out of ``environment``, so that a program that it starts does not speak
        for it. ``steady``: monotonic seconds."""
        address = environment.pop("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._feed_seconds = _watchdog_seconds(environment) / FEEDS_PER_TIMEOUT
        self._steady = steady
        self._fed = -math.inf
        self._ready = False
        self._failed = False

    def turned(self, is_ready: Callable[[], bool], status: Callable[[], str]) -> None:
        """The main loop has turned: feed the watchdog if it is time, and tell of readiness when it is reached.

        For the main loop alone: a timer's word would be worth nothing. ``status``: one line, asked for once.
        """
        if not self._address:
            return
        if not self._ready and is_ready():
            self._ready = True
            self._send("READY=1", f"STATUS={status()}")
        now = self._steady()
        if self._feed_seconds and now >= self._fed + self._feed_seconds:
            self._fed = now
            self._send("WATCHDOG=1")

    def stopping(self, seconds: float) -> None:
        """The final sync begins, and may take so long."""
        self._ready = True  # too late for that
        self._send("STOPPING=1", "STATUS=final sync", f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def status(self, text: str) -> None:
        """One line for whoever looks at the service."""
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
                _logger.warning("the service manager cannot be told: %s", error.strerror, extra=extra)
            self._failed = True


def _watchdog_seconds(environment: MutableMapping[str, str]) -> float:
    """The watchdog's time; 0 where there is none for this process."""
    microseconds = environment.pop("WATCHDOG_USEC", "")
    meant_for = environment.pop("WATCHDOG_PID", "")
    if not microseconds.isdecimal() or (meant_for and meant_for != str(os.getpid())):
        return 0.0
    return int(microseconds) / 1e6


FIXED = (
    "state_dir",
    "addr",
    "token_file",
    "allowed_hosts",
    "max_lag",
    "heartbeat_url",
    "heartbeat_interval",
)
"""The keys that are looked at once, when the daemon starts."""


class Reloader:
    """Reads a configuration again, as often as it is asked, each time in a thread of its own: files may hang."""

    def __init__(self, replicator: Replicator, read: Callable[[], Config]) -> None:
        self._replicator = replicator
        self._started_with = replicator.config
        self._read = read
        self._one_at_a_time = threading.Lock()

    def start(self) -> None:
        """Begin to read it again. What becomes of that is logged."""
        threading.Thread(target=self.reload, name="reload", daemon=True).start()

    def reload(self) -> None:
        """Read it again, and have it in force unless it is wrong."""
        with self._one_at_a_time:
            try:
                config = self._read()
                if not self._replicator.reload(config):
                    return
            except (LitelogError, OSError, click.ClickException) as error:
                said = "the configuration was not read again; what was in force stays so: %s"
                _logger.error(said, error, extra=fields("reload-failed"))
                return
            start = self._started_with  # an earlier reload put nothing of these in force
            late = [name.replace("_", "-") for name in FIXED if getattr(start, name) != getattr(config, name)]
            if late:
                said = "the configuration's %s: what changed there is in force from the next start on"
                _logger.warning(said, ", ".join(late), extra=fields("reload-partial", keys=",".join(late)))
            _logger.info("the configuration was read again, and is in force", extra=fields("reloaded"))
