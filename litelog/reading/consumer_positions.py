"""The positions of the consumers of a replica, read without a consumer.

Specified in litelog/objects/README.md#position-of-a-consumer.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, NotFoundError, UnknownVersionError
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


def list_positions(store: ObjectStore) -> dict[str, list[ObjectInfo]]:
    """List the two newest objects of each consumer, the newest one last. The keys of the result are the names. Raises
    StoreError."""
    last: dict[str, list[ObjectInfo]] = {}
    for info in ordered(store.list(layout.CONSUMERS)):
        if (parsed := layout.parse_consumer(info.key)) is not None:
            last[parsed[0]] = [*last.get(parsed[0], ())[-1:], info]
    return last


def read_newest(store: ObjectStore, infos: Sequence[ObjectInfo]) -> ReadPosition | None:
    """Read the position of a consumer of ``list_positions``, as the consumer itself would: the newest one, or, if that
    is damaged, the one before it. None if it cannot be used, or was moved meanwhile. Raises StoreError."""
    for info in reversed(infos):
        with suppress(CorruptObjectError):
            try:
                return _read(store, info)
            except (NotFoundError, UnknownVersionError):
                return None
    return None


def _read(store: ObjectStore, info: ObjectInfo) -> ReadPosition:
    def check(body: bytes) -> ReadPosition:
        return ReadPosition(info, body, consumer_position.decode(info.key, body))

    return read_verified(partial(read_bounded, store, info.key), check)
