"""Compares the records of a log whose writer rewrites finished log segments with those of a replica, which keeps what
was shipped: each record that the log still holds must be in the replica, as it was shipped.

Specified in litelog/formats/README.md#finished-log-segments-that-change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from litelog.log.reader import LogReader
from litelog.reading.replica_reader import ReplicaReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from litelog.formats import LogFormat
    from litelog.formats.columns import Columns
    from litelog.objects.position import Generation
    from litelog.stores.replica_client import ReplicaClient

    Int64s = npt.NDArray[np.int64]


def find_unlike_record(folder: str, log_format: LogFormat, client: ReplicaClient, name: Generation) -> int | None:
    """Return the sequence of the first record of the log in ``folder`` that a generation lacks, or holds with other
    content. None if there is none up to the generation's end.

    Raises what ``LogReader`` and ``ReplicaReader`` raise.
    """
    with (
        LogReader(folder, log_format) as local,
        ReplicaReader(client, generation=name, formats=lambda _: log_format) as replica,
    ):
        return find_unlike(local.batches(), replica.batches())


def find_unlike(local: Iterable[Columns], replica: Iterator[Columns]) -> int | None:
    """Return the sequence of the first record of ``local`` that ``replica`` lacks, or holds with other content.
    Records after the last record of ``replica`` do not count."""
    held: Columns | None = next(replica, None)
    for columns in local:
        left = columns
        while len(left):
            while held is not None and held.sequences[-1] < left.sequences[0]:
                held = next(replica, None)
            if held is None:
                return None
            part = left.slice(0, left.find(int(held.sequences[-1]) + 1))
            left = left.slice(len(part), len(left))
            unlike = _first_unlike(part, held)
            if unlike is not None:
                return unlike
    return None


def _first_unlike(part: Columns, held: Columns) -> int | None:
    """The first sequence of ``part`` that ``held`` lacks, or holds with other content."""
    places = np.minimum(np.searchsorted(held.sequences, part.sequences), len(held) - 1)
    other = held.take(places)
    unlike = other.sequences != part.sequences
    for mine, theirs in (
        (part.timestamps, other.timestamps),
        (part.value_nulls, other.value_nulls),
        (part.value_lengths, other.value_lengths),
        (_key_lengths(part), _key_lengths(other)),
    ):
        if mine is not None and theirs is not None:
            unlike |= mine != theirs
    alike = np.flatnonzero(~unlike)
    kept, counterpart = part.take(alike), other.take(alike)
    unlike[alike] = _differ(kept, counterpart, kept.value_lengths, kept.value_starts, counterpart.value_starts)
    if kept.key_starts is not None and counterpart.key_starts is not None:
        lengths = np.maximum(_key_lengths(kept), 0)
        unlike[alike] |= _differ(kept, counterpart, lengths, kept.key_starts, counterpart.key_starts)
    found = np.flatnonzero(unlike)
    return int(part.sequences[found[0]]) if len(found) else None


def _key_lengths(columns: Columns) -> Int64s:
    """The lengths of keys; -1 for no key."""
    return np.full(len(columns), -1, np.int64) if columns.key_lengths is None else columns.key_lengths


def _differ(one: Columns, other: Columns, lengths: Int64s, starts: Int64s, others: Int64s) -> npt.NDArray[np.bool_]:
    """Whether the bytes of each record differ: ``lengths`` bytes at ``starts`` in the one, and at ``others`` in the
    other."""
    begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])[:-1]
    steps = np.arange(int(lengths.sum()))
    mine = np.frombuffer(one.data, np.uint8)[np.repeat(starts - begins, lengths) + steps]
    theirs = np.frombuffer(other.data, np.uint8)[np.repeat(others - begins, lengths) + steps]
    owners = np.repeat(np.arange(len(lengths)), lengths)
    differ = np.zeros(len(lengths), np.bool_)
    differ[owners[mine != theirs]] = True
    return differ
