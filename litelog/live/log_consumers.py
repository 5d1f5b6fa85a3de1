"""The consumers of a served log that keep their positions in the daemon's state folder: their lag and their places.
Also finds the log's records of a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.consumers.administration import ConsumerState, list_consumers
from litelog.consumers.consumed_log import consumed_folder
from litelog.consumers.position_file import PositionFile, consumer_names
from litelog.errors import ConsumerStateError, LitelogError
from litelog.log.replica_registry import log_state_folder

if TYPE_CHECKING:
    from litelog.consumers.consumed_log import ConsumedLog
    from litelog.live.served_log import ServedLog
    from litelog.log.read_bounds import Start


class UnknownConsumerError(LitelogError):
    """The log has no consumer of that name in the daemon's state folder."""


def read_consumers(served: ServedLog) -> list[ConsumerState]:
    """Return the consumers of a log, by their names. Reads the log's last records if there is a consumer.

    If the log cannot be read, each has the reason instead of its lag. Raises ConsumerStateError if the folder of the
    positions cannot be read.
    """
    try:
        return list(list_consumers(_consumed(served)))
    except ConsumerStateError:
        raise
    except LitelogError as error:  # the facts of a log that is damaged are wanted most
        return [ConsumerState(name, None, None, None, str(error)) for name in consumer_names(_folder_of(served))]


def position_of(served: ServedLog, name: str) -> PositionFile:
    """Return the position of a consumer, which may not exist yet. Raises ConfigError for an invalid name."""
    return PositionFile(_folder_of(served), name)


def unknown(served: ServedLog, name: str) -> UnknownConsumerError:
    """The error of a request for a consumer that is not there."""
    return UnknownConsumerError(f"{served.name}: no consumer {name}; /logs/{served.name} lists its consumers")


def find_consumer(served: ServedLog, name: str) -> int | Start:
    """Return the place of the first record that a consumer has not processed.

    Raises:
        UnknownConsumerError: The consumer does not exist.
        ConfigError: The name is not valid for a consumer.
        ConsumerStateError: Its position cannot be read.
    """
    position = position_of(served, name).read()
    if position is None:
        raise unknown(served, name)
    return "earliest" if position.next is None else position.next


def find_time(served: ServedLog, time: int) -> int | Start:
    """Return the place of the first record at or after ``time``, in microseconds since 1970, or else the log's end.

    Raises ConfigError if the log's records have no timestamps, and the errors of a reader of the log.
    """
    found = _consumed(served).find_time(time)
    return "earliest" if found is None else found


def _consumed(served: ServedLog) -> ConsumedLog:
    log = served.log
    return consumed_folder(log.source.folder, log.replicas, log.source.format, log.pattern, log.state_dir)


def _folder_of(served: ServedLog) -> str:
    return log_state_folder(served.log.state_dir, served.log.source.folder)
