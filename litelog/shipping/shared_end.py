"""How much of its newest log segments a log still shares with the generation that it diverges from.

A rewound log keeps the beginning of what was acknowledged. Readers stay with the old generation until the new one holds
that beginning, too.

Specified in litelog/shipping/README.md#a-generation-that-diverges.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from litelog.errors import CorruptionError, NotFoundError, UnknownVersionError
from litelog.objects.sealed_decoding import decode_frames
from litelog.reading.contents import list_pieces
from litelog.reading.sealed_reader import open_sealed
from litelog.reading.search import read_header, read_segment
from litelog.reading.wal_cursor import describe_sealed
from litelog.shipping.finished_segments import FinishedSegments
from litelog.shipping.log_identity import ShippedEnd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.log.source import OpenSegment
    from litelog.objects.claim import Claim
    from litelog.objects.position import Position
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader
    from litelog.shipping.context import ReplicaContext
    from litelog.stores.replica_client import ReplicaClient


def find_shared_end(
    context: ReplicaContext, predecessor: Claim, start_file: str, base: int, finished: int
) -> ShippedEnd | None:
    """Return the end of what the log shares with ``predecessor``'s generation, by the indexes of the new generation.

    Looks at the log segments that the new generation ships as WAL segments. Returns None if they share nothing with
    the old one, or if the old one cannot be read.

    Args:
        context: The log and the replica.
        predecessor: The claim of the generation that readers take now.
        start_file: The log segment that gets index ``base``; empty for the log's first one.
        base: The index of the log's first log segment in the new generation.
        finished: How many log segments from ``start_file`` on are sealed before the first snapshot.

    Raises:
        StoreError: The replica cannot be read now.
        SourceError: The log cannot be read.
    """
    files = FinishedSegments(context.source, context.clock)
    shared: ShippedEnd | None = None
    with suppress(CorruptionError, UnknownVersionError, NotFoundError, FileNotFoundError):
        held = _Held(context.client, predecessor)
        for index, name in enumerate(files.non_empty_from(start_file)[finished:], base + finished):
            with files.open(name) as opened:
                common = held.count_common(name, opened)
                end = min(common, files.find_end(name, opened))
                if end == 0:
                    break
                shared = ShippedEnd(name, index, end, opened.checksum(end), None, None, final=False)
                if common < opened.size():
                    break
    return shared


class _Held:
    """The log segments of one generation, as its objects hold them."""

    def __init__(self, client: ReplicaClient, claim: Claim) -> None:
        self._client = client
        contents = list_pieces(client, claim)
        self._sealed = {entry.file: entry for entry in contents.base.entries}
        positions = (info.position for info in contents.wal)
        self._indexes = [list(each) for _, each in groupby(positions, key=lambda position: position.index)]

    def count_common(self, name: str, opened: OpenSegment) -> int:
        """Return how many bytes of the log segment ``name`` are the same in the log and in the generation."""
        if name in self._sealed:
            return self._count_in_sealed(self._sealed[name], opened)
        for positions in reversed(self._indexes):
            header = read_header(self._client, positions[0])
            if header.file != name:
                continue
            if header.sealed is not None:
                return self._count_in_sealed(describe_sealed(self._client, header), opened)
            return self._count_in_wal(positions, opened)
        return 0

    def _count_in_wal(self, positions: Sequence[Position], opened: OpenSegment) -> int:
        """Each header has sums of the bytes before its end, so a binary search finds the first WAL segment that
        differs. Its bytes show where."""
        number = bisect_left(
            positions, True, key=lambda position: not _holds(opened, read_header(self._client, position))
        )
        if number == len(positions):
            return read_header(self._client, positions[-1]).end
        segment, start = read_segment(self._client, positions[number]), positions[number].offset
        data = segment.data()
        return start + count_equal(data, opened.read(start, len(data)))

    def _count_in_sealed(self, entry: SnapshotEntry, opened: OpenSegment) -> int:
        if opened.size() >= entry.length and opened.sha256(0, entry.length) == entry.digest:
            return entry.length
        sealed, same = open_sealed(self._client, entry), 0
        for number in range(len(sealed.footer.frames)):
            frame = range(number, number + 1)
            data = sealed.read_verified(frame, partial(decode_frames, entry.key, sealed.footer, frame))
            equal = count_equal(data, opened.read(same, len(data)))
            same += equal
            if equal < len(data):
                break
        return same


def _holds(opened: OpenSegment, header: WalHeader) -> bool:
    if header.successor is not None or opened.size() < header.end or opened.checksum(header.end) != header.crc_total:
        return False
    if header.check_start is None:
        return True
    # Commits that end with their own CRC-32C have the same CRC-32C, whatever they hold.
    return opened.sha256(header.check_start, header.end) == header.check_digest


def count_equal(one: bytes | memoryview, other: bytes) -> int:
    """Return how many bytes both begin with."""
    import numpy as np  # noqa: PLC0415 - only a log that diverges needs it

    length = min(len(one), len(other))
    differs = np.frombuffer(one, np.uint8, length) != np.frombuffer(other, np.uint8, length)
    return int(differs.argmax()) if differs.any() else length
