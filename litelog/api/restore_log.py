"""Restores a log from one or several replicas, in one call."""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Literal, overload

from litelog.api.replica_address import addresses_of
from litelog.errors import ConfigError, NothingToRestoreError
from litelog.events import fields
from litelog.formats.registry import open_stored_format
from litelog.objects.position import generation as to_generation
from litelog.restore.choose_replica import choose, describe
from litelog.restore.execution import PARALLELISM, restore
from litelog.restore.history_plan import find_plan
from litelog.restore.plan import Target
from litelog.stores.opening import opened_replica
from litelog.stores.registry import redact
from litelog.units import to_microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from litelog.api.replica_address import Replica
    from litelog.restore.execution import RestoreProgress, RestoreResult
    from litelog.restore.plan import RestorePlan
    from litelog.stores.replica_client import ReplicaClient
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

    Of several replicas it takes the one that reaches furthest. The others supply the bytes that this one lost.

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
    target = _target_of(sequence, timestamp, generation)
    folder = os.fspath(output)
    formats = partial(open_stored_format, pattern=pattern)
    with ExitStack() as stack:
        clients, unopened = _open_all(stack, replicas)
        try:
            choice = choose(clients, target, formats)
        except NothingToRestoreError as error:
            if unopened:  # these replicas may hold something to restore
                skipped = "; ".join(describe(*each) for each in unopened)
                raise ConfigError(f"nothing to restore from the others ({error}); skipped {skipped}") from error
            raise
        for url, reason in (*unopened, *choice.skipped):
            _logger.warning("skipped %s", describe(url, reason), extra=fields("replica-skipped", replica=url))
        if dry_run:
            return choice.plan
        return restore(
            choice.client,
            choice.plan,
            folder,
            log_format=choice.log_format,
            parallelism=parallelism,
            progress=progress,
            fallbacks=choice.fallbacks,
            delta=delta,
            replan=partial(find_plan, choice.client, target, choice.log_format),
        )


def _target_of(sequence: int | None, timestamp: Time | None, generation: str | None) -> Target:
    try:
        name = None if generation is None else to_generation(generation)
        time = None if timestamp is None else to_microseconds(timestamp)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return Target(generation=name, sequence=sequence, timestamp=time)


def _open_all(
    stack: ExitStack, replicas: Replica | Iterable[Replica]
) -> tuple[list[ReplicaClient], list[tuple[str, str]]]:
    """Open clients of the replicas. Returns them, and each replica that cannot be opened here, with the reason.

    Raises ConfigError if none can be opened.
    """
    addresses = addresses_of(replicas)
    clients: list[ReplicaClient] = []
    unopened: list[tuple[str, str]] = []
    for url, options in addresses:
        try:
            clients.append(stack.enter_context(opened_replica(url, options)))
        except ConfigError as error:
            if len(unopened) + 1 == len(addresses):
                raise
            unopened.append((redact(url), str(error)))
    return clients, unopened
