"""Reading a log so that only the records of committed transactions remain."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from litelog.errors import ConfigError
from litelog.formats.capabilities import RecordFilter, read_committed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from litelog.formats.columns import Columns
    from litelog.formats.log_format import LogFormat


class CommittedReading:
    """One way through a log: a reader takes its formats from ``open_format``; its records go through ``filtered``."""

    def __init__(self, formats: Callable[[str], LogFormat]) -> None:
        """``formats`` opens a format by its name."""
        self._formats = formats
        self._filter: RecordFilter | None = None

    def open_format(self, name: str) -> LogFormat:
        """Return the format with which the log is read. Raises ConfigError if its logs have no transactions."""
        found = read_committed(self._formats(name))
        if found is None:
            raise ConfigError(
                f"logs of format {name} have no transactions; read them with the isolation read_uncommitted"
            )
        log_format, records = found
        self._filter = self._filter or records
        return log_format

    @property
    def first_open(self) -> int | None:
        """The first sequence that later records decide about; None: all records up to here are decided."""
        return None if self._filter is None else self._filter.first_open

    def follow(self, columns: Columns) -> None:
        """Note what the next records decide, without records to yield. For a reading without ``filtered``."""
        assert self._filter is not None  # the reader opened the format before it decoded ``columns``
        self._filter.follow(columns)

    def filtered(
        self, batches: Generator[Columns, None, None], end: int | None = None, end_time: int | None = None
    ) -> Generator[Columns, None, None]:
        """Yield what is committed of ``batches``.

        Args:
            batches: All records from the start on. Later ones decide about those before the end, so ``batches`` has no
                end. Columns without records are passed on.
            end: The first sequence that is not yielded; None: no limit.
            end_time: End before the first record of this time or a later one, in microseconds since 1970.
        """
        with closing(batches):
            for columns in batches:
                if not len(columns):
                    yield columns  # nothing arrived in time
                    continue
                assert self._filter is not None  # the reader opened the format before it decoded ``columns``
                for decided in self._filter.add(columns):
                    stop = len(decided) if end is None else decided.find(end)
                    stop = stop if end_time is None else min(stop, decided.find_time(end_time))
                    if stop:
                        yield decided.slice(0, stop)
                    if stop < len(decided):
                        return
