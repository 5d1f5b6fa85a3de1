"""The consumers of a served log that keep their positions in the daemon's state folder: their lag, and their places."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.consumers.administration import ConsumerState, list_consumers
from litelog.consumers.consumed_log import ConsumedLog
from litelog.consumers.position_file import PositionFile, consumer_names
from litelog.errors import ConsumerStateError, LitelogError
from litelog.log.replica_registry import log_state_folder

if TYPE_CHECKING:
    from litelog.live.served_log import ServedLog
    from litelog.log.read_bounds import Start


class UnknownConsumerError(LitelogError):
    """The log has no consumer of that name in the daemon's state folder."""


def read_consumers(served: ServedLog) -> list[ConsumerState]:
    """Return the consumers of a log, by their names. Reads the log's last records if there is a consumer.

    If the log cannot be read, each has the reason instead of its lag. Raises ConsumerStateError if the folder of the
    positions cannot be read.
    """
    source = served.log.source
    folder = log_state_folder(served.log.state_dir, source.folder)
    log = ConsumedLog(source.folder, folder, source.format, tuple(served.sources()), ())
    try:
        return list(list_consumers(log))
    except ConsumerStateError:
        raise
    except LitelogError as error:  # the facts of a log that is damaged are wanted most
        return [ConsumerState(name, None, None, None, str(error)) for name in consumer_names(folder)]


def find_consumer(served: ServedLog, name: str) -> int | Start:
    """Return the place of the first record that a consumer has not processed.

    Raises:
        UnknownConsumerError: There is no such consumer.
        ConfigError: A consumer cannot have that name.
        ConsumerStateError: Its position cannot be read.
    """
    position = PositionFile(log_state_folder(served.log.state_dir, served.log.source.folder), name).read()
    if position is None:
        raise UnknownConsumerError(f"{served.name}: no consumer {name}; /logs/{served.name} lists its consumers")
    return "earliest" if position.next is None else position.next
