"""A reader that follows returns a journal in order as its fragments appear, and waits for missing ones."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.errors import ConfigError, CorruptObjectError
from litelog.fragments import reader
from litelog.fragments.content import FragmentTooLongError, FragmentTooShortError
from litelog.fragments.following import GAP_SECONDS, JournalFollower
from litelog.fragments.reader import FragmentReader, JournalGapError, read_span
from replica_clients.memory import MemoryStore
from tests.builders.journal_fragments import fragment
from tests.builders.manual_clock import ManualClock
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Callable

    from _pytest.monkeypatch import MonkeyPatch

LINES = [b"%d\n" % number for number in range(40)]
ENDS = [0]
for line in LINES:
    ENDS.append(ENDS[-1] + len(line))
WHOLE = b"".join(LINES)


def put(store: MemoryStore, first: int, stop: int, extension: str = ".gz") -> None:
    """Persist the lines from ``first`` to ``stop``."""
    key, body = fragment(ENDS[first], WHOLE[ENDS[first] : ENDS[stop]], extension)
    store.put(key, [body], create_only=False)


def read_next(store: MemoryStore, follower: JournalFollower) -> bytes:
    """All lines that are there now and follow those before."""
    pieces = (piece for span in follower.look() for piece in read_span(store, span, lines=True))
    return b"".join(bytes(piece.data) for piece in pieces)


@given(st.lists(st.tuples(st.integers(0, 39), st.integers(1, 12)), min_size=1, max_size=12))
@settings(max_examples=examples(100))
def test_lines_come_once_and_in_order_however_fragments_appear(parts: list[tuple[int, int]]) -> None:
    store = MemoryStore("journal")
    put(store, 0, 1)
    follower = JournalFollower(store, ManualClock().monotonic)
    found, covered = read_next(store, follower), {0}
    for first, count in parts:
        stop = min(40, first + count)
        put(store, first, stop)
        covered |= set(range(first, stop))
        found += read_next(store, follower)
        whole = next(number for number in range(41) if number not in covered)
        assert found == WHOLE[: ENDS[whole]]


def test_missing_bytes_are_a_gap_after_a_minute() -> None:
    store, clock = MemoryStore("journal"), ManualClock()
    put(store, 0, 2)
    follower = JournalFollower(store, clock.monotonic)
    assert [(span.start, span.stop) for span in follower.look()] == [(0, ENDS[2])]
    put(store, 5, 6)
    assert follower.look() == []
    clock.advance(GAP_SECONDS - 1)
    assert follower.look() == []
    clock.advance(1)
    assert [(span.start, span.stop) for span in follower.look()] == [(ENDS[5], ENDS[6])]


def test_a_gap_that_was_there_at_first_is_reported_at_once() -> None:
    store = MemoryStore("journal")
    put(store, 0, 2)
    put(store, 5, 6)
    with FragmentReader(store, follow=True, clock=ManualClock()) as records:
        assert [record.value for record in (records.read() or pytest.fail("ended")).records()] == [b"0", b"1"]
        with pytest.raises(JournalGapError, match=f"the bytes {ENDS[2]} to {ENDS[5] - 1} of the journal"):
            records.read()
        assert [record.value for record in (records.read() or pytest.fail("ended")).records()] == [b"5"]


def test_a_folder_without_fragments_is_waited_for_and_close_ends_that(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "POLL_SECONDS", 0.01)
    store, read = MemoryStore("journal"), list[bytes]()
    with FragmentReader(store, follow=True) as records:
        thread = threading.Thread(target=lambda: read.extend(record.value or b"" for record in records))
        thread.start()
        put(store, 0, 40)
        put(store, 0, 10)
        while len(read) < 40:
            thread.join(0.01)
        records.close()
        thread.join()
    assert b"".join(value + b"\n" for value in read) == WHOLE


def test_it_ends_at_its_end_and_begins_at_its_start() -> None:
    store = MemoryStore("journal")
    put(store, 0, 40)
    with FragmentReader(store, start=ENDS[3] - 1, end=ENDS[5], follow=True) as records:
        assert [record.value for record in records] == [b"3", b"4"]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda body: body[:-1], FragmentTooShortError),
        (lambda body: body + b"x", FragmentTooLongError),
        (lambda body: body[:-1] + b"x", CorruptObjectError),
    ],
)
def test_a_later_fragment_passes_every_check(change: Callable[[bytes], bytes], error: type[Exception]) -> None:
    store = MemoryStore("journal")
    put(store, 0, 2, ".raw")
    with FragmentReader(store, follow=True) as records:
        assert records.read() is not None
        key, body = fragment(ENDS[2], WHOLE[ENDS[2] :], ".raw")
        store.put(key, [change(body)])
        with pytest.raises(error):
            records.read()


def test_fragments_of_another_journal_are_refused() -> None:
    store = MemoryStore("journal")
    put(store, 0, 2)
    with FragmentReader(store, follow=True) as records:
        assert records.read() is not None
        key, body = fragment(ENDS[2], WHOLE[ENDS[2] :], ".gz", "other/")
        store.put(key, [body], create_only=False)
        with pytest.raises(ConfigError, match="fragments of 2 journals"):
            records.read()
