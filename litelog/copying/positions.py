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
    from collections.abc import Sequence

    from litelog.objects.consumer_position import PositionObject
    from litelog.stores.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """The position of a consumer."""

    info: ObjectInfo
    body: bytes
    found: PositionObject


def read_positions(store: ObjectStore) -> dict[str, ReadPosition]:
    """Read the position of each consumer, as the consumer itself would. The keys of the result are the names.

    That is the newest one, or, if that is damaged, the one before it. A position that is moved meanwhile is left to a
    later run. One that cannot be used is left out: ``verify`` reports it. Raises StoreError.
    """
    found = {name: _read_last(store, infos) for name, infos in _list_last(store).items()}
    return {name: position for name, position in found.items() if position is not None}


def carry_positions(positions: dict[str, ReadPosition], target: ObjectStore) -> list[ObjectInfo]:
    """Put positions into a copy. Returns those that were put.

    A consumer whose position in the copy was not moved in the same place as that of the replica keeps it: it consumes
    the copy. It also keeps one that cannot be read, as nothing says where that was moved. Raises StoreError.
    """
    done = []
    held = _list_last(target)
    for name, newest in positions.items():
        there = _read_last(target, held[name]) if name in held else None
        if name in held and (there is None or not _may_follow(newest.found, there.found)):
            continue
        with suppress(ExistsError):  # a consumer of the copy, or another copy, was first
            target.put(newest.info.key, [newest.body])
            done.append(newest.info)
        if there is not None and there.info.key < newest.info.key:
            older = [info.key for info in target.list(layout.consumer_prefix(name)) if info.key < there.info.key]
            target.delete(older)
    return done


def _list_last(store: ObjectStore) -> dict[str, list[ObjectInfo]]:
    """The two newest objects of each consumer, the newest one last."""
    last: dict[str, list[ObjectInfo]] = {}
    for info in ordered(store.list(layout.CONSUMERS)):
        if (parsed := layout.parse_consumer(info.key)) is not None:
            last[parsed[0]] = [*last.get(parsed[0], ())[-1:], info]
    return last


def _read_last(store: ObjectStore, infos: Sequence[ObjectInfo]) -> ReadPosition | None:
    for info in reversed(infos):
        with suppress(CorruptObjectError):
            try:
                return _read(store, info)
            except (NotFoundError, UnknownVersionError):
                return None
    return None


def _may_follow(newest: PositionObject, there: PositionObject) -> bool:
    is_carried = there.place is not None and there.place == newest.place
    return is_carried and there.position.revision < newest.position.revision


def _read(store: ObjectStore, info: ObjectInfo) -> ReadPosition:
    def check(body: bytes) -> ReadPosition:
        return ReadPosition(info, body, consumer_position.decode(info.key, body))

    return read_verified(partial(read_bounded, store, info.key), check)
