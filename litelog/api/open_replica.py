"""Reads the records of a replica, as LogReader reads those of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, SupportsIndex, get_args, overload

from litelog.errors import ConfigError
from litelog.log.read_bounds import ReadBounds
from litelog.objects.position import generation as to_generation
from litelog.reading.replica_records import ReplicaRecords, open_records
from litelog.reading.several_places import SeveralPlaces, replica_sources
from litelog.stores.replica_address import addresses_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from litelog.formats.record_stream import RecordStream
    from litelog.objects.position import Generation
    from litelog.stores.replica_address import Replica
    from litelog.units import Time

Isolation = Literal["read_uncommitted", "read_committed"]
ISOLATIONS: tuple[str, ...] = get_args(Isolation)


@overload
def open_replica(
    replica: Replica,
    *,
    start: SupportsIndex | datetime | str = "earliest",
    start_time: Time | None = None,
    end: SupportsIndex | datetime | str | None = None,
    end_time: Time | None = None,
    follow: bool = False,
    poll_interval: float = 1.0,
    generation: str | None = None,
    pattern: str | None = None,
    isolation: Isolation = "read_uncommitted",
) -> ReplicaRecords: ...


@overload
def open_replica(
    replica: Sequence[Replica],
    *,
    start: SupportsIndex | datetime | str = "earliest",
    start_time: Time | None = None,
    end: SupportsIndex | datetime | str | None = None,
    end_time: Time | None = None,
    follow: bool = False,
    poll_interval: float = 1.0,
    generation: str | None = None,
    pattern: str | None = None,
    isolation: Isolation = "read_uncommitted",
) -> RecordStream: ...


def open_replica(  # noqa: PLR0913 - each is an independent choice
    replica: Replica | Sequence[Replica],
    *,
    start: SupportsIndex | datetime | str = "earliest",
    start_time: Time | None = None,
    end: SupportsIndex | datetime | str | None = None,
    end_time: Time | None = None,
    follow: bool = False,
    poll_interval: float = 1.0,
    generation: str | None = None,
    pattern: str | None = None,
    isolation: Isolation = "read_uncommitted",
) -> ReplicaRecords | RecordStream:
    """Open a replica to read its records. Makes no request yet, except to resolve "latest" and "end".

        with litelog.open_replica("s3://backups/orders", start=datetime(2026, 11, 23, tzinfo=UTC)) as records:
            for record in records:
                print(record.sequence, record.time, record.value)

    Args:
        replica: the replica's URL or path, or a ReplicaConfig, which has options as well. Or several places of one log,
            for example the URL at its daemon and the replica in the object store: the first one is read, and while it
            cannot be reached, the next one. Each record is returned once.
        start: a sequence, "earliest", "latest" (the last record that exists), "end" (after it), or a datetime with a
            zone, as ``start_time``, or a text as ``litelog cat --from`` takes it, for example "oldest" or "2month3days"
            (so long before now). If the start lies after the replica's end, the reader ends at once without
            ``follow``, and waits for that record with it.
        start_time: instead of ``start``: begin with the first record at or after this time. Microseconds since 1970,
            or a datetime with a zone. In a format without timestamps: with the first record shipped then or later.
        end: the first sequence that is not returned, or a datetime, as ``end_time``; None: no limit.
        end_time: end before the first record at or after this time, given as ``start_time``; None: no limit.
        follow: wait for new records at the end of the replica. Without it, reading ends there.
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
            ``poll_interval`` or "read_committed" was asked of several places.
        NothingToRestoreError, StoreError: "latest" or "end" cannot be resolved.
    """
    bounds = ReadBounds.of(start, start_time, end, end_time)
    name = _generation_of(generation)
    addresses = addresses_of(replica)
    if len(addresses) > 1:
        if name is not None or is_committed(isolation) or poll_interval != 1.0:
            raise ConfigError("generation, poll_interval and read_committed are for one place, and here are several")
        sources = replica_sources(addresses, pattern, bounds.start_time)
        return SeveralPlaces(sources, bounds, follow=follow)
    ((url, options),) = addresses
    return open_records(
        url,
        options,
        bounds,
        follow=follow,
        poll_interval=poll_interval,
        generation=name,
        pattern=pattern,
        committed=is_committed(isolation),
    )


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
