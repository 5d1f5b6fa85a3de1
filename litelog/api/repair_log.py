"""Repairs the files of a log, in one call."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from litelog.formats.litelog import LitelogFormat
from litelog.formats.registry import open_format
from litelog.repair.execution import repair
from litelog.stores.opening import opened_replica
from litelog.stores.replica_address import addresses_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from litelog.repair.plan import RepairResult
    from litelog.stores.replica_address import Replica


def repair_log(
    folder: str | os.PathLike[str],
    replicas: Replica | Iterable[Replica] = (),
    *,
    log_format: str | None = None,
    pattern: str | None = None,
    generation: str | None = None,
    cut: bool = False,
    confirm: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> RepairResult:
    """Plan how to repair the damaged files of a log; with ``confirm``, do it.

        plan = litelog.repair_log("orders", "s3://backups/orders")
        if plan.plan.places and not plan.left:
            litelog.repair_log("orders", "s3://backups/orders", confirm=True)

    Bytes of a replica replace damaged ones if the replica agrees with all good bytes of the log segment. A torn tail is
    cut off if no replica holds what it was. A good commit is only removed with ``cut``. Replaced files
    are kept in ``.damaged``.

    Args:
        folder: the log's folder.
        replicas: replicas of the log: URLs, paths, or ReplicaConfigs. Without one, only a torn tail is cut off.
        log_format: the log's format; None: litelog's own.
        pattern: the shell pattern for the names of log segments, for the formats ``lines`` and ``raw``.
        generation: the only generation to take bytes from, by its name or first digits; None: those that agree.
        cut: cut the log off at the first place that would stay damaged, and keep the rest in ``.damaged``.
        confirm: replace files. The log must have no writer.
        progress: called with the bytes of the log that were checked, and with its size in bytes.

    Returns:
        The plan, and with ``confirm`` what is left. ``left`` counts the anomalies that stay.

    Raises:
        LockedError: a writer, a mirror or a truncation has the log.
        SourceError: the log cannot be read or written.
        NothingToRestoreError: no generation begins with ``generation``.
        ConfigError: the format is unknown, or no installed package serves a URL.
        CorruptionError, StoreError: a replica lost what was planned. Nothing was changed.
    """
    place = os.fspath(folder)
    opened = open_format(log_format or LitelogFormat.name, pattern)
    several = isinstance(replicas, str | os.PathLike) or hasattr(replicas, "url")
    given = [replicas] if several else list(replicas)  # type: ignore[arg-type]
    with ExitStack() as stack:
        addresses = addresses_of(given) if given else []  # type: ignore[arg-type]
        clients = [stack.enter_context(opened_replica(url, options, is_only=False)) for url, options in addresses]
        return repair(place, opened, clients, generation=generation, cut=cut, confirm=confirm, progress=progress)
