"""The heartbeat: calls a URL as long as everything is safe. A monitoring service notices when the calls stop."""

from __future__ import annotations

import logging
import threading
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import TYPE_CHECKING

from litelog.events import fields
from litelog.server.found_reason import format_time
from litelog.server.verdict import Verdict
from litelog.stores.registry import redact

if TYPE_CHECKING:
    from litelog.server.daemon_view import StatusCache
    from litelog.server.report import HeartbeatReport

TIMEOUT_SECONDS = 10.0
"""Seconds to wait for the connection, and for each part of the answer."""

MAX_ANSWER_BYTES = 64 << 10

_logger = logging.getLogger(__name__)


class Heartbeat:
    """Calls the URL once per interval from its own thread while the verdict is safe."""

    def __init__(self, status_cache: StatusCache, url: str, interval: float) -> None:
        """``url``: http or https. It may be secret, so only its host is shown. ``interval``: seconds."""
        self._status_cache = status_cache
        self._url = url
        self._interval = interval
        self._stopped = threading.Event()
        self._succeeded = self._failed = self._withheld = 0
        self._last_success: int | None = None
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start. The first call follows as soon as the verdict is safe."""
        self._thread.start()

    def stop(self) -> None:
        """Stop calling. A call in progress is abandoned."""
        self._stopped.set()

    def report(self) -> HeartbeatReport:
        """The results of the calls."""
        from litelog.server.report import HeartbeatReport  # noqa: PLC0415 - its models take 12 MiB, for a reader

        last = self._last_success
        return HeartbeatReport(
            succeeded=self._succeeded,
            failed=self._failed,
            withheld=self._withheld,
            last_success=None if last is None else format_time(last),
        )

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                is_safe = self._status_cache.judge().verdict is Verdict.SAFE
                if is_safe:
                    self._call()
            except Exception as error:  # noqa: BLE001 - an unexpected error ends one call, not the thread
                self._failed += 1
                self._report_failure(error)
                is_safe = False
            if not is_safe:
                self._withheld += 1
            soon = not is_safe and self._last_success is None
            self._stopped.wait(min(self._interval, 1.0) if soon else self._interval)

    def _call(self) -> None:
        request = urllib.request.Request(self._url, headers={"User-Agent": "litelog"})  # noqa: S310 - http(s), by config
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
                answer.read(MAX_ANSWER_BYTES)
        except (OSError, HTTPException, ValueError) as error:
            self._failed += 1
            self._report_failure(error)
            return
        self._succeeded += 1
        self._last_success = self._status_cache.clock.now()
        if self._failing:
            self._failing = False
            _logger.info("heartbeat: answered again", extra=fields("heartbeat-answered"))

    def _report_failure(self, error: Exception) -> None:
        """Log the failure once; later ones are only counted."""
        if self._failing:
            return
        self._failing = True
        reason = f"status {error.code}" if isinstance(error, urllib.error.HTTPError) else type(error).__name__
        if isinstance(error, urllib.error.URLError) and not isinstance(error, urllib.error.HTTPError):
            reason = str(error.reason)
        message = "heartbeat: %s cannot be called (%s); trying again every %g s"
        _logger.warning(message, _host_of(self._url), reason, self._interval, extra=fields("heartbeat-failed"))


def _host_of(url: str) -> str:
    """The part of the URL that is not secret: anyone who knows a heartbeat's path can call it."""
    scheme, _, rest = redact(url).partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"
