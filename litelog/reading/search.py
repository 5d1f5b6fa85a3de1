"""Reads single WAL segments and their headers, and finds the WAL segment that holds a sequence or a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from litelog.errors import NotFoundError, ReplicaGapError
from litelog.objects import wal_segment
from litelog.objects.layout import wal_key
from litelog.objects.wal_segment import MAX_HEADER_BYTES, decode_header
from litelog.reading.fetch import read_verified

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Buffer

    from litelog.objects.position import Position
    from litelog.objects.wal_segment import WalHeader, WalSegment
    from litelog.stores.replica_client import ReplicaClient

PROBE_BYTES = 4 << 10
"""How many bytes of an object are read for its header; a longer header costs a second request."""

HEADERS_AT_ONCE = 256
"""How many headers a search for a time, which needs all of them in order, reads at a time."""

_Decoded = TypeVar("_Decoded")


def read_header(client: ReplicaClient, position: Position) -> WalHeader:
    """Read the header of the WAL segment at ``position``: one ranged GET of a few kilobytes.

    Checks only the form of the header, and that it states its position. Raises ReplicaGapError if it is missing.
    """

    def read_head() -> bytes:
        head = client.read_wal_segment(position, 0, PROBE_BYTES)
        if len(head) == PROBE_BYTES and int.from_bytes(head[4:8], "little") > PROBE_BYTES - 8:
            head = client.read_wal_segment(position, 0, MAX_HEADER_BYTES)
        return head

    try:
        return read_verified(read_head, partial(decode_header, wal_key(position)))
    except NotFoundError as error:
        raise ReplicaGapError(str(position)) from error


def find_header(client: ReplicaClient, position: Position) -> WalHeader | None:
    """As ``read_header``; None if the WAL segment is missing."""
    try:
        return read_header(client, position)
    except ReplicaGapError:
        return None


def read_segment(client: ReplicaClient, position: Position) -> WalSegment:
    """Read the WAL segment at ``position``, and check its bytes. Raises ReplicaGapError and CorruptObjectError."""
    return _read_segment(client, position, wal_segment.decode_checked)


def read_segment_data(client: ReplicaClient, position: Position) -> tuple[WalSegment, memoryview]:
    """As ``read_segment``; also return the bytes of its run."""

    def decode(key: str, body: Buffer) -> tuple[WalSegment, memoryview]:
        segment = wal_segment.decode(key, body)
        return segment, segment.data()

    return _read_segment(client, position, decode)


def _read_segment(client: ReplicaClient, position: Position, decode: Callable[[str, Buffer], _Decoded]) -> _Decoded:
    try:
        return read_verified(partial(client.read_wal_segment, position), partial(decode, wal_key(position)))
    except NotFoundError as error:
        raise ReplicaGapError(str(position)) from error


def find_segment(client: ReplicaClient, position: Position) -> WalSegment | None:
    """As ``read_segment``; None if the WAL segment is missing."""
    try:
        return read_segment(client, position)
    except ReplicaGapError:
        return None


class HeaderReader:
    """Reads many headers concurrently, each once."""

    def __init__(self, client: ReplicaClient, parallelism: int, known: WalHeader | None = None) -> None:
        """``known``: a header that was just read."""
        self._client = client
        self._parallelism = parallelism
        self._last: dict[Position, WalHeader] = {} if known is None else {known.position: known}

    def __call__(self, positions: Sequence[Position]) -> list[WalHeader]:
        wanted = [position for position in positions if position not in self._last]
        if len(self._last) + len(wanted) > 2 * HEADERS_AT_ONCE:
            self._last.clear()
            wanted = list(positions)
        if len(wanted) < 2 or self._parallelism < 2:
            read = [read_header(self._client, position) for position in wanted]
        else:
            with ThreadPoolExecutor(min(self._parallelism, len(wanted)), "header") as pool:
                read = list(pool.map(lambda position: read_header(self._client, position), wanted))
        self._last.update(zip(wanted, read, strict=True))
        return [self._last[position] for position in positions]


def first_reaching(
    positions: Sequence[Position], headers: Callable[[Sequence[Position]], list[WalHeader]], sequence: int
) -> int:
    """The number of the first WAL segment with a record of ``sequence`` or above; len(positions) without one.

    Sequences rise, so this is a binary search.
    """
    low, high = 0, len(positions)
    while low < high:
        middle = (low + high) // 2
        at = middle
        while (reached := headers([positions[at]])[0].next) is None and at > low:
            at -= 1  # a header without records shows nothing
        if reached is not None and reached > sequence:
            high = at
        else:
            low = middle + 1
    return low


def first_shipped(
    positions: Sequence[Position], headers: Callable[[Sequence[Position]], list[WalHeader]], time: int
) -> int:
    """The number of the first WAL segment shipped at ``time`` (microseconds) or later; len(positions) if none."""
    low, high = 0, len(positions)
    while low < high:
        middle = (low + high) // 2
        if headers([positions[middle]])[0].shipped >= time:
            high = middle
        else:
            low = middle + 1
    return low


def first_stamped(
    positions: Sequence[Position], headers: Callable[[Sequence[Position]], list[WalHeader]], timestamp: int
) -> int:
    """The number of the first WAL segment with a record stamped ``timestamp`` (microseconds) or later.

    len(positions) without one. Record timestamps do not have to rise, so headers are read from the first one on.
    """
    for start in range(0, len(positions), HEADERS_AT_ONCE):
        for number, header in enumerate(headers(positions[start : start + HEADERS_AT_ONCE]), start):
            if header.highest is not None and header.highest >= timestamp:
                return number
    return len(positions)
