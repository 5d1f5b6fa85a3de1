"""Reads the records of a replica, as LogReader reads those of a log."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal, SupportsIndex, get_args

from litelog.errors import ConfigError
from litelog.log.read_bounds import ReadBounds
from litelog.objects.position import generation as to_generation
from litelog.reading.replica_records import ReplicaRecords, open_records
from litelog.reading.several_places import SeveralPlaces, replica_sources
from litelog.stores.replica_address import addresses_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from litelog.objects.position import Generation
    from litelog.stores.replica_address import Replica
    from litelog.units import Time

Isolation = Literal["read_uncommitted", "read_committed"]
ISOLATIONS: tuple[str, ...] = get_args(Isolation)


def open_replica(  # noqa: PLR0913 - each is an independent choice
    replica: Replica | Sequence[Replica],
    *,
    start: SupportsIndex | datetime | str = "earliest",
    start_time: Time | None = None,
    end: SupportsIndex | datetime | str | None = None,
    end_time: Time | None = None,
    follow: bool = False,
    block: bool = True,
    timeout: float | None = None,
    poll_interval: float = 1.0,
    generation: str | None = None,
    pattern: str | None = None,
    isolation: Isolation = "read_uncommitted",
) -> ReplicaRecords | SeveralPlaces:
    """Open a replica to read its records. Makes no request yet, except to resolve "latest" and "end".

        with litelog.open_replica("s3://backups/orders", start=datetime(2026, 11, 23, tzinfo=UTC)) as records:
            for record in records:
                print(record.sequence, record.time, record.value)

    Args:
        replica: the replica's URL or path, or a ReplicaConfig, which has options as well. Or several places of one log,
            for example the URL at its daemon and the replica in the object store: the first one is read, and while it
            cannot be reached, the next one. Each record is returned once.
        start, start_time, end, end_time: as for ``LogReader``. In a format without timestamps, a start time means the
            first record shipped then or later.
        follow, block, timeout: as for ``LogReader``.
        poll_interval: seconds between two polls at the end.
        generation: the name of the generation to read; None: the latest one.
        pattern: the shell pattern for the names of log segments, for the formats ``lines`` and ``raw``; None: all.
        isolation: "read_committed" leaves out the records of aborted transactions, and those after the first open one.
            Only for logs with transactions: those of Kafka.

    Returns:
        The records. Close them, or use them in a ``with`` block. Those of several places raise OffsetJumpError for
        records that are gone from all of them, and continue after these.

    Raises:
        ConfigError: the arguments contradict each other, no installed package serves the URL, or a generation, a
            ``poll_interval`` or "read_committed" was requested for several places.
        NothingToRestoreError, StoreError: "latest" or "end" cannot be resolved.
    """
    bounds = ReadBounds.of(start, start_time, end, end_time)
    name, committed = _generation_of(generation), is_committed(isolation)
    addresses = addresses_of(replica)
    limit = timeout if block else 0.0
    if len(addresses) > 1:
        if name is not None or committed or poll_interval != 1.0:
            raise ConfigError("generation, poll_interval and read_committed are for one place, and here are several")
        sources = replica_sources(addresses, pattern, bounds.start_time, limit)
        return SeveralPlaces(sources, bounds, follow=follow, timeout=limit)
    open_one = partial(open_records, generation=name, pattern=pattern, committed=committed)
    return open_one(*addresses[0], bounds, follow=follow, timeout=limit, poll_interval=poll_interval)


def is_committed(isolation: str) -> bool:
    """Whether only committed transactions are read. Raises ConfigError for an unknown isolation."""
    if isolation not in ISOLATIONS:
        raise ConfigError(f"the isolation {isolation!r} is none of {', '.join(ISOLATIONS)}")
    return isolation == "read_committed"


def _generation_of(text: str | None) -> Generation | None:
    try:
        return None if text is None else to_generation(text)
    except ValueError as error:
        raise ConfigError(str(error)) from None
