"""Lists the consumers of a log with their lag, moves them, and deletes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import ConfigError, ConsumerStateError, UnknownVersionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.consumers.consumed_log import ConsumedLog
    from litelog.consumers.positions import KeptPosition
    from litelog.log.read_bounds import ReadBounds
    from litelog.system.clock import Clock


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """One consumer of a log, as it is now."""

    consumer: str
    next: int | None
    """The sequence of the first record that is not processed; None: the first record of the log."""
    lag_records: int | None
    """How many sequences the log holds from ``next`` on; below 0 if the log was rewound. None if unknown."""
    updated: int | None
    """When the position was moved, in microseconds since 1970."""
    reason: str | None = None
    """Why the position cannot be read."""


def list_consumers(log: ConsumedLog) -> Iterator[ConsumerState]:
    """Yield the consumers of a log, in the order of their names.

    Raises ConsumerStateError or StoreError if the positions cannot be listed, and the errors of a reader of the log's
    end.
    """
    names = log.positions.names()
    end = log.find_end() if names else None
    for name in names:
        try:
            position = log.positions.of(name).read()
        except (ConsumerStateError, UnknownVersionError) as error:
            yield ConsumerState(name, None, None, None, str(error))
            continue
        if position is None:
            continue  # another process has just deleted it
        begin = log.find_first() if position.next is None else position.next
        lag = None if end is None or begin is None else end - begin
        yield ConsumerState(name, position.next, lag, position.updated)


def move_consumer(log: ConsumedLog, name: str, bounds: ReadBounds, clock: Clock) -> int | None:
    """Move a consumer durably to where ``bounds`` begin, forward or back. Return that sequence; None: the first record.

    A process that runs under this name cannot commit after that.

    Raises:
        ConfigError: The consumer does not exist, or the log ends before the place.
        ConsumerStateError, StoreError: The position cannot be written.
    """
    kept = _require(log, name)
    place = log.resolve(bounds)
    end = log.find_end()
    if place is not None and end is not None and place > end:
        raise ConfigError(f"{log.name}: ends before sequence {place}; the next record will have the sequence {end}")
    kept.force(place, clock.now())
    return place


def delete_consumer(log: ConsumedLog, name: str) -> None:
    """Delete the position of a consumer durably.

    Raises ConfigError if the consumer does not exist, and ConsumerStateError or StoreError if the position cannot be
    deleted.
    """
    _require(log, name).delete()


def _require(log: ConsumedLog, name: str) -> KeptPosition:
    kept = log.positions.of(name)
    known = log.positions.names()
    if name not in known:
        raise ConfigError(f"{log.name}: no consumer {name} (known: {', '.join(known) or 'none'})")
    return kept
