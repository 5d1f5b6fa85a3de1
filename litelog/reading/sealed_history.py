"""The sealed part of a generation, read on where sealed segments are damaged or were removed meanwhile."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from litelog.errors import CorruptionError, NotFoundError, PrunedError, ReplicaGapError, UnknownVersionError
from litelog.events import fields
from litelog.objects.position import Position
from litelog.reading.pieces import list_pieces
from litelog.reading.sealed_reader import BrokenEntryError, SealedStart, read_sealed
from litelog.reading.unsealed import read_unsealed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

    from litelog.errors import LitelogError
    from litelog.formats import LogFormat
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.reading.contents import Base
    from litelog.reading.sealed_reader import SealedBatch
    from litelog.stores.replica_client import ReplicaClient

_logger = logging.getLogger(__name__)


def read_history(
    client: ReplicaClient,
    executor: Executor,
    base: Base,
    number: int,
    start: SealedStart,
    log_format: LogFormat,
) -> Iterator[SealedBatch]:
    """The records of ``base.entries`` from the one of that number on, ``start`` in it: as ``read_sealed`` gives them.

    A damaged one is read from its WAL segments, where they are still there; one that is gone, from where the newest
    snapshot says that it is. What was given is not given again. PrunedError where retention removed it, the damage
    where nothing else has its bytes, ReplicaGapError where it is missing.
    """
    entries, stop = base.entries, base.start.index
    while number < len(entries):
        at = start.offset
        try:
            for batch in read_sealed(client, executor, entries[number:], log_format, start):
                number, at = batch.entry.index - base.first.index, batch.end
                yield batch
            return
        except BrokenEntryError as error:
            if isinstance(error.cause, UnknownVersionError):
                raise error.cause from None
            broken = error.entry.index - base.first.index
            number, at = broken, at if broken == number else 0
            damage: LitelogError = error.cause
        if isinstance(damage, NotFoundError):
            index, key = entries[number].index, entries[number].key
            base = _look_again(client, base, index, at)
            number, damage = index - base.first.index, ReplicaGapError(key)
            entries = base.entries[: stop - base.first.index]
            if entries[number].key != key:
                start = SealedStart(at)
                continue
        extra = fields("sealed-segment-damaged", replica=client.url)
        _logger.warning("%s: %s; reading its WAL segments", client.url, damage, extra=extra)
        yield from _read_unsealed(client, entries[number], at, log_format, damage)
        number, start = number + 1, SealedStart()


def _read_unsealed(
    client: ReplicaClient, entry: SnapshotEntry, offset: int, log_format: LogFormat, damage: LitelogError
) -> Iterator[SealedBatch]:
    try:
        yield from read_unsealed(client, entry, offset, log_format)
    except CorruptionError:
        raise damage from None


def _look_again(client: ReplicaClient, base: Base, index: int, offset: int) -> Base:
    """The base as it is now, for a log segment whose sealed segment is gone. PrunedError where it names none any more;
    the base as it was where the newest snapshot cannot be read."""
    newest = list_pieces(client, base.claim).base
    if newest.first.index > index:
        raise PrunedError(str(Position(newest.start.generation, index, offset)))
    return newest if newest.start.index > index else base
