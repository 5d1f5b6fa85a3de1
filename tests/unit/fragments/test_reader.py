"""A journal is read from its fragments: in order, over overlaps and gaps, and only if each is what its name says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litelog.errors import CorruptObjectError
from litelog.formats import MAX_COMMIT_BYTES
from litelog.fragments import content, reader
from litelog.fragments.content import FragmentTooLongError, FragmentTooShortError
from litelog.fragments.reader import FragmentReader, JournalGapError
from replica_clients.file import FileStore
from replica_clients.memory import MemoryStore
from tests.builders.child import runs_in_child
from tests.builders.journal_fragments import EXTENSIONS, compress, fragment
from tests.builders.recorded_logs import unpack

if TYPE_CHECKING:
    from pathlib import Path

TEXT = b"".join(b'{"n": %d}\n' % number for number in range(3000))


def journal(*fragments: tuple[str, bytes]) -> MemoryStore:
    store = MemoryStore("journal")
    for key, body in fragments:
        store.put(key, [body])
    return store


def read(store: MemoryStore, **options: int | bool | None) -> list[tuple[int, bytes]]:
    with FragmentReader(store, **options) as records:  # type: ignore[arg-type]
        return [(record.sequence, record.value or b"") for record in records]


def lines_from(at: int, text: bytes = TEXT) -> list[tuple[int, bytes]]:
    found = []
    for line in text.split(b"\n")[:-1]:
        found.append((at, line))
        at += len(line) + 1
    return found


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_a_journal_is_read_line_by_line(extension: str) -> None:
    cut = TEXT.index(b'{"n": 1000}')
    store = journal(fragment(100, TEXT[:cut], extension), fragment(100 + cut, TEXT[cut:], extension, "date=1/"))
    assert read(store) == lines_from(100)


def test_content_that_the_store_decompressed_is_read() -> None:
    key, _ = fragment(0, TEXT, "")
    assert read(journal((key, TEXT))) == lines_from(0)


def test_fragments_that_the_broker_wrote_are_read(tmp_path: Path) -> None:
    folder = unpack("gazette", "journal", tmp_path)
    with FragmentReader(FileStore(str(folder))) as records:
        values = [record.value for record in records]
    text = b"".join(b'{"n": %d, "text": "%s"}\n' % (number, b"event " * (number % 7)) for number in range(150))
    assert values == text.split(b"\n")[:-1]


def test_overlapping_fragments_give_each_line_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "PIECE_BYTES", 1000)
    ends = [TEXT.index(b'{"n": %d}' % number) for number in (500, 900, 1500, 2200)]
    parts = [(0, ends[1]), (0, ends[0]), (ends[0], ends[2]), (ends[1], ends[3]), (ends[2], len(TEXT))]
    store = journal(*(fragment(begin, TEXT[begin:end], EXTENSIONS[n]) for n, (begin, end) in enumerate(parts)))
    assert read(store) == lines_from(0)
    assert b"".join(value for _, value in read(store, lines=False)) == TEXT


@pytest.mark.parametrize(("start", "end"), [(0, None), (11, 40), (15, 41), (5000, 5001), (len(TEXT), None), (None, 25)])
def test_a_reader_has_bounds(start: int | None, end: int | None) -> None:
    cut = TEXT.index(b'{"n": 1000}')
    store = journal(fragment(0, TEXT[:cut]), fragment(cut, TEXT[cut:]))
    stop = len(TEXT) if end is None else end
    assert read(store, start=start, end=end) == [line for line in lines_from(0) if (start or 0) <= line[0] < stop]
    raw = read(store, start=start, end=end, lines=False)
    assert b"".join(value for _, value in raw) == TEXT[start or 0 : stop]
    assert not raw or raw[0][0] == (start or 0)


def test_a_gap_is_an_error_once_and_reading_continues_after_it() -> None:
    store = journal(fragment(10, b"a\nb\n"), fragment(50, b"c\n"), fragment(60, b"d\n"))
    with FragmentReader(store, start=0) as records:
        for requested, following, values in ((0, 10, [b"a", b"b"]), (14, 50, [b"c"]), (52, 60, [b"d"])):
            with pytest.raises(JournalGapError, match=f"the bytes {requested} to {following - 1}") as caught:
                records.read()
            assert (caught.value.requested, caught.value.next) == (requested, following)
            columns = records.read()
            assert columns is not None
            assert [record.value for record in columns.records()] == values
        assert records.read() is None


def test_a_last_line_without_its_end_is_a_record() -> None:
    assert read(journal(fragment(0, b"one\ntwo"), fragment(7, b"\n\nthree\n"))) == [
        (0, b"one"),
        (4, b"two"),
        (7, b""),
        (8, b""),
        (9, b"three"),
    ]


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_a_fragment_shorter_or_longer_than_its_name_says_is_an_error(extension: str) -> None:
    key, _ = fragment(0, TEXT, extension)
    with pytest.raises(FragmentTooShortError, match=f"too short: its number of bytes is {len(TEXT) - 9}, expected"):
        read(journal((key, compress(TEXT[:-9], extension))))
    with pytest.raises(FragmentTooLongError, match=f"too long: its number of bytes is more than {len(TEXT)}"):
        read(journal((key, compress(TEXT + b"9", extension))))


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_other_content_than_the_name_says_is_an_error(extension: str) -> None:
    key, _ = fragment(0, TEXT, extension)
    store = journal((key, compress(TEXT.replace(b"2999", b"2998"), extension)))
    for _ in range(2):
        with pytest.raises(CorruptObjectError, match=f"{key}: SHA-1 of the content is"):
            read(store)


@pytest.mark.parametrize("extension", [".gz", ".sz", ".zst"])
def test_a_flipped_bit_is_an_error_before_the_first_record(extension: str) -> None:
    key, body = fragment(0, TEXT[:300], extension)
    for bit in range(8 * len(body)):
        flipped = bytearray(body)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        store = journal((key, bytes(flipped)))
        with FragmentReader(store) as records:
            try:
                columns = records.read()
            except CorruptObjectError:
                continue
            assert columns is not None
            assert [(record.sequence, record.value) for record in columns.records()] == lines_from(0, TEXT[:300])


def test_a_reader_that_met_damage_reads_again() -> None:
    key, body = fragment(0, TEXT)
    store = journal((key, body[:-20]))
    with FragmentReader(store) as records:
        for _ in range(2):
            with pytest.raises(CorruptObjectError):
                records.read()
        store.delete([key])
        store.put(key, [body])
        assert sum(len(columns) for columns in records.batches()) == 3000


def test_content_that_expands_without_end_is_cut_off() -> None:
    key, _ = fragment(0, b"x", ".zst")
    with pytest.raises(FragmentTooLongError):
        read(journal((key, compress(bytes(200 << 20), ".zst"))))


def test_large_content_is_kept_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "MEMORY_BYTES", 100)
    assert read(journal(fragment(0, TEXT))) == lines_from(0)


@pytest.mark.slow
@runs_in_child
def test_a_line_over_the_limit_is_an_error() -> None:
    store = journal(fragment(0, b"first\n" + bytes(MAX_COMMIT_BYTES + (5 << 20)), ".gz"))
    with FragmentReader(store) as records:
        columns = records.read()
        assert columns is not None
        for _ in range(2):
            with pytest.raises(CorruptObjectError, match="number of bytes of the line at 6"):
                records.read()


def test_closing_ends_reading() -> None:
    records = FragmentReader(journal(fragment(0, TEXT)))
    records.close()
    assert records.read() is None
