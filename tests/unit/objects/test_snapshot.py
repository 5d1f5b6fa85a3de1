"""Snapshots come back as they were encoded, errors name what is damaged or contradictory, and they stay small."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litelog.codec.lz4_frames import MAX_EXPANSION, compress_frames, decompress_frames
from litelog.errors import CorruptObjectError, ExitCode, UnknownVersionError
from litelog.objects import snapshot as snapshots
from litelog.objects.layout import sealed_key, snapshot_key
from litelog.objects.position import Generation, Position
from litelog.objects.side_files import MAX_SIDE_FILE_BYTES, MAX_SIDE_FILES, SideFile
from litelog.objects.snapshot import Snapshot, drop_before, extend
from litelog.objects.snapshot_entries import SnapshotEntry, check_entry, make_entry
from tests.builders.json_objects import set_field
from tests.builders.log_builder import make_log
from tests.builders.seal_builder import footer_of, sealing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

G = Generation("0000000200000000")
EARLIER = Generation("0000000100000000")
START = 1_700_000_000_000_000
MAX_BYTES_AN_ENTRY = 95
"""The limit of an entry's compressed size in bytes: 10,000 entries fit in 950 KB. Half of it is the digest."""

EMPTY = Snapshot("0" * 32, "litelog", G, "owner", 7, 7, START, Position(EARLIER, 6, 99))


def entries(count: int, index: int = 7, seed: int = 1) -> list[SnapshotEntry]:
    """Log segments of 64 MiB, a minute each, as our format names them; the first tenth of an earlier generation."""
    draw = random.Random(seed)
    made = []
    sequence, stamp = 0, START
    for number in range(count):
        records, minute = draw.randrange(200_000, 400_000), draw.randrange(50_000_000, 70_000_000)
        made.append(
            SnapshotEntry(
                index=index + number,
                generation=EARLIER if number < count // 10 else G,
                sealed_index=index + number + (5 if number < count // 10 else 0),
                file=f"{sequence:020d}.log",
                size=draw.randrange(20 << 20, 30 << 20),
                length=(64 << 20) - draw.randrange(200_000),
                digest=draw.randbytes(32).hex(),
                crc=draw.getrandbits(32),
                first=sequence,
                next=sequence + records,
                records=records,
                lowest=stamp,
                highest=stamp + minute,
                shipped_first=stamp + draw.randrange(1_000_000),
                shipped_last=stamp + minute + draw.randrange(1_000_000),
                exact=number % 50 != 49,
            )
        )
        sequence, stamp = sequence + records, stamp + minute + draw.randrange(9_000_000)
    return made


def of(count: int) -> Snapshot:
    """A snapshot with this number of entries."""
    return extend(EMPTY, entries(count), created=START + 5, chain="ab" * 32)


@st.composite
def any_entries(draw: st.DrawFn) -> list[SnapshotEntry]:
    """Entries as any format may have them: without records, without timestamps, with sequences that leave some out."""
    made: list[SnapshotEntry] = []
    sequence: int | None = draw(st.none() | st.integers(0, 1 << 40))
    names = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=12)
    for number in range(draw(st.integers(0, 8))):
        records = draw(st.integers(0, 1 << 30))
        first = (sequence or 0) + draw(st.integers(0, 9)) if records else None
        if first is not None:
            sequence = first + records + draw(st.integers(0, 9))
        stamp = draw(st.none() | st.integers(-(1 << 50), 1 << 50))
        shipped = draw(st.integers(0, 1 << 55))
        size = draw(st.integers(24, 1 << 50))
        made.append(
            SnapshotEntry(
                index=7 + number,
                generation=draw(st.sampled_from([G, EARLIER])),
                sealed_index=draw(st.integers(0, 1 << 60)),
                file=draw(names | st.just(f"{first or 0:020d}.log")),
                size=size,
                length=draw(st.integers(0, size * MAX_EXPANSION)),
                digest=draw(st.binary(min_size=32, max_size=32)).hex(),
                crc=draw(st.integers(0, (1 << 32) - 1)),
                first=first,
                next=sequence,
                records=records,
                lowest=stamp,
                highest=None if stamp is None else stamp + draw(st.integers(0, 1 << 40)),
                shipped_first=shipped,
                shipped_last=shipped + draw(st.integers(0, 1 << 40)),
                exact=draw(st.booleans()),
            )
        )
    return made


@pytest.mark.slow
@given(
    any_entries(),
    st.none() | st.just("0f" * 32),
    st.none() | st.just(Position(EARLIER, 1, 2)),
    st.dictionaries(st.sampled_from(["a", "Ω b", ".c"]), st.binary(max_size=99)),
)
def test_an_encoded_object_decodes_to_the_same_value(
    sealed: list[SnapshotEntry], chain: str | None, end: Position | None, files: dict[str, bytes]
) -> None:
    side_files = tuple(SideFile(name, body) for name, body in files.items())
    before = replace(EMPTY, predecessor_end=end, side_files=(SideFile("old", b"old"),))
    snapshot = extend(before, sealed, created=START, chain=chain, side_files=side_files)
    assert snapshots.decode(snapshot.key, snapshots.encode(snapshot)) == snapshot
    assert [snapshot.entry(entry.index) for entry in sealed] == sealed
    assert snapshot.entry(6) is snapshot.entry(snapshot.next) is None


def test_a_snapshot_without_log_segments_is_encoded_as_before() -> None:
    text = (
        f'{{"version":1,"log":"{"0" * 32}","format":"litelog","generation":"{G}","owner":"owner","first":7,"next":7,'
        f'"created":{START},"predecessor_end":"{EMPTY.predecessor_end}","segments":[]}}'
    )
    body = snapshots.encode(EMPTY)
    assert decompress_frames(body, 1 << 20) == text.encode()
    assert body == b"".join(compress_frames(text.encode()))
    assert snapshots.decode(snapshot_key(G, 7), body) == EMPTY


@pytest.mark.slow
def test_ten_thousand_log_segments_take_some_hundred_kilobytes() -> None:
    whole = of(10_000)
    body = snapshots.encode(whole)
    assert len(body) < 10_000 * MAX_BYTES_AN_ENTRY
    assert snapshots.decode(whole.key, body) == whole


def test_an_entry_agrees_with_the_footer_of_its_sealed_segment(tmp_path: Path) -> None:
    log = make_log(tmp_path, "litelog")
    log.roll(5)
    body = b"".join(sealing(log))
    footer = footer_of(sealed_key(EARLIER, 3), body)
    entry = make_entry(footer, len(body), index=7)
    assert (entry.index, entry.key, entry.size) == (7, footer.key, len(body))
    assert (entry.first, entry.next, entry.records, entry.digest) == (0, 5, 5, footer.digest)
    check_entry(entry, footer)
    snapshot = extend(EMPTY, [entry], created=START, chain="0f" * 32)
    assert snapshots.decode(snapshot.key, snapshots.encode(snapshot)).segments == (entry,)
    for changes in ({"digest": "0f" * 32}, {"length": 1}, {"file": "x"}, {"next": 6}, {"shipped_last": 1}, {"crc": 1}):
        with pytest.raises(CorruptObjectError, match=f"{next(iter(changes))}, which a snapshot names") as caught:
            check_entry(replace(entry, **changes), footer)
        assert caught.value.key == footer.key


def test_a_snapshot_continues_from_the_one_before() -> None:
    sealed = entries(9)
    step = EMPTY
    for entry in sealed:
        step = extend(step, [entry], created=START + entry.index, chain="ab" * 32, owner="other")
    assert step.segments == tuple(sealed)
    assert (step.first, step.next, step.created, step.owner) == (7, 16, START + 15, "other")
    assert step == extend(EMPTY, sealed, created=START + 15, chain="ab" * 32, owner="other")
    assert extend(step, [], created=START, chain="ab" * 32).created == step.created  # a clock that went back


@pytest.mark.parametrize(
    "wrong",
    [
        lambda sealed: sealed[1:],
        lambda sealed: [sealed[0], sealed[2]],
        lambda sealed: [sealed[0], sealed[0]],
        lambda sealed: [sealed[1], sealed[0]],
        lambda sealed: [sealed[0], replace(sealed[1], first=5, next=sealed[1].next)],
    ],
)
def test_entries_with_a_hole_or_out_of_order_are_refused(
    wrong: Callable[[list[SnapshotEntry]], list[SnapshotEntry]],
) -> None:
    with pytest.raises(ValueError, match=r"log segments that are not those|its first sequence is"):
        extend(EMPTY, wrong(entries(3)), created=START, chain=None)


def test_segments_that_the_source_dropped_are_dropped() -> None:
    whole = of(9)
    for index in (0, 7, 8, 12, 16):
        kept = drop_before(whole, index)
        assert kept.segments == tuple(entry for entry in whole.segments if entry.index >= index)
        assert (kept.first, kept.next, kept.chain) == (max(7, index), 16, whole.chain)
        assert snapshots.decode(kept.key, snapshots.encode(kept)) == kept
    with pytest.raises(ValueError, match="ends at index 16, before 17"):
        drop_before(whole, 17)


@pytest.mark.slow
def test_any_flipped_bit_is_found_or_changes_nothing() -> None:
    whole = of(2)
    body = bytearray(snapshots.encode(whole))
    found: list[CorruptObjectError] = []
    for bit in range(len(body) * 8):
        body[bit // 8] ^= 1 << bit % 8
        try:
            assert snapshots.decode(whole.key, body) == whole
        except CorruptObjectError as error:
            found.append(error)
        body[bit // 8] ^= 1 << bit % 8
    assert {(error.key, error.exit_code) for error in found} == {(whole.key, ExitCode.CORRUPTION)}
    assert len(found) > 0.9 * len(body) * 8


def test_every_cut_is_found() -> None:
    whole = of(2)
    body = snapshots.encode(whole)
    for size in range(len(body)):
        with pytest.raises(CorruptObjectError, match=whole.key):
            snapshots.decode(whole.key, body[:size])


def test_one_under_another_ones_name_is_found() -> None:
    for key in (snapshot_key(G, 8), snapshot_key(EARLIER, 7)):
        with pytest.raises(CorruptObjectError, match="position in the snapshot"):
            snapshots.decode(key, snapshots.encode(EMPTY))


def changed(snapshot: Snapshot, change: Callable[[dict[str, Any]], object]) -> bytes:
    """The snapshot with a changed document, and correct checksums."""
    fields = json.loads(decompress_frames(snapshots.encode(snapshot), 1 << 30))
    change(fields)
    return b"".join(compress_frames(json.dumps(fields).encode()))


@pytest.mark.parametrize("version", [2, 0, "1", None, True, 1.0])
def test_an_unknown_version_is_refused_by_name(version: object) -> None:
    body = changed(of(3), lambda fields: fields.update(version=version, more=1))
    with pytest.raises(UnknownVersionError, match=f"version of its snapshot is {version!r}, expected 1") as caught:
        snapshots.decode(of(3).key, body)
    assert caught.value.exit_code is ExitCode.FAILURE


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields.pop("log"),
        lambda fields: fields.pop("segments"),
        lambda fields: fields.update(more=1),
        lambda fields: fields["segments"].pop("crc"),
        lambda fields: fields["segments"].update(more=[]),
        *(set_field(name, value) for name in ("log", "format", "owner") for value in (5, None, ["x"])),
        *(set_field(name, value) for name in ("first", "next", "created") for value in (-1, True, 1.0, None, "7")),
        set_field("first", 8),
        set_field("next", 1 << 40),
        *(set_field("generation", value) for value in ("", "../x", 5, None)),
        *(set_field("chain", value) for value in ("", "ab", 5)),
        *(set_field("predecessor_end", value) for value in ("", "0/0/0", 5)),
        *(set_field("segments", value) for value in (None, [], {}, [1], "x")),
        *(set_field("segments.size", value) for value in ([], [1, 1, 1], [30, 30], [30, 30, -30], [30, 30, "30"], 5)),
        *(set_field("segments.length", value) for value in ([-1, 1, 1], [1, 1, 1 << 63], [1, 1, 1 << 40])),
        *(set_field("segments.records", value) for value in ([0, 1, 1], [-1, 1, 1], [None, 1, 1])),
        *(set_field("segments.first", value) for value in ([None, 1, 1], [5, -5, 0], [9, 0, 0], [True, 1, 1])),
        *(set_field("segments.next", value) for value in ([-1, 0, 0], [None, 0, 0], [0, 1 << 60, 0], [0, 0])),
        *(set_field("segments.highest", value) for value in ([-1, 0, 0], [None, 0, 0], [0.5, 0, 0])),
        *(set_field("segments.lowest", value) for value in ([None, 1, 1], ["a", 1, 1])),
        *(set_field("segments.shipped_first", value) for value in ([-1, 1, 1], [None, 1, 1])),
        *(set_field("segments.shipped_last", value) for value in ([-1, 1, 1], [None, 1, 1])),
        *(set_field("segments.sealed_index", value) for value in ([-1, 1, 1], [1 << 64, 0, 0])),
        *(
            set_field("segments.generation", value)
            for value in ([], [[G, 4]], [[G, 2]], [["x", 3]], [[G]], [[G, 3, 3]])
        ),
        *(set_field("segments.generation", value) for value in ([[G, 0], [G, 3]], [[G, True], [G, 2]], [5], None)),
        *(set_field("segments.file", value) for value in (["a", "b"], ["a", "b", ""], ["a", "b", 5], None)),
        *(set_field("segments.digest", value) for value in ("", "AAAA", "*" * 128, None, "A" * 4096)),
        *(set_field("segments.crc", value) for value in ("", "AAAA", None, "*" * 16)),
        *(set_field("segments.coarse", value) for value in ([3], [-1], None, [0.0])),
        *(set_field("side_files", value) for value in ([], {}, "x", 5, [["a", ""]], {"a": 5}, {"a": "*"}, {"a": "AA"})),
        *(set_field("side_files", {name: ""}) for name in ("", "a/b", "\ud800")),
        set_field("side_files", {str(number): "" for number in range(MAX_SIDE_FILES + 1)}),
        set_field("side_files", {"a": "A" * (4 * (MAX_SIDE_FILE_BYTES // 3 + 1))}),
    ],
)
def test_one_that_contradicts_itself_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    snapshot = of(3)
    with pytest.raises(CorruptObjectError, match=snapshot.key):
        snapshots.decode(snapshot.key, changed(snapshot, change))


@pytest.mark.parametrize("document", [b"", b"[]", b"null", b"5", b"{}", b'{"version":1', b"[" * 100_000, b"\xff"])
def test_a_document_that_is_not_a_snapshot_is_refused(document: bytes) -> None:
    with pytest.raises(CorruptObjectError, match=EMPTY.key):
        snapshots.decode(EMPTY.key, b"".join(compress_frames(document)))


def test_an_invalid_snapshot_is_not_written() -> None:
    whole = of(3)
    for wrong in (
        replace(whole, first=6),
        replace(whole, next=11),
        replace(whole, chain="x"),
        replace(whole, segments=(replace(whole.segments[0], file="a/b"), *whole.segments[1:])),
    ):
        with pytest.raises(ValueError, match=r".+"):
            snapshots.encode(wrong)


@pytest.mark.slow
def test_a_million_log_segments_are_within_the_limits() -> None:
    """This does not depend on how columns are written: here each entry differs from the others in every column."""
    count = 1000
    sparse = [
        replace(entry, size=entry.size << (33 * (number % 2)), lowest=None, highest=None, exact=False, generation=G)
        for number, entry in enumerate(entries(count))
    ]
    far = [
        replace(entry, shipped_first=number << 40, shipped_last=(number << 40) + (1 << 33), length=entry.size << 2)
        for number, entry in enumerate(sparse)
    ]
    whole = extend(EMPTY, far, created=START, chain=None)
    text = decompress_frames(snapshots.encode(whole), 1 << 30)
    limits, times = snapshots.LIMITS, snapshots.MAX_ENTRIES // count
    assert text.count(b",") * times <= limits.values
    assert text.count(b'"') // 2 * times <= limits.texts * 1.1  # the names of the fields are counted a thousand times
    assert len(text) * times <= limits.size
    assert text.count(b"[") + text.count(b"{") <= 20
    assert snapshots.decode(whole.key, snapshots.encode(whole)) == whole


@pytest.mark.slow
def test_more_log_segments_than_may_be_read_are_not_written() -> None:
    entry = entries(1)[0]
    many = replace(EMPTY, next=EMPTY.first + snapshots.MAX_ENTRIES + 1, segments=(entry,) * (snapshots.MAX_ENTRIES + 1))
    with pytest.raises(ValueError, match="log segments, more than"):
        snapshots.encode(many)
