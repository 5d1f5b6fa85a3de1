"""WAL segments come back as they were encoded, and every change to an object is found and named."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from typing import Any

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from litelog.codec.checksum import crc32c
from litelog.codec.lz4_frames import FRAME_BYTES, compress_frame, skippable_frame
from litelog.errors import CorruptObjectError, ExitCode
from litelog.objects import wal_segment
from litelog.objects.layout import wal_key
from litelog.objects.position import MAX_INDEX, MAX_OFFSET, Generation, Position
from litelog.objects.wal_segment import MAX_HEADER_BYTES, WalHeader

DATA = b"one commit, and another commit\n" * 9
G = Generation("0000000100000000")


def header_of(data: bytes = DATA, **changes: Any) -> WalHeader:
    header = WalHeader(
        log="0" * 32,
        format="raw",
        generation=G,
        owner="owner",
        index=3,
        offset=4096,
        length=len(data),
        file="00000.log",
        first=7,
        next=9,
        records=2,
        lowest=-5,
        highest=1_700_000_000_000_000,
        crc=crc32c(data),
        crc_total=12345,
        previous="ab" * 32,
        shipped=1_700_000_000_000_001,
    )
    return replace(header, **changes)


def object_of(header: WalHeader, data: bytes = DATA) -> bytes:
    return b"".join(wal_segment.encode(header, data))


def object_with(fields: Any, data: bytes = DATA) -> bytes:
    return skippable_frame(json.dumps(fields).encode()) + (compress_frame(data) if data else b"")


KEY = wal_key(Position(G, 3, 4096))
FIELDS = {"version": 1, **asdict(header_of())}


@pytest.mark.slow
@given(
    st.binary(min_size=1, max_size=5000),
    st.integers(0, MAX_INDEX - 1),
    st.integers(0, MAX_OFFSET - 5000),
    st.text(max_size=60),
    st.none() | st.integers(-(1 << 63), 1 << 63),
    st.booleans(),
)
def test_an_encoded_object_decodes_to_the_same_value(
    data: bytes, index: int, offset: int, file: str, stamp: int | None, final: bool
) -> None:
    header = header_of(data, index=index, offset=offset, file=file, lowest=stamp, highest=stamp, final=final)
    body = object_of(header, data)
    segment = wal_segment.decode(wal_key(header.position), body)
    assert segment.header == header
    assert segment.data() == data
    assert segment.digest == hashlib.sha256(body).hexdigest() == wal_segment.digest([body[:10], body[10:]])
    assert wal_segment.decode_header(wal_key(header.position), body[:MAX_HEADER_BYTES]) == header


def test_a_person_reads_the_bytes_with_lz4_alone() -> None:
    header = skippable_frame(b"x")
    body = object_of(header_of())
    frames = body[8 + int.from_bytes(body[4:8], "little") :]
    assert lz4.frame.decompress(frames) == DATA
    assert body[:4] == header[:4]


def test_large_runs_come_in_pieces() -> None:
    data = bytes(2 * FRAME_BYTES + 5)
    segment = wal_segment.decode(KEY, object_of(header_of(data), data))
    assert [len(piece) for piece in segment.pieces()] == [FRAME_BYTES, FRAME_BYTES, 5]


@pytest.mark.parametrize("changes", [{"final": True}, {"successor": "epochs/00000002.json"}])
def test_a_final_or_terminal_one_may_be_empty(changes: dict[str, Any]) -> None:
    header = header_of(b"", records=0, first=None, next=None, **changes)
    segment = wal_segment.decode(KEY, object_of(header, b""))
    assert segment.data() == b""
    assert segment.header == header


def test_a_final_one_may_stand_for_a_sealed_segment() -> None:
    header = header_of(b"", records=0, first=None, final=True, sealed="0f" * 32)
    segment = wal_segment.decode(KEY, object_of(header, b""))
    assert segment.header == header
    assert segment.header.sealed == "0f" * 32
    assert b"sealed" not in object_of(header_of())  # headers without are written as they always were


@pytest.mark.parametrize(
    ("change", "data"),
    [
        ({"sealed": ""}, b""),
        ({"sealed": "0f" * 31}, b""),
        ({"sealed": "0F" * 32}, b""),
        ({"final": False}, b""),
        ({"records": 1}, b""),
        ({"successor": "epochs/00000002.json"}, b""),
        ({}, DATA),
    ],
)
def test_a_wal_segment_that_stands_for_a_sealed_segment_is_empty_and_final(change: dict[str, Any], data: bytes) -> None:
    stands: dict[str, Any] = {"final": True, "sealed": "0f" * 32, "records": 0, "first": None}
    with pytest.raises(CorruptObjectError, match="header"):
        read(KEY, object_of(header_of(data, **{**stands, **change}), data))


def test_the_next_slot_follows_the_bytes_or_starts_the_next_index() -> None:
    assert header_of().next_slot == Position(G, 3, 4096 + len(DATA))
    assert header_of(final=True).next_slot == Position(G, 4, 0)


def read(key: str, body: bytes) -> tuple[WalHeader, bytes]:
    segment = wal_segment.decode(key, body)
    return segment.header, segment.data()


@pytest.mark.slow
def test_any_flipped_bit_is_found_or_changes_the_digest_alone() -> None:
    body = bytearray(object_of(header_of()))
    whole = wal_segment.digest([body])
    found: list[CorruptObjectError] = []
    for bit in range(len(body) * 8):
        body[bit // 8] ^= 1 << bit % 8
        try:
            header, data = read(KEY, bytes(body))
        except CorruptObjectError as error:
            found.append(error)
        else:
            assert data == DATA  # the header changed: the chain of digests finds that
            assert header.position == header_of().position
            assert wal_segment.digest([body]) != whole
        body[bit // 8] ^= 1 << bit % 8
    assert {(error.key, error.exit_code) for error in found} == {(KEY, ExitCode.CORRUPTION)}


def test_every_cut_is_found() -> None:
    body = object_of(header_of())
    for size in range(len(body)):
        with pytest.raises(CorruptObjectError):
            read(KEY, body[:size])


@pytest.mark.parametrize("extra", [b"\0", b"x" * 20, compress_frame(b"more"), skippable_frame(b"more")])
def test_bytes_after_the_object_are_found(extra: bytes) -> None:
    with pytest.raises(CorruptObjectError):
        read(KEY, object_of(header_of()) + extra)


def test_an_object_under_another_ones_name_is_found() -> None:
    body = object_of(header_of())
    for other in (Position(G, 3, 4097), Position(G, 4, 4096), Position(Generation("0000000100000001"), 3, 4096)):
        with pytest.raises(CorruptObjectError, match="position in the header"):
            read(wal_key(other), body)


@pytest.mark.parametrize("change", [{"crc": 1}, {"length": len(DATA) - 1}, {"length": len(DATA) + 1}])
def test_a_header_that_does_not_fit_the_bytes_is_found(change: dict[str, Any]) -> None:
    with pytest.raises(CorruptObjectError):
        read(KEY, object_of(header_of(**change)))


WRONG: list[Any] = [None, True, -1, 1.5, "7", [], {}, 1 << 64, 10**400]


@pytest.mark.parametrize("name", ["index", "offset", "length", "records", "crc", "crc_total", "shipped"])
@pytest.mark.parametrize("value", WRONG, ids=range(len(WRONG)))
def test_a_number_that_is_none_is_found(name: str, value: Any) -> None:
    with pytest.raises(CorruptObjectError, match=r"header|length"):
        read(KEY, object_with({**FIELDS, name: value}))


@pytest.mark.parametrize("name", ["log", "format", "generation", "owner", "file", "previous"])
@pytest.mark.parametrize("value", [None, 7, True, [], {}])
def test_a_text_that_is_none_is_found(name: str, value: Any) -> None:
    with pytest.raises(CorruptObjectError, match="header"):
        read(KEY, object_with({**FIELDS, name: value}))


@pytest.mark.parametrize(
    "change",
    [
        {"generation": "../../../../../.."},
        {"generation": ""},
        {"index": MAX_INDEX},
        {"offset": MAX_OFFSET},
        {"version": 2},
        {"final": 1},
        {"length": 0},
        {"length": 1 << 40},
    ],
)
def test_a_header_that_no_writer_makes_is_found(change: dict[str, Any]) -> None:
    with pytest.raises(CorruptObjectError):
        read(KEY, object_with({**FIELDS, **change}))


@pytest.mark.parametrize(
    "text", [b"", b"[" * 9000, b"{}", b"7", b"null", b"\xff", b'{"version":1}', b"9" * 9000, b"NaN"]
)
def test_a_header_that_is_not_a_header_is_found(text: bytes) -> None:
    with pytest.raises(CorruptObjectError):
        read(KEY, skippable_frame(text) + compress_frame(DATA))
    with pytest.raises(CorruptObjectError):
        wal_segment.decode_header(KEY, skippable_frame(text))


def test_a_header_longer_than_its_limit_is_found() -> None:
    with pytest.raises(CorruptObjectError, match="too long"):
        read(KEY, object_with({**FIELDS, "file": "x" * MAX_HEADER_BYTES}))


@pytest.mark.slow
@given(st.binary(max_size=400))
def test_garbage_is_found(garbage: bytes) -> None:
    for body in (garbage, skippable_frame(garbage), object_of(header_of())[:200] + garbage):
        with pytest.raises(CorruptObjectError):
            read(KEY, body)
