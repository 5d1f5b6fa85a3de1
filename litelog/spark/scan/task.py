"""State that the readers of a task share: its stores, which a worker opens once, and the log's format.

Retries of a store end with the task.
"""

from __future__ import annotations

import logging
import threading
from functools import cache
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import PrunedError, ReplicaGapError, TruncatedError
from litelog.events import fields
from litelog.formats.capabilities import is_divisible
from litelog.formats.registry import open_stored_format
from litelog.spark.options import Mode
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.opening import decrypting
from litelog.stores.registry import open_store, scheme_of
from litelog.stores.retrying_store import RetryingStore

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Executor

    from litelog.errors import LitelogError
    from litelog.formats import LogFormat
    from litelog.spark.scan.partitions import PlannedLog
    from litelog.stores.object_store import ObjectStore
    from litelog.stores.replica_client import ReplicaClient

AHEAD_BYTES = 64 << 20
"""The most decompressed bytes that a task reads ahead of Spark, except if a single commit is larger."""

JOBS = 16
"""The most concurrent requests of a task. They wait for the store, not for each other. A task begins with one, and
doubles them with each result that Spark takes: a query with a limit ends its tasks after the first rows."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Task:
    """A task's part of one log."""

    log: PlannedLog
    client: ReplicaClient
    executor: Executor
    """Runs the requests."""
    decoder: Executor
    """Decodes the responses in a single thread. More threads would only wait for each other, and for memory."""
    format: LogFormat

    @property
    def is_strict(self) -> bool:
        """Whether malformed data is an error."""
        return self.log.mode is Mode.FAILFAST

    @property
    def is_divisible(self) -> bool:
        """Whether any run of bytes is a record, so that records may be cut anywhere.

        Then the content of a log segment does not show how it was shipped.
        """
        return is_divisible(self.format)

    def lose(self, error: LitelogError) -> None:
        """Raise an error that reports data loss; only log it if ``fail_on_data_loss`` is off."""
        if self.log.fail_on_data_loss or not isinstance(error, ReplicaGapError | PrunedError | TruncatedError):
            raise error
        message = "%s: %s; skipped because of failOnDataLoss=false"
        _logger.warning(message, self.log.name, error, extra=fields("data-lost", log=self.log.name))


MAX_OPEN = 32
"""How many stores a worker keeps open: to create a client costs more than a request."""

_open: dict[tuple[str, tuple[tuple[str, str], ...]], ObjectStore] = {}
_opening = threading.Lock()


def open_client(url: str, options: Mapping[str, str], stop: threading.Event) -> ObjectReplicaClient:
    """Open a client of the replica at ``url``. The worker keeps its store for later calls: do not close it.

    ``stop``: once it is set, failed requests are not retried.
    """
    return ObjectReplicaClient(decrypting(RetryingStore(kept_store(url, options), stop), options))


def kept_store(url: str, options: Mapping[str, str]) -> ObjectStore:
    """The store at ``url``. Repeated calls return the same store while it is in use."""
    if scheme_of(url) in ("file", "memory"):
        options = {}  # the options are for other stores of the same read
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
    """As ``open_stored_format``, cached: a worker looks up the installed formats only once."""
    return open_stored_format(name, pattern)
