"""The behaviour required of every log format, as tests for third parties to inherit.

With pytest installed (``pip install 'litelog[test]'``), a format's test module is:

    import pytest
    from litelog.formats.conformance import LogFormatConformance

    class TestJournal(LogFormatConformance):
        @pytest.fixture
        def log_format(self): return Journal()

        @pytest.fixture
        def segments(self): return [("1.journal", b"..."), ("7.journal", b"...")]

        def decode_slowly(self, name, data, first): ...  # a loop over the format's description

This module imports neither pytest nor any other package that litelog itself does not need. For messages that show
values, call ``pytest.register_assert_rewrite("litelog.formats.conformance")`` before the import.
"""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

from litelog.codec.checksum import crc32c
from litelog.errors import ConfigError, CorruptCommitError, CorruptionError
from litelog.formats.capabilities import (
    can_take_columns,
    check_head,
    extra_columns,
    find_commit,
    first_sequence,
    ignores,
    is_divisible,
    scan_columns,
    scan_front,
    scan_whole,
    side_files,
    take_columns,
)
from litelog.formats.columns import Record, load_pyarrow
from litelog.formats.log_format import HEAD_BYTES, Commit, Expectation, LogFormat, Scan, Tail, is_file_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Segments = list[tuple[str, bytes]]

HUGE = (b"\xff" * 4, b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f")
"""Lengths that are written over each place of a log: the largest ones, signed and not, in both byte orders."""

PEAK_BYTES = 1 << 20
"""The memory that a scan of damaged lengths may take in addition to the bytes of a small log."""


class LogFormatConformance:
    """Tests of the contract of ``LogFormat``.

    The fixture ``log_format`` returns the format. The fixture ``segments`` returns the log segments of a small log,
    oldest first, as pairs of a name and bytes: at least two with at least three commits each, as their writer left
    them. Some hundred bytes each are enough, as each bit of them is damaged in turn.
    """

    has_checksums = True
    """Whether each commit has a checksum, so that damage never gives other records."""
    other_names: Sequence[str] = ()
    """Names of files in the folder that are not log segments, and that look like them."""

    def decode_slowly(self, name: str, data: bytes, first: int) -> list[Record]:
        """Return the records of a whole log segment, in a way that shares nothing with the format.

        Args:
            name: The log segment's file name.
            data: All of its bytes.
            first: The sequence of its first record, for a format in which nothing states it.
        """
        raise NotImplementedError

    def is_unchecked(self, name: str, data: bytes, place: int) -> bool:  # noqa: ARG002  # for formats that override it
        """Return whether no checksum covers the byte at ``place``, and no record depends on it. Default: False."""
        return False

    def may_renumber(self, name: str, data: bytes, place: int) -> bool:  # noqa: ARG002  # for formats that override it
        """Return whether damage of the byte at ``place`` may give records other sequences and not be seen: no checksum
        covers it, and the commits around it leave room. Default: False."""
        return False

    def choose(self, places: Sequence[int]) -> Sequence[int]:
        """Choose which places of a long walk a run takes. Default: all."""
        return places

    def test_names_sort_in_the_order_of_the_log(self, log_format: LogFormat, segments: Segments) -> None:
        names = [name for name, _ in segments]
        shuffled = names[:]
        Random(5).shuffle(shuffled)  # noqa: S311  # the same at each run
        orders = {name: log_format.segment_order(name) for name in shuffled}
        assert None not in orders.values()
        assert sorted(shuffled, key=lambda name: orders[name] or ()) == names
        assert len(set(orders.values())) == len(names)
        log_format.check_names(shuffled)

    def test_other_names_are_no_log_segments(self, log_format: LogFormat, segments: Segments) -> None:
        names = [name for name, _ in segments]
        others = [*self.other_names, *(f"{name}.tmp" for name in names), *(f".{name}" for name in names)]
        assert [name for name in others if log_format.segment_order(name) is not None] == []
        log_format.check_names([*names, *others])
        chosen = side_files(log_format, [*names, *others])
        assert [name for name in chosen if name in names or not is_file_name(name)] == []
        assert [name for name in names if ignores(log_format, name)] == []

    def test_a_name_states_the_first_sequence_or_none(self, log_format: LogFormat, segments: Segments) -> None:
        follows = 0
        for name, _, expect, scan in _walk(log_format, segments):
            stated = first_sequence(log_format, name)
            if stated is not None and scan.first is not None:
                assert follows <= stated <= scan.first
                assert expect.sequence is None or stated >= expect.sequence
            follows = scan.next or follows

    def test_records_are_those_of_a_slow_decoder(self, log_format: LogFormat, segments: Segments) -> None:
        count = 0
        for name, data, expect, _ in _walk(log_format, segments):
            records = _decode(log_format, name, data, expect=expect)
            assert records == self.decode_slowly(name, data, expect.sequence or 0)
            sequences = [record.sequence for record in records]
            assert sequences == sorted(set(sequences))
            assert all((record.timestamp is not None) == log_format.has_timestamps for record in records)
            count += len(records)
        assert count > 0

    def test_arrow_batches_hold_the_same_records(self, log_format: LogFormat, segments: Segments) -> None:
        try:
            load_pyarrow()
        except ConfigError:
            return
        for name, data, expect, _ in _walk(log_format, segments):
            columns = log_format.decode(name, memoryview(data), 0, expect)
            assert list(columns.extra or ()) == list(extra_columns(log_format))
            expected = [
                (record.sequence, record.key, None if record.is_null else record.value) for record in columns.records()
            ]
            for start in {0, len(columns) // 2}:
                part = columns.slice(start, len(columns)) if start else columns
                for batches in ([part.to_arrow()], list(part.to_arrow_batches())):
                    rows = [row for batch in batches for row in batch.to_pylist()]
                    assert [(row["sequence"], row["key"], row["value"]) for row in rows] == expected[start:]

    def test_scan_commits_and_decode_agree(self, log_format: LogFormat, segments: Segments) -> None:
        for name, data, expect, scan in _walk(log_format, segments):
            view = memoryview(data)
            commits = log_format.commits(name, view, 0, expect)
            columns = log_format.decode(name, view, 0, expect)
            assert (scan.start, scan.end, scan.commits, scan.tail) == (0, len(data), len(commits), Tail.NOTHING)
            _check_run(scan, commits)
            assert len(columns) <= scan.records
            assert (
                scan.first is None or [n for n in columns.sequences.tolist() if not scan.first <= n < scan.next] == []
            )
            again, same = scan_columns(log_format, name, view, 0, expect)
            assert (again, list(same.records())) == (scan, list(columns.records()))
            assert scan_whole(log_format, name, view, 0, expect, crc32c(view)) in (None, scan)
            assert scan_whole(log_format, name, view, 0, expect, crc32c(view) ^ 1) is None
            known = log_format.scan(name, view, 0, expect, known=True)
            facts = (known.end, known.commits, known.records, known.first, known.next, known.epoch, known.tail)
            assert facts == (scan.end, scan.commits, scan.records, scan.first, scan.next, scan.epoch, scan.tail)

    def test_records_lie_in_their_commits(self, log_format: LogFormat, segments: Segments) -> None:
        for name, data, expect, _ in _walk(log_format, segments):
            columns = log_format.decode(name, memoryview(data), 0, expect)
            commits = log_format.commits(name, memoryview(data), 0, expect)
            for sequence, place in zip(columns.sequences.tolist(), columns.places.tolist(), strict=True):
                (commit,) = (each for each in commits if each.first <= sequence < each.next)
                assert commit.start <= place <= commit.end

    def test_a_run_continues_at_any_commit(self, log_format: LogFormat, segments: Segments) -> None:
        for name, data, expect, _ in _walk(log_format, segments):
            records = _decode(log_format, name, data, expect=expect)
            for commit in log_format.commits(name, memoryview(data), 0, expect):
                before = log_format.scan(name, memoryview(data)[: commit.end], 0, expect)
                assert before.end == commit.end
                head = _decode(log_format, name, data[: commit.end], expect=expect)
                rest = _decode(log_format, name, data[commit.end :], commit.end, before.expectation)
                assert _joined(log_format, head + rest) == _joined(log_format, records)
                if can_take_columns(log_format):
                    view = memoryview(data)[commit.end :]
                    _check_taken(log_format, name, view, commit.end, before.expectation)

    def test_a_commit_is_the_same_alone(self, log_format: LogFormat, segments: Segments) -> None:
        if is_divisible(log_format):
            return
        for name, data, expect, _ in _walk(log_format, segments):
            commits = log_format.commits(name, memoryview(data), 0, expect)
            for commit, following in zip(commits, [*commits[1:], None], strict=True):
                begin = 0 if commit is commits[0] else commit.start  # the log segment's header belongs to the first one
                expected = expect if commit is commits[0] else Expectation(commit.first, expect.epoch)
                assert log_format.commits(name, memoryview(data)[begin : commit.end], begin, expected) == [commit]
                assert following is None or following.start == commit.end

    def test_any_prefix_decodes_to_a_prefix(self, log_format: LogFormat, segments: Segments) -> None:
        for name, data, expect, _ in _walk(log_format, segments):
            records = _decode(log_format, name, data, expect=expect)
            commits = log_format.commits(name, memoryview(data), 0, expect)
            ends, header = {0, *(commit.end for commit in commits)}, commits[0].start
            for cut in self.choose(range(len(data) + 1)):
                scan = log_format.scan(name, memoryview(data)[:cut], 0, expect)
                _check_prefix(log_format, _decode(log_format, name, data[:cut], expect=expect), records)
                if is_divisible(log_format):
                    continue
                assert scan.end == max(end for end in ends if end <= cut)
                assert cut == header or (scan.tail is Tail.NOTHING) == (cut in ends)
                assert scan.tail is not Tail.DAMAGED
                assert not scan.wanted or scan.end + scan.wanted > cut

    def test_a_log_that_grows_while_it_is_read_is_read_once(self, log_format: LogFormat, segments: Segments) -> None:
        random = Random(7)  # noqa: S311  # the same at each run
        for name, data, expect, _ in _walk(log_format, segments):
            found: list[Record] = []
            offset, size = 0, 0
            while size < len(data):
                size = min(len(data), size + random.randrange(1, 40))
                piece = memoryview(data)[offset:size]
                found += log_format.decode(name, piece, offset, expect).records()
                scan = log_format.scan(name, piece, offset, expect)
                offset, expect = scan.end, scan.expectation if scan.commits else expect  # noqa: PLW2901
            assert offset == len(data)
            first = found[0].sequence if found else 0
            assert _joined(log_format, found) == _joined(log_format, self.decode_slowly(name, data, first))

    def test_zeros_after_a_cut_are_not_a_record(self, log_format: LogFormat, segments: Segments) -> None:
        if not self.has_checksums:
            return
        for name, data, expect, _ in _walk(log_format, segments):
            records = _decode(log_format, name, data, expect=expect)
            for cut in self.choose(range(len(data) + 1)):
                zeroed = data[:cut] + bytes(len(data) - cut + 64)
                _check_prefix(log_format, _decode(log_format, name, zeroed, expect=expect), records)

    def test_zeros_after_the_last_commit_are_preallocation(self, log_format: LogFormat, segments: Segments) -> None:
        if is_divisible(log_format):
            return
        for name, data, expect, scan in _walk(log_format, segments):
            for zeros in (1, 100, 70_000):
                found = log_format.scan(name, memoryview(data + bytes(zeros)), 0, expect)
                assert (found.end, found.commits, found.tail) == (len(data), scan.commits, Tail.ZEROS)
                nothing = log_format.scan(name, memoryview(bytes(zeros)), 0, expect)
                assert (nothing.end, nothing.commits, nothing.tail) == (0, 0, Tail.ZEROS)

    def test_a_flipped_bit_is_an_error_or_not_yet(self, log_format: LogFormat, segments: Segments) -> None:
        if not self.has_checksums:
            return
        for name, data, expect, _ in _walk(log_format, segments):
            records = _decode(log_format, name, data, expect=expect)
            commits = log_format.commits(name, memoryview(data), 0, expect)
            for bit in self.choose(range(8 * len(data))):
                place, flipped = bit >> 3, bytearray(data)
                if self.may_renumber(name, data, place):
                    continue
                flipped[place] ^= 1 << (bit & 7)
                try:
                    found = _decode(log_format, name, bytes(flipped), expect=expect)
                except CorruptionError:
                    continue
                assert found == records[: len(found)]
                if not self.is_unchecked(name, data, place):
                    whole = log_format.scan(name, memoryview(flipped), 0, expect).commits
                    assert whole < len(commits)  # the damage is a tail
                    assert place >= commits[-1].start  # in an earlier commit it is an error: a good one follows

    def test_damage_before_a_good_commit_names_its_place(self, log_format: LogFormat, segments: Segments) -> None:
        if not self.has_checksums:
            return
        for name, data, expect, _ in _walk(log_format, segments):
            path = f"/logs/{name}"
            commits = log_format.commits(name, memoryview(data), 0, expect)
            for commit, following in pairwise(commits[1:]):
                damaged = bytearray(data)
                damaged[commit.end - 1] ^= 0x55
                assert _damage(log_format, path, damaged, expect) == (path, commit.start)
                found = find_commit(log_format, memoryview(damaged), 0, commit.start)
                assert found in {None, following.start}

    def test_huge_lengths_allocate_nothing(self, log_format: LogFormat, segments: Segments) -> None:
        name, data, expect, _ = next(_walk(log_format, segments))
        records = _decode(log_format, name, data, expect=expect)
        tracemalloc.start()
        try:
            for place in self.choose(range(len(data))):
                for length in HUGE:
                    hostile = (data[:place] + length + data[place + len(length) :])[: len(data)]
                    found, peak = _decode_measured(log_format, name, hostile, expect)
                    if (
                        peak >= PEAK_BYTES
                    ):  # maybe something that grows once in the process, such as a table of Python's
                        found, peak = _decode_measured(log_format, name, hostile, expect)
                    assert peak < PEAK_BYTES
                    late = any(self.may_renumber(name, data, place + at) for at in range(len(length)))
                    if self.has_checksums and not late:
                        assert found == records[: len(found)]
        finally:
            tracemalloc.stop()

    def test_any_bytes_after_a_log_are_a_tail_or_an_error(self, log_format: LogFormat, segments: Segments) -> None:
        if not self.has_checksums:
            return
        random = Random(11)  # noqa: S311  # the same at each run
        for name, data, expect, _ in _walk(log_format, segments):
            records = _decode(log_format, name, data, expect=expect)
            ends = [commit.end for commit in log_format.commits(name, memoryview(data), 0, expect)]
            for _ in range(100):
                keep, garbage = random.choice(ends), random.randbytes(random.randrange(1, 300))
                try:
                    found = _decode(log_format, name, data[:keep] + garbage, expect=expect)
                except CorruptionError:
                    continue
                _check_prefix(log_format, found, records)

    def test_the_heads_of_its_own_log_segments_are_accepted(self, log_format: LogFormat, segments: Segments) -> None:
        for name, data in segments:
            check_head(log_format, name, data[:HEAD_BYTES])
            for cut in range(HEAD_BYTES):
                check_head(log_format, name, data[:cut])
            assert (log_format.log_id(name, memoryview(data)) is not None) == log_format.has_log_id

    def test_an_empty_log_segment_has_no_commits(self, log_format: LogFormat, segments: Segments) -> None:
        for name, _ in segments:
            scan = log_format.scan(name, memoryview(b""), 0, Expectation())
            assert (scan.start, scan.end, scan.commits, scan.records, scan.first) == (0, 0, 0, 0, None)
            assert (scan.tail, scan.last_commit) == (Tail.NOTHING, 0)
            assert log_format.commits(name, memoryview(b""), 0, Expectation()) == []
            assert _decode(log_format, name, b"") == []
            assert log_format.log_id(name, memoryview(b"")) is None


def _walk(log_format: LogFormat, segments: Segments) -> Iterator[tuple[str, bytes, Expectation, Scan]]:
    """Each log segment with what is expected of its first commit, and its scan."""
    expect = Expectation()
    for name, data in segments:
        scan = log_format.scan(name, memoryview(data), 0, expect)
        yield name, data, expect, scan
        expect = scan.expectation


def _decode_measured(log_format: LogFormat, name: str, data: bytes, expect: Expectation) -> tuple[list[Record], int]:
    """As ``_decode``, without records if the data is damaged; and the most bytes that were allocated meanwhile."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    try:
        found = _decode(log_format, name, data, expect=expect)
    except CorruptionError:
        found = []
    return found, tracemalloc.get_traced_memory()[1] - before


def _decode(
    log_format: LogFormat, name: str, data: bytes, offset: int = 0, expect: Expectation | None = None
) -> list[Record]:
    return list(log_format.decode(name, memoryview(data), offset, expect or Expectation()).records())


def _damage(log_format: LogFormat, path: str, data: bytearray, expect: Expectation) -> tuple[str, int] | None:
    """The path and the offset that the error of a scan names; None if the scan raises none."""
    try:
        log_format.scan(path, memoryview(data), 0, expect)
    except CorruptCommitError as error:
        return error.path, error.offset
    return None


def _joined(log_format: LogFormat, records: list[Record]) -> object:
    """Return what to compare if records were read in other pieces: in a divisible format, only their bytes count."""
    if not is_divisible(log_format):
        return records
    return b"".join(record.value for record in records), records[0].sequence if records else None


def _check_prefix(log_format: LogFormat, found: list[Record], records: list[Record]) -> None:
    if is_divisible(log_format):
        whole = b"".join(record.value for record in records)
        assert whole.startswith(b"".join(record.value for record in found))
    else:
        assert found == records[: len(found)]


def _check_taken(log_format: LogFormat, name: str, data: memoryview, offset: int, expect: Expectation) -> None:
    """Taken commits are those that are scanned, and those of a cut piece are the whole ones."""
    scan, columns = scan_columns(log_format, name, data, offset, expect)
    for piece in (data, data[:-1]):
        taken = take_columns(log_format, piece, offset, expect)
        if taken is not None:
            found, end, following = taken
            assert offset < end <= scan.end
            assert list(found.records()) == list(columns.records())[: len(found)]
            assert (end, following) == (scan.end, scan.expectation) or following.sequence == found.sequences[-1] + 1
        front = scan_front(log_format, piece, offset, expect)
        if front is not None:
            whole = log_format.scan(name, piece, offset, expect)
            assert replace(front, tail=whole.tail, damage=whole.damage, wanted=whole.wanted) == whole


def _check_run(scan: Scan, commits: list[Commit]) -> None:
    """Check that a scan states the same facts as its commits."""
    if not commits:
        return
    assert (scan.first, scan.next) == (commits[0].first, commits[-1].next)
    assert (scan.last_commit, scan.end) == (commits[-1].start, commits[-1].end)
    assert [commit.start for commit in commits[1:]] == [commit.end for commit in commits[:-1]]
    assert all(earlier.next <= later.first for earlier, later in pairwise(commits))
    assert all(commit.start < commit.end and commit.first < commit.next for commit in commits)
    lows = [commit.lowest for commit in commits if commit.lowest is not None]
    highs = [commit.highest for commit in commits if commit.highest is not None]
    assert (scan.lowest, scan.highest) == (min(lows, default=None), max(highs, default=None))
