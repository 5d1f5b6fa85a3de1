"""Carries the positions of consumers from a replica to its copy, unless a consumer has moved in the copy itself.

They are read before the replica is listed, and put after all else: so a position in the copy is never ahead of its
records.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from litelog.errors import CorruptObjectError, ExistsError, NotFoundError, UnknownVersionError
from litelog.objects import consumer_position, layout
from litelog.reading.fetch import read_verified
from litelog.stores.object_store import ObjectInfo, ordered, read_bounded

if TYPE_CHECKING:
    from litelog.objects.consumer_position import PositionObject
    from litelog.stores.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """The newest position of a consumer."""

    info: ObjectInfo
    body: bytes
    found: PositionObject


def read_positions(store: ObjectStore) -> dict[str, ReadPosition]:
    """Read the newest position of each consumer. A position that is moved meanwhile is left to a later run.

    The keys of the result are the consumers' names.

    A position that cannot be used is left out: ``verify`` reports it. Raises StoreError.
    """
    newest: dict[str, ObjectInfo] = {}
    for info in ordered(store.list(layout.CONSUMERS)):
        if (parsed := layout.parse_consumer(info.key)) is not None:
            newest[parsed[0]] = info
    found = {}
    for name, info in newest.items():
        with suppress(NotFoundError, CorruptObjectError, UnknownVersionError):
            found[name] = _read(store, info)
    return found


def carry_positions(positions: dict[str, ReadPosition], target: ObjectStore) -> list[ObjectInfo]:
    """Put positions into a copy. Returns those that were put.

    A consumer whose newest position in the copy was not moved in the same place as that of the replica keeps it: it
    consumes the copy. Raises StoreError.
    """
    done = []
    held = read_positions(target)
    for name, newest in positions.items():
        there = held.get(name)
        if there is not None and not _may_follow(newest.found, there.found):
            continue
        with suppress(ExistsError):  # a consumer of the copy, or another copy, was first
            target.put(newest.info.key, [newest.body])
            done.append(newest.info)
        if there is not None and there.info.key < newest.info.key:
            older = [info.key for info in target.list(layout.consumer_prefix(name)) if info.key < there.info.key]
            target.delete(older)
    return done


def _may_follow(newest: PositionObject, there: PositionObject) -> bool:
    is_carried = there.place is not None and there.place == newest.place
    return is_carried and there.position.revision < newest.position.revision


def _read(store: ObjectStore, info: ObjectInfo) -> ReadPosition:
    def check(body: bytes) -> ReadPosition:
        return ReadPosition(info, body, consumer_position.decode(info.key, body))

    return read_verified(partial(read_bounded, store, info.key), check)
