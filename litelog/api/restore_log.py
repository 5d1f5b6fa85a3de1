"""Restores a log from one or several replicas, in one call."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Literal, overload

from litelog.errors import ConfigError
from litelog.events import fields
from litelog.restore.choose_replica import describe
from litelog.restore.execution import PARALLELISM
from litelog.restore.opened_restore import opened_restore
from litelog.restore.plan import Target
from litelog.stores.replica_address import addresses_of
from litelog.units import to_microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from litelog.restore.execution import RestoreProgress, RestoreResult
    from litelog.restore.plan import RestorePlan
    from litelog.stores.replica_address import Replica
    from litelog.units import Time

_logger = logging.getLogger(__name__)


@overload
def restore_log(
    replicas: Replica | Iterable[Replica],
    output: str | os.PathLike[str],
    *,
    sequence: int | None = None,
    timestamp: Time | None = None,
    generation: str | None = None,
    pattern: str | None = None,
    delta: bool = False,
    parallelism: int = PARALLELISM,
    progress: Callable[[RestoreProgress], None] | None = None,
    dry_run: Literal[False] = False,
) -> RestoreResult: ...


@overload
def restore_log(
    replicas: Replica | Iterable[Replica],
    output: str | os.PathLike[str],
    *,
    sequence: int | None = None,
    timestamp: Time | None = None,
    generation: str | None = None,
    pattern: str | None = None,
    delta: bool = False,
    parallelism: int = PARALLELISM,
    progress: Callable[[RestoreProgress], None] | None = None,
    dry_run: Literal[True],
) -> RestorePlan: ...


def restore_log(  # noqa: PLR0913 - each is an independent choice
    replicas: Replica | Iterable[Replica],
    output: str | os.PathLike[str],
    *,
    sequence: int | None = None,
    timestamp: Time | None = None,
    generation: str | None = None,
    pattern: str | None = None,
    delta: bool = False,
    parallelism: int = PARALLELISM,
    progress: Callable[[RestoreProgress], None] | None = None,
    dry_run: bool = False,
) -> RestoreResult | RestorePlan:
    """Rebuild a log in the new folder ``output``: complete, checked and synced, or not there.

        result = litelog.restore_log(["s3://backups/orders", "/mnt/backup/orders"], "orders")
        print(result.records, "records from", result.replica)

    Of several replicas, it restores the one that reaches furthest. The others supply the bytes that this replica lost.

    Args:
        replicas: one or several replicas of the log: URLs, paths, or ReplicaConfigs, which have options as well.
        output: the folder to create. It must be missing or empty.
        sequence: restore up to this record; whole commits only. None: to the end.
        timestamp: restore up to this time instead. Microseconds since 1970, or a datetime with a zone.
        generation: the name of the generation to restore; None: the latest one.
        pattern: the shell pattern for the names of log segments, for the formats ``lines`` and ``raw``; None: all.
        delta: ``output`` may hold an older copy of the log. Only the data that the copy lacks is read; then the new
            folder replaces the old one in one step.
        parallelism: how many objects are read at a time.
        progress: called after each object, in this thread.
        dry_run: return the plan, and change nothing.

    Returns:
        What was restored, and from where; with ``dry_run``, the plan.

    Raises:
        OutputExistsError: ``output`` exists already. Nothing was changed.
        OutputError, LockedError: ``output`` cannot be written, or another process uses it.
        NothingToRestoreError: no replica holds the requested data.
        DivergedReplicasError: the replicas hold different histories of the log.
        ConfigError: the arguments contradict each other, or no installed package serves a URL.
        CorruptionError: an object is damaged or missing, and no other replica holds its bytes.
        StoreError: a request failed.
    """
    target = _target_of(sequence, timestamp)
    folder = os.fspath(output)
    with opened_restore(addresses_of(replicas), target, generation=generation, pattern=pattern) as opened:
        for url, reason in opened.skipped:
            _logger.warning("skipped %s", describe(url, reason), extra=fields("replica-skipped", replica=url))
        if dry_run:
            return opened.plan
        return opened.run(folder, parallelism=parallelism, progress=progress, delta=delta)


def _target_of(sequence: int | None, timestamp: Time | None) -> Target:
    try:
        time = None if timestamp is None else to_microseconds(timestamp)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return Target(sequence=sequence, timestamp=time)
