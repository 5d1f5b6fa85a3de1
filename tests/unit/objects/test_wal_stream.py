"""A reader's view of a stream of WAL segments that is whole, broken off, or damaged."""

from __future__ import annotations

import io

import pytest

from litelog.codec.lz4_frames import skippable_frame
from litelog.errors import CorruptObjectError, LitelogError, StoreError
from litelog.objects import wal_stream
from litelog.objects.wal_segment import WalSegment
from litelog.objects.wal_stream import StreamError, announced, read_stream
from tests.builders.replica_builder import ReplicaBuilder, make_log
from tests.sampling import sampled

LOG = make_log([[2, 1, 3]])


def make_pieces() -> list[bytes]:
    """Three WAL segments, announced."""
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(LOG[0], final=None)
    client = builder.client
    found = [info.position for info in client.wal_segments(built.claim.generation)]
    return [b"".join(announced(position, [client.read_wal_segment(position)])) for position in found]


def read(data: bytes) -> list[WalSegment | StreamError]:
    return list(read_stream("http://a/logs/x", io.BytesIO(data)))


def test_a_whole_stream_gives_its_wal_segments() -> None:
    pieces = make_pieces()
    found = read(wal_stream.sign_of_life().join(pieces) + wal_stream.end())
    assert b"".join(each.data() for each in found if isinstance(each, WalSegment)) == LOG[0].data
    assert len(found) == len(pieces)


def test_an_error_comes_last() -> None:
    first, *_ = make_pieces()
    segment, error = read(first + wal_stream.failure({"http_status": 409, "message": "forked", "next": 3}))
    assert isinstance(segment, WalSegment)
    assert error == StreamError(409, "forked")


def test_a_stream_that_breaks_off_at_any_byte_gives_whole_wal_segments_before_it() -> None:
    pieces = make_pieces()
    whole = b"".join(pieces) + wal_stream.end()
    ends = [sum(map(len, pieces[: count + 1])) for count in range(len(pieces))]
    for cut in range(len(whole)):
        got: list[WalSegment | StreamError] = []
        with pytest.raises(StoreError, match="broke off"):
            got.extend(read_stream("http://a/logs/x", io.BytesIO(whole[:cut])))
        reader = read_stream("http://a/logs/x", io.BytesIO(whole[:cut]))
        count = sum(end <= cut for end in ends)
        assert all(isinstance(next(reader), WalSegment) for _ in range(count))
        with pytest.raises(StoreError, match="broke off"):
            next(reader)


def test_a_flipped_bit_never_gives_wrong_bytes() -> None:
    first, *_ = make_pieces()
    whole = first + wal_stream.end()
    for bit in sampled(range(8 * len(whole)), 8, "bits of a stream"):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            found = [each for each in read(bytes(damaged)) if isinstance(each, WalSegment)]
            data = b"".join(segment.data() for segment in found)
        except LitelogError:
            continue
        assert LOG[0].data.startswith(data), bit


@pytest.mark.parametrize(
    "fields",
    [
        b"[]",
        b"{",
        b'{"position": "x", "size": 1, "digest": ""}',
        b'{"position": "%s", "size": 99999999999, "digest": ""}' % b"0000000000000001/".ljust(50, b"0"),
        b'{"position": 1, "size": 1}',
        b'{"error": 1}',
        b'{"error": {"message": "x"}}',
    ],
)
def test_an_announcement_without_a_meaning_is_an_error(fields: bytes) -> None:
    with pytest.raises(CorruptObjectError, match="http://a/logs/x"):
        read(skippable_frame(fields) + wal_stream.end())


def test_bytes_that_are_no_announcement_allocate_nothing() -> None:
    with pytest.raises(CorruptObjectError, match="no announcement"):
        read(b"\x50\x2a\x4d\x18\xff\xff\xff\xff")
    with pytest.raises(CorruptObjectError, match="no announcement"):
        read(b"<html></html>")
