"""What a log line says beside its message, one way for all; and which of many failures are worth a line."""

from __future__ import annotations

EVENT = "event"
LOG = "log"
REPLICA = "replica"
POSITION = "position"
NAMED = (LOG, REPLICA, POSITION)
"""The fields that say where something happened."""

REMINDER_FAILURES = 64
"""After how many failures in a row it is said again, besides after 1, 2, 4, 8, ...: every half an hour, or sooner."""


def fields(
    event: str,
    *,
    log: str | None = None,
    replica: str | None = None,
    position: object = None,
    **more: str | int | float | bool | None,
) -> dict[str, object]:
    """``extra`` for a call of ``logging``: fields that are None are left out.

    ``event``: a name that stays, for those who count and alert. ``log``: the log's folder. ``replica``: its URL as its
    client spells it, without secrets. ``position``: a Position, or text. ``more``: the event's own.
    """
    said = {EVENT: event, LOG: log, REPLICA: replica, POSITION: None if position is None else str(position), **more}
    return {name: value for name, value in said.items() if value is not None}


def is_worth_saying(failures: int) -> bool:
    """Whether so many failures in a row are told: not each of them."""
    return failures & (failures - 1) == 0 or failures % REMINDER_FAILURES == 0
