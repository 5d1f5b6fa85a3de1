"""What the readers of a task share: its stores, which are opened once in a worker, and the log's format.

Retries of a store end when the task does.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from litelog.errors import PrunedError, ReplicaGapError, TruncatedError
from litelog.events import fields
from litelog.formats.litelog import LitelogFormat
from litelog.formats.raw import RawFormat
from litelog.spark.options import Mode
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.registry import open_store, open_stored_format, scheme_of
from litelog.stores.retrying_store import RetryingStore

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Executor

    from litelog.errors import LitelogError
    from litelog.formats import Expectation, LogFormat, Scan
    from litelog.formats.columns import Columns
    from litelog.spark.scan.partitions import PlannedLog
    from litelog.stores.object_store import ObjectStore
    from litelog.stores.replica_client import ReplicaClient

AHEAD_BYTES = 64 << 20
"""What a task holds ahead of Spark at most, decompressed, but for one commit that is larger."""

JOBS = 16
"""Requests of a task at a time: they wait on the store, and not on each other."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Task:
    """A task's part of one log."""

    log: PlannedLog
    client: ReplicaClient
    executor: Executor
    """For requests."""
    decoder: Executor
    """For what they bring: one thread, as more of them only wait for each other, and for memory."""
    format: LogFormat

    @property
    def is_strict(self) -> bool:
        """Whether what is malformed is an error."""
        return self.log.mode is Mode.FAILFAST

    @property
    def is_divisible(self) -> bool:
        """Whether any run of bytes is a record, so that one may be cut at any place: what lies in the log segment
        tells nothing of how it was shipped."""
        return isinstance(self.format, RawFormat)

    def lose(self, error: LitelogError) -> None:
        """Raise what says that data is lost, unless it may be: then it is said."""
        if self.log.fail_on_data_loss or not isinstance(error, ReplicaGapError | PrunedError | TruncatedError):
            raise error
        said = "%s: %s; read without it, as failOnDataLoss=false says"
        _logger.warning(said, self.log.name, error, extra=fields("data-lost", log=self.log.name))


MAX_OPEN = 32
"""Stores that a worker keeps: making a client costs more than a request."""

_open: dict[tuple[str, tuple[tuple[str, str], ...]], ObjectStore] = {}
_opening = threading.Lock()


def open_client(url: str, options: Mapping[str, str], stop: threading.Event) -> ObjectReplicaClient:
    """A client of the replica at ``url``. Its store is kept for the next one: do not close it.

    ``stop``: once it is set, failed requests are not tried again.
    """
    return ObjectReplicaClient(RetryingStore(kept_store(url, options), stop))


def kept_store(url: str, options: Mapping[str, str]) -> ObjectStore:
    """The store at ``url``, the same one as long as it is asked for."""
    if scheme_of(url) in ("file", "memory"):
        options = {}  # those of the stores that are read beside them
    key = (url, tuple(sorted(options.items())))
    with _opening:
        store = _open.pop(key, None)
        if store is None:
            store = open_store(url, options)
        _open[key] = store
        while len(_open) > MAX_OPEN:
            del _open[next(iter(_open))]
    return store


@cache
def open_log_format(name: str, pattern: str | None) -> LogFormat:
    """As ``open_stored_format``; the same one each time: which formats are installed is looked up once in a worker."""
    return open_stored_format(name, pattern)


def scan_columns(
    log_format: LogFormat, name: str, data: memoryview, offset: int, expect: Expectation
) -> tuple[Scan, Columns]:
    """The scan of a run of commits and its records; our own format tells both by one look at the bytes."""
    if isinstance(log_format, LitelogFormat):
        return log_format.scan_columns(name, data, offset, expect)
    return log_format.scan(name, data, offset, expect), log_format.decode(name, data, offset, expect)
