"""Sealed segments can be read at any place, and any damage to them is found and named."""

from __future__ import annotations

import json
import struct
from bisect import bisect_right
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litelog.codec.checksum import crc32c
from litelog.codec.frame_codecs import Compression, FrameCodec
from litelog.codec.lz4_frames import MAX_FRAME_BYTES, compress_frames, decompress_frames, skippable_frame
from litelog.codec.page_buffer import lies_in_pages
from litelog.errors import CorruptionError, CorruptObjectError, ExitCode, UnknownVersionError
from litelog.formats.litelog.commit_walk import FEW_BYTES
from litelog.native.library import without_library
from litelog.objects.frame_table import MAX_RUN_BYTES, FrameTable, SealedFrame, ShipTimes, frames_of
from litelog.objects.layout import sealed_key
from litelog.objects.position import Generation
from litelog.objects.sealed_decoding import check_run, decode_checked, decode_frame, decode_run, decode_runs
from litelog.objects.sealed_segment import (
    TAIL_BYTES,
    SealedFooter,
    decode_footer,
    encode_footer,
    footer_bytes,
    read_footer,
)
from tests.builders.json_objects import set_field
from tests.builders.log_builder import make_log
from tests.builders.seal_builder import GENERATION, SHIPPED, footer_of, sealing, unseal
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.builders.log_builder import LogBuilder

KEY = sealed_key(Generation(GENERATION), 3)
MAX_FOOTER_FRACTION = 1 / 400
"""The limit of a footer's size, as a fraction of the log segment that it describes."""


def small(folder: object, name: str = "litelog") -> LogBuilder:
    """A log segment whose sealed segment has a few hundred bytes, in three frames."""
    log = make_log(folder, name)
    log.roll(0)
    for size in (10, 30, 300, 5):
        log.append(1, size)
    return log


def large_footer(count: int, marks: int, frame_bytes: int = 1 << 20) -> SealedFooter:
    """The footer of a log segment with frames of a MiB, whose records and times are as in real logs."""
    frames = []
    start = first = 0
    for number in range(count):
        size, records = 420_000 + number * 7919 % 30_000, 5000 + number * 31 % 700
        stamp = SHIPPED + number * 1_234_567
        crc = number * 2_654_435_761 % (1 << 32)
        facts = (
            first,
            records,
            stamp,
            stamp + 1_200_001 + number % 977,
            crc,
            number * 2_246_822_519 % (1 << 32),
            number * 3_266_489_917 % (1 << 32),
        )
        frames.append(SealedFrame(start, size, number * frame_bytes, frame_bytes, *facts))
        start, first = start + size, first + records
    length = count * frame_bytes
    offsets = tuple(length * (number + 1) // marks for number in range(marks))
    times = tuple(SHIPPED + number * 1_000_321 + number * 7919 % 5000 for number in range(marks))
    return SealedFooter(
        log="0" * 32,
        format="litelog",
        generation=GENERATION,
        owner="owner",
        index=3,
        file="00000000000000000000.log",
        length=length,
        first=0,
        next=first,
        records=first,
        lowest=frames[0].lowest,
        highest=frames[-1].highest,
        crc=5,
        digest="0f" * 32,
        previous="",
        marks=ShipTimes(offsets, times),
        frames=FrameTable.of(frames),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "compression"),
    [
        *((name, Compression.LZ4) for name in ("litelog", "lines", "raw", "spacetimedb", "netlog", "influxdb")),
        *((name, Compression.ZSTD) for name in ("litelog", "lines", "raw")),
        ("lines", Compression.LZ4HC),
    ],
)
def test_any_flipped_bit_is_found_or_changes_nothing(tmp_path: Path, name: str, compression: Compression) -> None:
    log = small(tmp_path, name)
    made = sealing(log, None, 64, compression)
    body = bytearray(b"".join(made))
    assert len(made.footer.frames) > 2
    found: list[CorruptObjectError] = []
    harmless = []
    for bit in sampled(range(len(body) * 8), 4, f"unseal {name} {compression}"):
        body[bit // 8] ^= 1 << bit % 8
        try:
            assert unseal(KEY, bytes(body), log.format) == (made.footer, log.texts[log.name])
        except CorruptObjectError as error:
            found.append(error)
        else:
            harmless.append(bit // 8)
        body[bit // 8] ^= 1 << bit % 8
    assert {(error.key, error.exit_code) for error in found} == {(KEY, ExitCode.CORRUPTION)}
    # In a frame: where bytes repeat, LZ4 may copy them from another place that holds the same.
    assert max(harmless, default=0) < made.footer.data_bytes


@pytest.mark.slow
@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
def test_every_cut_is_found(tmp_path: Path, compression: Compression) -> None:
    log = small(tmp_path)
    body = b"".join(sealing(log, None, 64, compression))
    for size in range(len(body)):
        with pytest.raises(CorruptObjectError, match=KEY):
            unseal(KEY, body[:size], log.format)
        with pytest.raises(CorruptObjectError, match=KEY):  # its end is there: its beginning was lost
            unseal(KEY, body[len(body) - size :], log.format)


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("extra", [b"\0", b"x" * 20, skippable_frame(b"more")])
def test_bytes_before_or_after_the_object_are_found(tmp_path: Path, extra: bytes, compression: Compression) -> None:
    log = small(tmp_path)
    body = b"".join(sealing(log, None, 64, compression))
    for wrong in (body + extra, extra + body, body + body):
        with pytest.raises(CorruptObjectError, match=KEY):
            unseal(KEY, wrong, log.format)


def test_an_object_under_another_ones_name_is_found(tmp_path: Path) -> None:
    body = b"".join(sealing(small(tmp_path), None, 64))
    for other in (sealed_key(Generation(GENERATION), 4), sealed_key(Generation("0000000100000001"), 3)):
        with pytest.raises(CorruptObjectError, match="position in the footer"):
            footer_of(other, body)


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
def test_runs_are_decoded_into_one_buffer_and_any_flipped_bit_is_found_there(
    tmp_path: Path, compression: Compression
) -> None:
    log = small(tmp_path)
    made = sealing(log, None, 64, compression)
    body = bytearray(b"".join(made))
    frames = made.footer.frames
    runs = list(frames.runs())[1:]
    part = memoryview(body)[frames.starts[1] : made.footer.data_bytes]
    content = frames.content_range(frames_of(runs))
    wanted = log.texts[log.name][content.start : content.stop]
    assert len(runs) > 1
    found = decode_runs(KEY, made.footer, runs, part, log.format)
    assert found == wanted
    assert lies_in_pages(found, content.start)
    damaged = 0
    for bit in sampled(range(len(part) * 8), 8, f"runs {compression}"):
        part[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptObjectError, match=KEY):
            decode_runs(KEY, made.footer, runs, part, log.format)
        part[bit // 8] ^= 1 << bit % 8
        damaged += 1
    assert damaged > 10


def test_frames_that_changed_places_are_found(tmp_path: Path) -> None:
    log = make_log(tmp_path, "lines")
    log.roll(40, 9)
    made = sealing(log, None, 40)
    body = b"".join(made)
    frames = made.footer.frames
    runs = list(frames.runs())
    pieces = [body[frames.starts[run.start] : frames[run.stop - 1].stop] for run in runs]
    found = 0
    for number, piece in enumerate(pieces):
        for other, run in enumerate(runs):
            if other == number:
                continue
            with pytest.raises(CorruptionError, match=KEY):
                decode_run(KEY, made.footer, run, piece, log.format)
            found += 1
    assert found == len(runs) * (len(runs) - 1) > 20


def decode_all(footer: SealedFooter, body: bytes, log: LogBuilder, *, looks_inside: bool = False) -> None:
    """Decode every run that ``footer`` describes. ``looks_inside``: check the decoded commits once more."""
    frames = footer.frames
    for run in frames.runs():
        decoded = decode_run(KEY, footer, run, body[frames.starts[run.start] : frames[run.stop - 1].stop], log.format)
        if looks_inside:
            check_run(KEY, footer, run, decoded.data, log.format)


def test_commits_that_contradict_the_footer_are_found(tmp_path: Path) -> None:
    log = make_log(tmp_path, "litelog")
    log.roll(20, 30)
    made = sealing(log, None, 400)
    body = b"".join(made)
    frames = made.footer.frames
    decode_all(made.footer, body, log)
    last = frames.firsts[-1]
    for what, changes in (
        ("records of frame", {"records": (*frames.records[:-1], frames.records[-1] + 1)}),
        ("lowest timestamp of frame 0", {"lowests": (-1, *frames.lowests[1:])}),
        ("highest timestamp of frame", {"highests": (*frames.highests[:-1], 1 << 60)}),
        ("sequence after of frame", {"firsts": (*frames.firsts[:-1], last + 1)}),
    ):
        looks_inside = "timestamp" in what
        with pytest.raises(CorruptObjectError, match=what):
            decode_all(replace(made.footer, frames=replace(frames, **changes)), body, log, looks_inside=looks_inside)
    with pytest.raises(CorruptObjectError, match="sequence after of frame"):
        decode_all(replace(made.footer, next=21), body, log)


@pytest.mark.parametrize("decode", [decode_run, decode_checked])
@pytest.mark.parametrize("place", [0, -1])
def test_a_frame_of_another_checksum_is_named_with_the_compiled_part_and_without(
    tmp_path: Path, decode: Callable[..., object], place: int
) -> None:
    log = make_log(tmp_path, "litelog")
    log.roll(400, 30)
    made = sealing(log, None, 8192)
    body, frames = b"".join(made), made.footer.frames
    run = [*frames.runs()][place]
    assert frames.lengths[run.start] > FEW_BYTES
    wrong = [crc ^ (number == run.start) for number, crc in enumerate(frames.crcs)]
    other = replace(made.footer, frames=replace(frames, crcs=tuple(wrong)))
    part = body[frames.starts[run.start] : frames[run.stop - 1].stop]
    for within in (nullcontext(), without_library()):
        with within:
            decode(KEY, made.footer, run, part, log.format)
            with pytest.raises(CorruptObjectError, match=f"CRC-32C of frame {run.start} at"):
                decode(KEY, other, run, part, log.format)


def test_a_frame_that_is_cut_or_too_long_is_named(tmp_path: Path) -> None:
    log = small(tmp_path)
    made = sealing(log, None, 64)
    body = b"".join(made)
    frame = made.footer.frames[1]
    assert (
        decode_frame(KEY, made.footer, 1, body[frame.start : frame.stop])
        == log.texts[log.name][frame.offset : frame.end]
    )
    for wrong in (body[frame.start : frame.stop - 1], body[frame.start : frame.stop + 1], b""):
        with pytest.raises(CorruptObjectError, match=f"bytes of frame 1 at {frame.start} is {len(wrong)}"):
            decode_frame(KEY, made.footer, 1, wrong)


def outcome(footer: SealedFooter, number: int, part: bytes) -> bytes | str:
    """The content of a frame, or the error."""
    try:
        return bytes(decode_frame(KEY, footer, number, part))
    except CorruptObjectError as error:
        return str(error)


@pytest.mark.slow
def test_damage_has_the_same_error_with_the_compiled_part_and_without(tmp_path: Path) -> None:
    """Also damage that the CRC-32C in the footer does not show."""
    log = make_log(tmp_path, "litelog")
    log.roll(40, 9)
    made = sealing(log, None, 1000)
    body, frames = b"".join(made), made.footer.frames
    frame = frames[1]
    part = bytearray(body[frame.start : frame.stop])
    damages = [(at, 1 << bit) for at in range(len(part)) for bit in range(8)]
    found = set()
    for at, bit in [(0, 0), *damages]:
        part[at] ^= bit
        stored = replace(frames, stored=(frames.stored[0], crc32c(part), *frames.stored[2:]))
        for footer in (made.footer, replace(made.footer, frames=stored)):
            with without_library():
                expected = outcome(footer, 1, bytes(part))
            assert outcome(footer, 1, bytes(part)) == expected
            found.add(expected)
        part[at] ^= bit
    errors = {error for error in found if isinstance(error, str)}
    reasons = ("CRC-32C of the bytes", "CRC-32C of frame 1", "length of", "content checksum of", "header checksum")
    assert all(
        any(reason in error for error in errors) for reason in (*reasons, "magic", "block descriptor", "cut off")
    )
    assert found - errors == {log.texts[log.name][frame.offset : frame.end]}


WHOLE = st.integers(0, 1 << 62)


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 1 << 40)), min_size=1, max_size=30),
    st.booleans(),
    st.text(max_size=60),
    WHOLE,
)
def test_an_encoded_object_decodes_to_the_same_value(
    steps: list[tuple[int, int]], exact: bool, file: str, index: int
) -> None:
    offsets, times = [0], [0]
    for offset, time in steps:
        offsets.append(offsets[-1] + offset)
        times.append(times[-1] + time)
    length = offsets[-1]
    base = large_footer(1, 1, length)
    marks = ShipTimes(tuple(offsets[1:]), tuple(times[1:]), exact)
    footer = replace(base, marks=marks, file=file, index=index)
    body = bytes(footer.data_bytes) + encode_footer(footer)
    assert decode_footer(footer.key, body, len(body)) == footer
    tail = body[-footer_bytes(footer.key, body[-16:], len(body)) :]
    assert decode_footer(footer.key, tail, len(body)) == footer
    for moment in (-1, 0, *times[1:], times[-1] + 1):
        shipped = [offset for offset, time in zip(marks.offsets, marks.times, strict=True) if time <= moment]
        assert marks.offset_at(moment) == max(shipped, default=0)


class Ranges:
    """Serves ranges of an object, and counts them. It stores no frames: their bytes are zeros."""

    def __init__(self, footer: SealedFooter) -> None:
        self.tail = encode_footer(footer)
        self.size = footer.data_bytes + len(self.tail)
        self.asked: list[tuple[int, int]] = []

    def __call__(self, start: int, length: int) -> bytes:
        self.asked.append((start, length))
        behind = self.size - len(self.tail)
        zeros = bytes(max(0, min(start + length, behind) - start))
        return zeros + self.tail[max(0, start - behind) : max(0, start + length - behind)]


def test_a_footer_is_read_with_one_range_or_two() -> None:
    footer = large_footer(1024, 600)
    one = Ranges(footer)
    assert read_footer(KEY, one, one.size) == footer
    assert one.asked == [(one.size - TAIL_BYTES, TAIL_BYTES)]
    two = Ranges(footer)
    assert read_footer(KEY, two, two.size, guess=1000) == footer
    assert two.asked == [(two.size - 1000, 1000), (footer.data_bytes, len(two.tail) - 1000)]
    least = Ranges(footer)
    assert read_footer(KEY, least, least.size, guess=0) == footer
    assert len(least.asked) == 2


def test_a_short_answer_is_found() -> None:
    footer = large_footer(3, 3)
    whole = Ranges(footer)
    for lost in (1, 15, 200):
        with pytest.raises(CorruptObjectError, match="bytes at"):
            read_footer(KEY, lambda start, length, lost=lost: whole(start, length)[:-lost], whole.size)  # type: ignore[misc]


@pytest.mark.slow
def test_a_footer_of_many_frames_and_marks_is_small() -> None:
    footer = large_footer(10_000, 50_000)
    whole = Ranges(footer)
    assert len(whole.tail) < footer.length * MAX_FOOTER_FRACTION / 8
    assert read_footer(KEY, whole, whole.size) == footer
    assert len(whole.asked) == 2
    assert len(encode_footer(large_footer(1024, 1000))) < TAIL_BYTES  # a GiB, shipped every MiB: one read


def refooted(footer: SealedFooter, change: Callable[[dict[str, Any]], object], version: int = 1) -> bytes:
    """The footer with a changed document, and correct checksums."""
    whole = encode_footer(footer)
    fields = json.loads(decompress_frames(whole[8:-16], 1 << 30))
    change(fields)
    document = b"".join(compress_frames(json.dumps(fields).encode()))
    payload = document + struct.pack("<HHI", version, 0, len(document) + 24)
    head = skippable_frame(payload + bytes(8))[:8]
    return head + payload + crc32c(head + payload).to_bytes(4, "little") + b"seal"


def test_a_newer_version_is_refused_by_name() -> None:
    footer = large_footer(3, 3)
    tail = refooted(footer, lambda fields: fields.update(more=1), version=3)
    with pytest.raises(UnknownVersionError, match="version of its footer is 3, expected 2") as caught:
        decode_footer(KEY, tail, footer.data_bytes + len(tail))
    assert caught.value.key == KEY
    assert caught.value.exit_code is ExitCode.FAILURE
    known = refooted(footer, lambda _: None)
    assert decode_footer(KEY, known, footer.data_bytes + len(known)) == footer


@pytest.mark.parametrize("codec", ["lz4", "brotli", "", None, 1, ["zstd"]])
def test_a_codec_that_a_footer_cannot_name_is_refused(codec: object) -> None:
    footer = replace(large_footer(3, 3), codec=FrameCodec.ZSTD)
    known = refooted(footer, lambda _: None, version=2)
    assert decode_footer(KEY, known, footer.data_bytes + len(known)) == footer
    for wrong in (refooted(footer, set_field("codec", codec), 2), refooted(footer, lambda _: None, 1)):
        with pytest.raises(CorruptObjectError, match=r"codec is|fields that are not a footer's"):
            decode_footer(KEY, wrong, footer.data_bytes + len(wrong))


def test_a_footer_names_its_codec_in_version_2_and_lz4_stays_version_1() -> None:
    lz4 = large_footer(3, 3)
    for footer, version in ((lz4, 1), (replace(lz4, codec=FrameCodec.ZSTD), 2)):
        tail = encode_footer(footer)
        assert int.from_bytes(tail[-16:-14], "little") == version
        assert ("codec" in json.loads(decompress_frames(tail[8:-16], 1 << 20))) == (version == 2)
        assert decode_footer(KEY, tail, footer.data_bytes + len(tail)) == footer


@pytest.mark.parametrize("codec", [FrameCodec.LZ4, FrameCodec.ZSTD])
def test_frames_of_another_codec_than_the_footer_names_are_refused(tmp_path: Path, codec: FrameCodec) -> None:
    log = small(tmp_path)
    made = sealing(log, None, 64, Compression.ZSTD if codec is FrameCodec.LZ4 else Compression.LZ4)
    body = b"".join(made)
    with pytest.raises(CorruptObjectError, match=r"is not one zstd frame|magic is"):
        decode_all(replace(made.footer, codec=codec), body, log)


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields.pop("crc"),
        lambda fields: fields.update(more=1),
        *(set_field(name, value) for name in ("log", "file", "owner") for value in (None, 5, [])),
        *(set_field("generation", value) for value in ("", "../../../etc/pass", "000000010000000G")),
        *(set_field("index", value) for value in (-1, 1.0, True, None, 1 << 64, 4)),
        *(set_field("length", value) for value in (-1, 5, "5", 1 << 70)),
        *(set_field("crc", value) for value in (-1, 1 << 32, None)),
        *(set_field("digest", value) for value in ("", "0F" * 32, "0f" * 31)),
        *(set_field("previous", value) for value in ("x", None)),
        *(set_field(name, None) for name in ("first", "next", "lowest", "highest")),
        *(set_field(name, 1) for name in ("first", "next", "lowest", "highest", "records")),
        *(set_field("marks", value) for value in (None, [], {}, {"offsets": [], "times": [], "exact": True})),
        *(set_field("marks.offsets", value) for value in ([1, 1, 1], [1 << 20, 0, 2 << 20], [4 << 20, -1, -1], [None])),
        *(set_field("marks.times", value) for value in ([1], [1, -1, 1], [1.5, 1, 1], [1 << 70, 1, 1])),
        set_field("marks.exact", 1),
        set_field("frames", None),
        *(set_field("frames.sizes", value) for value in ([], [1, 1, 0], [1, 1, 5 << 20], [1, 1], [-1, 2, 3], "abc")),
        *(set_field("frames.lengths", value) for value in ([1, 1, 1], [3 << 20, 0, 0], [5 << 20, 1, 1], [True] * 3)),
        *(set_field("frames.firsts", value) for value in ([0, 1, -1], [5, 0, 0], [0, 0], [0, 1 << 50, 0])),
        *(set_field("frames.records", value) for value in ([-1, 1, 1], [1, 1, 1], [1, 1])),
        *(set_field("frames.crcs", value) for value in ([-1, 1, 1], [1, 1 << 32, 1], [1])),
        *(set_field("frames.checksums", value) for value in ([-1, 1, 1], [1, 1 << 32, 1], [1], None)),
        *(set_field("frames.lowests", value) for value in ([None] * 3, [1 << 60, 0, 0], [1, 1])),
        *(set_field("frames.highests", value) for value in ([None] * 3, [0, 0, 0])),
        *(set_field("frames.inner", value) for value in ([2], [-1], [0], [0, 0], [1, -1], None)),
    ],
)
def test_a_footer_that_contradicts_itself_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    footer = large_footer(3, 3)
    tail = refooted(footer, change)
    with pytest.raises(CorruptObjectError, match=KEY):
        decode_footer(KEY, tail, footer.data_bytes + len(tail))


def test_a_run_that_no_memory_should_hold_is_refused() -> None:
    for count, holds in ((MAX_RUN_BYTES // MAX_FRAME_BYTES, True), (MAX_RUN_BYTES // MAX_FRAME_BYTES + 1, False)):
        footer = large_footer(count, 1, MAX_FRAME_BYTES)
        said = footer.frames[0]
        frames = [footer.frames[number] for number in range(count)]
        inside = [frame._replace(first=9, records=0, lowest=None, highest=None) for frame in frames[1:]]
        table = FrameTable.of([said, *inside], range(count - 1))
        known = {"records": said.records, "next": said.records, "highest": said.highest}
        footer = replace(footer, frames=table, **known)
        tail = encode_footer(footer)
        if holds:
            assert decode_footer(KEY, tail, footer.data_bytes + len(tail)) == footer
            continue
        with pytest.raises(CorruptObjectError, match="a run of frames holds"):
            decode_footer(KEY, tail, footer.data_bytes + len(tail))


@pytest.mark.parametrize("document", [b"", b"[]", b"null", b"{}", b'{"log":', b"[" * 100_000, b"\xff"])
def test_a_document_that_is_not_a_footer_is_refused(document: bytes) -> None:
    packed = b"".join(compress_frames(document))
    payload = packed + struct.pack("<HHI", 1, 0, len(packed) + 24)
    head = skippable_frame(payload + bytes(8))[:8]
    tail = head + payload + crc32c(head + payload).to_bytes(4, "little") + b"seal"
    with pytest.raises(CorruptObjectError, match=KEY):
        decode_footer(KEY, tail, len(tail))


@st.composite
def tables(draw: st.DrawFn) -> FrameTable:
    """Frames as an encoder makes them: runs of one or several, gaps between sequences, and a tail without records."""
    frames: list[SealedFrame] = []
    inner: list[int] = []
    start = offset = 0
    sequence = draw(st.integers(0, 5))
    for _ in range(draw(st.integers(0, 12))):
        records, run, stamp = draw(st.integers(1, 4)), draw(st.sampled_from([1, 1, 1, 2, 4])), draw(st.integers(-9, 9))
        behind = sequence + records + draw(st.integers(0, 2))
        for number in range(run):
            size, length = draw(st.integers(1, 9)), draw(st.integers(1, 9))
            said = (sequence, records, stamp, stamp + 2) if number == 0 else (behind, 0, None, None)
            inner += [len(frames)] if number < run - 1 else []
            frames.append(SealedFrame(start, size, offset, length, *said, 0, 7, 9))
            start, offset = start + size, offset + length
        sequence = behind + draw(st.integers(0, 2))
    if draw(st.booleans()):
        frames.append(SealedFrame(start, 3, offset, 3, sequence, 0, None, None, 0, 5, 4))
    return FrameTable.of(frames, inner)


@pytest.mark.slow
@given(tables())
def test_a_table_is_written_and_read(table: FrameTable) -> None:
    assert FrameTable.from_json(json.loads(json.dumps(table.to_json()))) == table
    assert [number for run in table.runs() for number in run] == list(range(len(table)))
    for run in table.runs():
        assert all(table.run_of(number) == run for number in run)
        assert {number in table.inner for number in run[:-1]} <= {True}
        assert run[-1] not in table.inner


@pytest.mark.slow
@given(tables(), st.integers(1, 40), st.none() | st.integers(1, 40))
def test_groups_of_runs_are_as_large_as_both_limits_permit(
    table: FrameTable, most_bytes: int, most_stored: int | None
) -> None:
    def fits(runs: list[range]) -> bool:
        frames = frames_of(runs)
        small = most_stored is None or len(table.stored_range(frames)) <= most_stored
        return small and len(table.content_range(frames)) <= most_bytes

    groups = list(table.groups(table.runs(), most_bytes, most_stored))
    assert [run for group in groups for run in group] == list(table.runs())
    assert all(fits(group) or len(group) == 1 for group in groups)
    assert not any(fits([*group, following[0]]) for group, following in pairwise(groups))


@pytest.mark.slow
@given(tables(), st.integers(0, 12), st.integers(0, 12))
def test_consecutive_frames_have_a_place_in_the_object_and_in_the_log_segment(
    table: FrameTable, start: int, stop: int
) -> None:
    frames = range(len(table))[start:stop]
    some = [table[number] for number in frames]
    stored, content = table.stored_range(frames), table.content_range(frames)
    assert list(stored) == [at for frame in some for at in range(frame.start, frame.stop)]
    assert list(content) == [at for frame in some for at in range(frame.offset, frame.end)]
    body = memoryview(bytes(at % 251 for at in stored))
    for run in (table.run_of(number) for number in frames):
        if run.start >= frames.start and run.stop <= frames.stop:
            part = table.stored_part(body, frames, run)
            assert bytes(part) == bytes(at % 251 for at in table.stored_range(run))


@pytest.mark.slow
@given(tables(), st.integers(-3, 120), st.integers(-3, 120))
def test_frames_are_found_by_offset(table: FrameTable, start: int, stop: int) -> None:
    found = table.for_offsets(start, stop)
    frames = [table[number] for number in range(len(table))]
    wanted = [
        number for number, frame in enumerate(frames) if frame.offset < stop and frame.end > start and start < stop
    ]
    whole = [number for first in wanted for number in table.run_of(first)]
    assert list(found) == sorted(set(whole))
    for number, frame in enumerate(frames):
        assert table.at_offset(frame.offset) == table.at_offset(frame.end - 1) == number


@pytest.mark.slow
@given(tables(), st.integers(-3, 70))
def test_frames_are_found_by_sequence(table: FrameTable, start: int) -> None:
    before = [number for number in range(len(table)) if table.records[number] and table.firsts[number] <= start]
    assert table.at_sequence(start) == max(before, default=0)


@pytest.mark.slow
@given(tables(), st.integers(-12, 12), st.integers(0, 9))
def test_frames_are_found_by_timestamp(table: FrameTable, lowest: int, span: int) -> None:
    found = table.for_timestamps(lowest, lowest + span)
    wanted = []
    for run in table.runs():
        low, high = table.lowests[run.start], table.highests[run.start]
        if low is not None and high is not None and low <= lowest + span and high >= lowest:
            wanted.append(run)
    assert found == wanted


@pytest.mark.slow
def test_a_record_is_read_from_its_frame_alone(tmp_path: Path) -> None:
    log = make_log(tmp_path, "litelog")
    log.roll(200, 50)
    made = sealing(log, None, 1024)
    body = b"".join(made)
    frames = made.footer.frames
    for sequence in range(200):
        run = frames.run_of(frames.at_sequence(sequence))
        assert len(run) == 1
        start, stop = frames.starts[run.start], frames[run.stop - 1].stop
        found = decode_run(KEY, made.footer, run, body[start:stop], log.format)
        assert (found.scan.first or 0) <= sequence < (found.scan.next or 0)
        assert b"r%d." % sequence in bytes(found.data)
    assert bisect_right(frames.firsts, 199) == len(frames)
