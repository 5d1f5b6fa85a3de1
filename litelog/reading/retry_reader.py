"""RetryReader: continues after failures that pass, by opening the reader again at the record that comes next.

Specified in litelog/reading/README.md#retries.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

from litelog.errors import OffsetJumpError
from litelog.formats.record_stream import RecordStream
from litelog.reading.read_retries import ReadRetries, may_pass

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.formats.columns import Columns
    from litelog.log.read_bounds import Start


class RetryReader(RecordStream):
    """A wrapper of a reader, which is opened again after a failure that may pass.

        open_orders = functools.partial(litelog.open_replica, "s3://backups/orders", follow=True)
        with litelog.RetryReader(lambda start: open_orders(start=start)) as records:
            for record in records:
                print(record.value)

    Each record is returned once, in the order of the reader. All other errors reach the caller as the reader raises
    them: for example damage, a fork, records that are gone, and a log that does not exist.
    """

    def __init__(
        self,
        open_reader: Callable[[int | Start], RecordStream],
        *,
        start: int | Start = "earliest",
        attempts: int | None = None,
    ) -> None:
        """Prepare to read. The first ``read`` opens a reader.

        Args:
            open_reader: Opens a reader at a sequence, or at ``start``.
            start: Where to begin.
            attempts: How often in a row an attempt may fail before its error is raised; None: any number of times.
        """
        super().__init__()
        self._open_reader = open_reader
        self._start: int | Start = start
        self._closed = threading.Event()
        self._retries = ReadRetries(self._closed, attempts)
        self._lock = threading.Lock()
        self._current: RecordStream | None = None

    @property
    def next_sequence(self) -> int | None:
        """The lowest sequence that ``read`` may return next; None before the first record, if the start is a word."""
        return self._start if isinstance(self._start, int) else None

    def read(self) -> Columns | None:
        """Read the next records, at least one. None at the end, and after ``close``.

        Raises:
            StoreError: Attempts failed ``attempts`` times in a row, or cannot succeed.
            LitelogError: As the reader raises it. The next call continues with the same reader.
        """
        while not self._closed.is_set():
            try:
                columns = self._open().read()
            except OffsetJumpError as error:
                self._start = error.next
                raise
            except Exception as error:
                if not may_pass(error):
                    raise
                self._leave()
                if self._retries.is_last(error):
                    raise
                self._retries.wait()
                continue
            self._retries.succeed()
            if columns is not None:
                self._start = self.sequence_after(columns)
            return columns
        return None

    def sequence_after(self, columns: Columns) -> int:
        """The sequence after the last of records that ``read`` has returned."""
        return cast("RecordStream", self._current).sequence_after(columns)

    def close(self) -> None:
        """End reading: a blocked ``read`` returns, even while it waits for its next attempt. Idempotent. Any thread may
        call it."""
        self._closed.set()
        self._leave()

    def _open(self) -> RecordStream:
        with self._lock:
            if self._current is not None:
                return self._current
        opened = self._open_reader(self._start)
        with self._lock:
            self._current = opened
        if self._closed.is_set():
            opened.close()
        return opened

    def _leave(self) -> None:
        with self._lock:
            current = self._current
            if not self._closed.is_set():
                self._current = None
        if current is not None:
            current.close()
