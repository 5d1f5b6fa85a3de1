"""What the readers of a task share."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from litelog.errors import PrunedError, ReplicaGapError, TruncatedError
from litelog.events import fields
from litelog.formats.raw import RawFormat
from litelog.spark.options import Mode

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from litelog.errors import LitelogError
    from litelog.formats import LogFormat
    from litelog.spark.scan.partitions import PlannedLog
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
