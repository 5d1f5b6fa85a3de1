"""The heartbeat: a URL that is called as long as all is well, so that somebody else notices when it is not called."""

from __future__ import annotations

import logging
import threading
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import TYPE_CHECKING

from litelog.events import fields
from litelog.server.health import find_unready
from litelog.server.make_report import spell_time
from litelog.server.report import HeartbeatReport
from litelog.stores.registry import redact

if TYPE_CHECKING:
    from litelog.server.daemon_view import Board

TIMEOUT_SECONDS = 10.0
"""For the connection, and for each part of the answer."""

MAX_ANSWER_BYTES = 64 << 10

_logger = logging.getLogger(__name__)


class Heartbeat:
    """Calls the URL once in an interval, from a thread of its own, while the daemon is ready: every replica has been
    synced, none lags more than max-lag, none has stopped."""

    def __init__(self, board: Board, url: str, interval: float) -> None:
        """``url``: http or https; it may hold a secret, so its host alone is told. ``interval``: seconds."""
        self._board = board
        self._url = url
        self._interval = interval
        self._stopped = threading.Event()
        self._succeeded = self._failed = self._withheld = 0
        self._last_success: int | None = None
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin: the first call comes as soon as the daemon is ready."""
        self._thread.start()

    def stop(self) -> None:
        """Call no more; one that is under way is left."""
        self._stopped.set()

    def report(self) -> HeartbeatReport:
        """What came of it so far."""
        last = self._last_success
        return HeartbeatReport(
            succeeded=self._succeeded,
            failed=self._failed,
            withheld=self._withheld,
            last_success=None if last is None else spell_time(last),
        )

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                is_ready = not find_unready(self._board.read(), self._board.rules)
                if is_ready:
                    self._call()
            except Exception as error:  # noqa: BLE001 - a bug withholds the heartbeat, and ends nothing
                self._failed += 1
                self._tell_failure(error)
                is_ready = False
            if not is_ready:
                self._withheld += 1
            soon = not is_ready and self._last_success is None
            self._stopped.wait(min(self._interval, 1.0) if soon else self._interval)

    def _call(self) -> None:
        request = urllib.request.Request(self._url, headers={"User-Agent": "litelog"})  # noqa: S310 - http(s), by config
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
                answer.read(MAX_ANSWER_BYTES)
        except (OSError, HTTPException, ValueError) as error:
            self._failed += 1
            self._tell_failure(error)
            return
        self._succeeded += 1
        self._last_success = self._board.clock.now()
        if self._failing:
            self._failing = False
            _logger.info("heartbeat: answered again", extra=fields("heartbeat-answered"))

    def _tell_failure(self, error: Exception) -> None:
        """Once: the count goes on."""
        if self._failing:
            return
        self._failing = True
        reason = f"status {error.code}" if isinstance(error, urllib.error.HTTPError) else type(error).__name__
        if isinstance(error, urllib.error.URLError) and not isinstance(error, urllib.error.HTTPError):
            reason = str(error.reason)
        said = "heartbeat: %s cannot be called (%s); it is tried again each %g s"
        _logger.warning(said, _host_of(self._url), reason, self._interval, extra=fields("heartbeat-failed"))


def _host_of(url: str) -> str:
    """The URL as far as it is no secret: whoever knows a heartbeat's path can send it."""
    scheme, _, rest = redact(url).partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"
