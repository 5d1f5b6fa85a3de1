"""Finds out whether a log still holds the record that a consumer processed last: a log that was rewound does not.

Specified in litelog/consumers/README.md#a-log-that-was-rewound.
"""

from __future__ import annotations

import struct
from enum import Enum, auto
from typing import TYPE_CHECKING

from litelog.codec.checksum import crc32c
from litelog.errors import DivergedError, NothingToRestoreError, SourceMissingError, StoreError, TruncatedError
from litelog.objects.consumer_position import Evidence

if TYPE_CHECKING:
    from litelog.consumers.consumed_log import ConsumedLog
    from litelog.formats.columns import Columns
    from litelog.reading.combined_reader import RecordSource

MOST_BYTES = 4096
"""How many bytes are compared of a log whose sequences count bytes."""

_HEAD = struct.Struct("<qq?q?")


class RecordTrace(Enum):
    """The trace of a record in a source."""

    SAME = auto()
    OTHER = auto()
    """Another record has its sequence."""
    GONE = auto()
    """The source begins after it, or holds only later records."""
    ENDS = auto()
    """The source ends before it."""
    MISSING = auto()
    """The source does not exist now."""


def make_evidence(columns: Columns, following: int, *, divisible: bool) -> Evidence | None:
    """The evidence of the last of these records before the sequence ``following``; None if there is none."""
    number = columns.find(following) - 1
    if number < 0:
        return None
    if not divisible:
        return _of_record(columns, number)
    first = int(columns.sequences[number])
    begin = max(first, following - MOST_BYTES)
    start = int(columns.value_starts[number])
    taken = bytes(columns.data[start + begin - first : start + following - first])
    return Evidence(begin, len(taken), crc32c(taken))


def require_same_log(log: ConsumedLog, name: str, evidence: Evidence) -> bool:
    """Check that the log holds the record that consumer ``name`` processed last. Return False if that cannot be found
    out now, as no source that holds it is there.

    Raises DivergedError if the log holds another record, or ends before it.
    """
    is_known = False
    for number, source in enumerate(log.sources):
        found = _look(source, evidence, divisible=log.is_divisible, has_others=len(log.sources) > 1)
        is_known = is_known or found is not RecordTrace.MISSING
        if found is RecordTrace.SAME:
            return True
        if found is RecordTrace.OTHER or (found is RecordTrace.ENDS and not number):
            what = "holds another record at" if found is RecordTrace.OTHER else "ends before"
            raise DivergedError(
                log.name,
                f"{what} sequence {evidence.sequence}, which consumer {name} has processed: the log was rewound or "
                "replaced; the consumer stays where it is until you move it with litelog consumers move",
            )
        if found is RecordTrace.ENDS:
            return False  # it lags behind a folder that does not exist
    return is_known


def _look(source: RecordSource, evidence: Evidence, *, divisible: bool, has_others: bool) -> RecordTrace:
    """Look for the record in a source. A source that cannot be read now counts as missing, if there are others."""
    taken = b""
    try:
        with source.open(evidence.sequence, evidence.end if divisible else None, False) as stream:
            for columns in stream.batches():
                first = int(columns.sequences[0])
                if first > evidence.sequence + len(taken):
                    return RecordTrace.GONE
                if not divisible:
                    return RecordTrace.SAME if _of_record(columns, 0) == evidence else RecordTrace.OTHER
                taken += b"".join(record.value for record in columns.records())
    except TruncatedError:
        return RecordTrace.GONE
    except (SourceMissingError, NothingToRestoreError, StoreError) as error:
        if isinstance(error, StoreError) and not (error.retryable and has_others):
            raise
        return RecordTrace.MISSING
    if not divisible or len(taken) < evidence.size:
        return RecordTrace.ENDS
    return RecordTrace.SAME if crc32c(taken) == evidence.crc else RecordTrace.OTHER


def _of_record(columns: Columns, number: int) -> Evidence:
    (record,) = columns.slice(number, number + 1).records()
    stamp, key = record.timestamp, record.key
    head = _HEAD.pack(
        record.sequence, -1 if stamp is None else stamp, key is None, -1 if key is None else len(key), record.is_null
    )
    return Evidence(record.sequence, 1, crc32c(head + (key or b"") + record.value))
