"""MirrorAcknowledgement: lets a writer wait until a mirror of its log has an append, as the log's daemon knows it.

Specified in litelog/live/README.md#writers-that-wait-for-a-mirror.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from litelog.errors import ConfigError, StoreError
from litelog.events import fields, is_worth_logging
from litelog.stores.object_store import AwaitsMirrors
from litelog.stores.registry import open_store
from litelog.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from litelog.system.clock import Clock

_logger = logging.getLogger(__name__)

ASK_SECONDS = 30.0
"""How long one request to the daemon waits at most."""

RETRY_SECONDS = 0.2
"""The pause after a request that failed, and how often a lost mirror is looked for at most."""


class MirrorAcknowledgement:
    """Lets ``LogWriter(acknowledge=)`` wait for the first mirror that has the records durably.

    With a timeout, the mirror is lost after the first append that waited for that time: the append returns, and its
    ``mirrored`` is False. Further appends wait again once a mirror has the records of that append. Several threads
    use it at once.
    """

    def __init__(
        self,
        url: str,
        options: Mapping[str, object] | None = None,
        *,
        timeout: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Make no request yet.

        Args:
            url: The writer's log, as its daemon serves it: ``http://HOST:PORT/logs/NAME``.
            options: The options of the URL's store, such as ``token_file``.
            timeout: How many seconds an append waits at most; None: no limit.
            clock: The source of monotonic times; None: the system's clock.

        Raises:
            ConfigError: The URL is not that of a served log, or an option or the timeout is invalid.
        """
        if timeout is not None and not timeout > 0:
            raise ConfigError("timeout: write more than 0 seconds, or None for no limit")
        store = open_store(url, options or {})
        if not isinstance(store, AwaitsMirrors):
            store.close()
            raise ConfigError(f"{url}: is not a log that a daemon serves: write http://HOST:PORT/logs/NAME")
        self._store = store
        self._close = store.close
        self._url = url
        self._timeout = timeout
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._lost_at: int | None = None
        """The sequence that a mirror has to reach before appends wait again; None: they wait."""
        self._looked_at = 0.0
        self._pause = threading.Event()

    def wait(self, sequence: int) -> bool:
        """Return True once a mirror has all records before ``sequence`` durably; False if none has them in time.

        Args:
            sequence: An append's ``next``.
        """
        if self._lost_at is not None and not self._has_returned():
            return False
        begun, failures = self._clock.monotonic(), 0
        while True:
            passed = self._clock.monotonic() - begun
            left = ASK_SECONDS if self._timeout is None else min(ASK_SECONDS, self._timeout - passed)
            try:
                reached = self._store.wait_for_mirror(sequence, max(0.0, left))
                if reached is not None and reached >= sequence:
                    return True
            except StoreError as error:
                failures += 1
                self._report(error, failures)
                self._pause.wait(max(0.0, min(RETRY_SECONDS, left)))
            if self._timeout is not None and self._clock.monotonic() - begun >= self._timeout:
                self._lose(sequence)
                return False

    def close(self) -> None:
        """Release the connections to the daemon. Close the writer first."""
        self._close()

    def _has_returned(self) -> bool:
        """Look whether a mirror has what it lacked when it was lost; at most every RETRY_SECONDS."""
        with self._lock:
            lost_at, now = self._lost_at, self._clock.monotonic()
            if lost_at is None:
                return True
            if now - self._looked_at < RETRY_SECONDS:
                return False
            self._looked_at = now
        reached = None
        with suppress(StoreError):
            reached = self._store.wait_for_mirror(lost_at, 0.0)
        if reached is None or reached < lost_at:
            return False
        with self._lock:
            self._lost_at = None
        _logger.info("%s: a mirror is back; appends wait for it", self._url, extra=fields("mirror-back"))
        return True

    def _lose(self, sequence: int) -> None:
        with self._lock:
            is_new = self._lost_at is None
            self._lost_at = max(sequence, self._lost_at or 0)
            self._looked_at = self._clock.monotonic()
        if is_new:
            message = "%s: no mirror has the records before %d after %g s; appends do not wait, until one has them"
            _logger.warning(message, self._url, sequence, self._timeout, extra=fields("mirror-lost"))

    def _report(self, error: StoreError, failures: int) -> None:
        if is_worth_logging(failures):
            message = "%s: an append waits for a mirror, and its daemon cannot be asked (%d times in a row): %s"
            extra = fields("mirror-lost", consecutive_failures=failures)
            _logger.warning(message, self._url, failures, error, extra=extra)
