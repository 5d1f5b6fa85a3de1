"""What the service manager is told (systemd's sd_notify): ready, alive, stopping."""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from typing import TYPE_CHECKING

from litelog.events import fields
from litelog_cli.output import escape

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

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
