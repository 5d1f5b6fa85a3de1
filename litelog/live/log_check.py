"""LogCheck: a check of a served log's own files for one request. It ends early if the client disconnects.

Specified in litelog/live/README.md#checks.
"""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from litelog.errors import LitelogError
from litelog.live.news_desk import KEEP_ALIVE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from litelog.live.encoding import Piece
    from litelog.live.served_log import LiveReader, ServedLog
    from litelog.verify.local_report import LocalReport

VERSION = 1
"""Of the answer."""


FIRST_SECONDS = 1.0
"""After how many seconds the answer begins, even if the check lasts longer: from then on, a client's leaving is
noticed. A check that cannot begin fails sooner, with its own status."""


class _LeftError(LitelogError):
    """The client no longer waits for the check."""


class ReportFraming:
    """A JSON document. Line ends before it are signs of life: readers of JSON skip them."""

    media_type = "application/json"

    def begin(self) -> bytes:
        return b""

    def keep_alive(self) -> bytes:
        return b"\n"

    def fail(self, error: Mapping[str, object]) -> bytes:
        return json.dumps({"version": VERSION, "error": error}).encode() + b"\n"

    def end(self) -> bytes:
        return b""


class LogCheck:
    """One check, in its own thread. Its methods run in one event loop."""

    def __init__(self, served: ServedLog, reader: LiveReader, rate: int | None, ended: Callable[[], None]) -> None:
        """``rate``: the most bytes of the log that are read in a second, on average; None: no limit. ``ended``: called
        once in the event loop when nothing reads for the check any longer, which may be after ``end``."""
        self._source = served.log.source
        self._reader = reader
        self._rate = rate
        self._began = monotonic()
        self._ended = ended
        self._thread: threading.Thread | None = None
        self._left = threading.Event()
        self._news = asyncio.Event()
        self._report: LocalReport | None = None
        self._error: Exception | None = None

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """Yield signs of life, and the report at the end.

        Raises:
            SourceError, ConfigError, CorruptionError: As ``check_log``.
            RevokedError: The reader's token was revoked.
        """
        loop, reader = asyncio.get_running_loop(), self._reader
        reader.wake = self._news.set
        thread = threading.Thread(target=self._run, args=(loop,), name=f"check {self._source.folder}", daemon=True)
        seconds = min(FIRST_SECONDS, KEEP_ALIVE_SECONDS)
        try:
            thread.start()
            self._thread = thread
            while self._report is None:
                try:
                    await asyncio.wait_for(self._news.wait(), seconds)
                except TimeoutError:
                    yield ReportFraming().keep_alive()
                    seconds = KEEP_ALIVE_SECONDS
                failure = reader.ended_by or self._error
                if failure is not None:
                    raise failure
            yield json.dumps({"version": VERSION, **self._report.as_json()}).encode() + b"\n"
        finally:
            self.end()

    def end(self) -> None:
        """End the check, as the client has left. Idempotent. Its thread ends after the piece that it reads."""
        is_first = not self._left.is_set()
        self._left.set()
        if is_first and self._thread is None:
            self._ended()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        from litelog.verify.local_log import SETTLE_SECONDS, check_log  # noqa: PLC0415 - a daemon starts without it

        try:
            source = self._source
            self._report = check_log(source.folder, source.format, self._keep_pace, settle=SETTLE_SECONDS)
        except Exception as error:  # noqa: BLE001 - the request gets it
            self._error = error
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        self._news.set()
        self._ended()

    def _keep_pace(self, checked: int, _size: int) -> None:
        """Wait until more may be read. Raises _LeftError if the client has left."""
        due = 0.0 if self._rate is None else self._began + checked / self._rate
        if self._left.wait(max(0.0, due - monotonic())):
            raise _LeftError(f"{self._source.folder}: the client has left, so the check ends")
