"""The formats of other programs' files: lines and raw bytes, and which names can be replicated."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.errors import ConfigError, CorruptCommitError
from litelog.formats import MAX_COMMIT_BYTES, Expectation, FinishedTail, LogFormat, Tail
from litelog.formats.columns import Record
from litelog.formats.conformance import LogFormatConformance
from litelog.formats.lines import LinesFormat
from litelog.formats.raw import RawFormat
from tests.builders.child import runs_in_child
from tests.sampling import examples

LINES: LogFormat = LinesFormat()
RAW: LogFormat = RawFormat()

TEXTS = [("app-9.log", b"one\n\nthree\nfour\n"), ("app-10.log", b"\xff\x00\n5\n6\n\n")]


class TestLines(LogFormatConformance):
    has_checksums = False
    other_names = (".app-9.log", "app-9.log.index", "app", "app-11.txt")

    @pytest.fixture
    def log_format(self) -> LogFormat:
        return LinesFormat("app-*.log")

    @pytest.fixture
    def segments(self) -> list[tuple[str, bytes]]:
        return TEXTS

    def decode_slowly(self, name: str, data: bytes, first: int) -> list[Record]:
        return [Record(first + number, None, None, line) for number, line in enumerate(data.split(b"\n")[:-1])]


class TestRaw(TestLines):
    @pytest.fixture
    def log_format(self) -> LogFormat:
        return RawFormat("app-*.log")

    def decode_slowly(self, name: str, data: bytes, first: int) -> list[Record]:
        return [Record(first, None, None, data)]


texts = st.lists(st.binary(max_size=20).map(lambda text: text.replace(b"\n", b"")), max_size=20)


@pytest.mark.slow
@given(texts, st.binary(max_size=9).map(lambda text: text.replace(b"\n", b"")), st.none() | st.integers(0, 1 << 40))
@settings(max_examples=examples(100))
def test_each_finished_line_is_a_commit_with_its_number(lines: list[bytes], tail: bytes, first: int | None) -> None:
    data = memoryview(b"".join(line + b"\n" for line in lines) + tail)
    expect = Expectation(first)
    records = list(LINES.decode("x", data, 50, expect).records())
    assert [record.value for record in records] == lines
    start = first or 0
    assert [record.sequence for record in records] == list(range(start, start + len(lines)))
    scan = LINES.scan("x", data, 50, expect)
    assert (scan.start, scan.end, scan.commits) == (50, 50 + len(data) - len(tail), len(lines))
    assert scan.next == (start + len(lines) if lines else first)
    assert (scan.tail is Tail.NOTHING) == (not tail)
    commits = LINES.commits("x", data, 50, expect)
    assert [bytes(data[commit.start - 50 : commit.end - 50]) for commit in commits] == [line + b"\n" for line in lines]
    if commits:
        assert scan.last_commit == commits[-1].start
        assert (commits[0].first, commits[-1].next) == (scan.first, scan.next)


def test_zeros_after_the_last_line_are_preallocation() -> None:
    assert LINES.scan("x", memoryview(b"a\n" + bytes(90)), 0, Expectation()).tail is Tail.ZEROS
    assert LINES.scan("x", memoryview(b"a\nb"), 0, Expectation()).tail is Tail.INCOMPLETE


@pytest.mark.slow
@runs_in_child
def test_a_line_that_is_too_long_is_an_error_at_its_place() -> None:
    data = memoryview(b"a\n" + bytes(MAX_COMMIT_BYTES) + b"\nb\n")
    with pytest.raises(CorruptCommitError) as raised:
        LINES.scan("x", data, 10, Expectation())
    assert (raised.value.offset, raised.value.actual) == (12, MAX_COMMIT_BYTES + 1)
    assert LINES.scan("x", data[:2], 10, Expectation()).commits == 1


@given(st.binary(max_size=50), st.none() | st.integers(0, 1 << 40))
@settings(max_examples=examples(60))
def test_all_existing_bytes_are_one_raw_commit(data: bytes, first: int | None) -> None:
    scan = RAW.scan("x", memoryview(data), 7, Expectation(first))
    assert (scan.end, scan.tail, scan.commits) == (7 + len(data), Tail.NOTHING, 1 if data else 0)
    assert scan.next == ((first or 0) + len(data) if data else first)
    records = list(RAW.decode("x", memoryview(data), 7, Expectation(first)).records())
    assert [(record.sequence, record.value) for record in records] == ([(first or 0, data)] if data else [])


def test_a_large_buffer_is_several_raw_commits() -> None:
    commits = RAW.commits("x", memoryview(bytes(MAX_COMMIT_BYTES + 5)), 3, Expectation(100))
    assert [(commit.start, commit.end, commit.first) for commit in commits] == [
        (3, 3 + MAX_COMMIT_BYTES, 100),
        (3 + MAX_COMMIT_BYTES, 8 + MAX_COMMIT_BYTES, 100 + MAX_COMMIT_BYTES),
    ]


@pytest.mark.parametrize("kind", [LinesFormat, RawFormat])
def test_both_formats_ship_the_finished_tail_and_have_no_log_id(kind: type[LinesFormat | RawFormat]) -> None:
    form = kind(pattern="*")
    assert form.finished_tail is FinishedTail.SHIP
    assert not form.has_timestamps
    assert form.log_id("x", memoryview(b"litelog\n" + bytes(56))) is None


@pytest.mark.parametrize("kind", [LinesFormat, RawFormat])
def test_names_sort_as_their_numbers(kind: type[LinesFormat | RawFormat]) -> None:
    form = kind(pattern="app*")
    names = ["app-2026-11-9.log", "app-2026-11-21.log", "app.12", "app.6", "app.06", "app", "appx1", "appx"]
    names += [".app", "other", "app.index", "app.timeindex", "app.ofs", "app.tmp"]
    orders = {name: form.segment_order(name) for name in names}
    ours = sorted((order, name) for name, order in orders.items() if order is not None)
    assert [name for _, name in ours] == [
        "app",
        "app-2026-11-9.log",
        "app-2026-11-21.log",
        "app.06",
        "app.6",
        "app.12",
        "appx",
        "appx1",
    ]


@pytest.mark.slow
@given(st.lists(st.text(min_size=1), min_size=2, max_size=6))
@settings(max_examples=examples(100))
def test_any_names_can_be_sorted(names: list[str]) -> None:
    orders = [order for name in names if (order := LINES.segment_order(name)) is not None]
    orders.sort()
    assert len(set(orders)) == len({name for name in names if LINES.segment_order(name) is not None})


@pytest.mark.parametrize("kind", [LinesFormat, RawFormat])
@pytest.mark.parametrize(
    "rotated", ["app.log.1", "app.log.2.gz", "app.log.13.zst", "app.log-20261121", "app.log-20261121.gz"]
)
def test_rotation_by_renaming_is_refused(kind: type[LinesFormat | RawFormat], rotated: str) -> None:
    with pytest.raises(ConfigError, match=r"app\.log-\*"):
        kind(pattern="*").check_names(["app.log", rotated])
    with pytest.raises(ConfigError, match=r"app\.log"):
        kind(pattern="app.log").check_names([rotated, "app.log"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [LinesFormat, RawFormat])
def test_names_that_are_never_reused_are_taken(kind: type[LinesFormat | RawFormat]) -> None:
    form = kind(pattern="*")
    form.check_names(["app-2026-11-21.log", "app-2026-11-22.log"])
    form.check_names(["events.000122", "events.000123"])
    form.check_names([])
    kind(pattern="app.log-*").check_names(["app.log", "app.log-20261121", "app.log-20261122"])
