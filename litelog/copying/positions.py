"""Carries the positions of consumers from a replica to its copy, unless a consumer has moved in the copy itself.

They are read before the replica is listed, and put after all else: so a position in the copy is never ahead of its
records.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from litelog.errors import ExistsError
from litelog.objects import layout
from litelog.reading.consumer_positions import list_positions, read_newest

if TYPE_CHECKING:
    from litelog.objects.consumer_position import PositionObject
    from litelog.reading.consumer_positions import ReadPosition
    from litelog.stores.object_store import ObjectInfo, ObjectStore


def read_positions(store: ObjectStore) -> dict[str, ReadPosition]:
    """Read the position of each consumer, as the consumer itself would. The keys of the result are the names.

    That is the newest one, or, if that is damaged, the one before it. A position that is moved meanwhile is left to a
    later run. An unusable position is left out: ``verify`` reports it. Raises StoreError.
    """
    found = {name: read_newest(store, infos) for name, infos in list_positions(store).items()}
    return {name: position for name, position in found.items() if position is not None}


def carry_positions(positions: dict[str, ReadPosition], target: ObjectStore) -> list[ObjectInfo]:
    """Put positions into a copy. Returns those that were put.

    The copy keeps a position that was last moved in another place than the replica's: its consumer reads the copy. The
    copy also keeps a position that cannot be read, as nothing says where that was moved. Raises StoreError.
    """
    done = []
    held = list_positions(target)
    for name, newest in positions.items():
        there = read_newest(target, held[name]) if name in held else None
        if name in held and (there is None or not _may_follow(newest.found, there.found)):
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
