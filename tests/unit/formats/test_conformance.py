"""The suite for log formats finds each fault that a format may have."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pytest

from litelog.errors import CorruptCommitError, CorruptionError
from litelog.formats import Expectation, Scan, Tail
from litelog.formats.columns import Columns, Record
from litelog.formats.conformance import LogFormatConformance
from litelog.formats.litelog import LitelogFormat, SegmentHeader, encode_commit, segment_name
from tests.builders.child import runs_in_child

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.formats import Commit, LogFormat


def write(first: int) -> bytes:
    """A log segment of three commits with two records each."""
    data = bytearray(SegmentHeader(UUID(int=1), first, 0).encode())
    for number in range(3):
        data += encode_commit(first + 2 * number, 1, 1_000_000 * number, [b"one", b"%d" % number])
    return bytes(data)


SEGMENTS = [(segment_name(0), write(0)), (segment_name(6), write(6))]


class Suite(LogFormatConformance):
    """The suite, with a decoder of records that are all alike."""

    def decode_slowly(self, name: str, data: bytes, first: int) -> list[Record]:
        first = int.from_bytes(data[32:40], "little")
        values = (b"one", b"0", b"one", b"1", b"one", b"2")
        return [Record(first + place, 1_000_000 * (place // 2), None, value) for place, value in enumerate(values)]

    def choose(self, places: Sequence[int]) -> Sequence[int]:
        return places[::5]


class Unsorted(LitelogFormat):
    def segment_order(self, name: str) -> tuple[object, ...] | None:
        order = super().segment_order(name)
        return None if order is None else (-int(str(order[0])),)


class TakesAll(LitelogFormat):
    def segment_order(self, name: str) -> tuple[object, ...] | None:
        return (name,)


class WrongFirst(LitelogFormat):
    def first_sequence(self, name: str) -> int | None:
        return (super().first_sequence(name) or 0) + 1


class OtherValues(LitelogFormat):
    def decode(self, name: str, data: memoryview, offset: int, expect: Expectation) -> Columns:
        columns = super().decode(name, data, offset, expect)
        return replace(columns, value_starts=columns.value_starts + 1)


class Elsewhere(LitelogFormat):
    """Its records are in its own buffer, and nothing says where their commits lie."""

    def decode(self, name: str, data: memoryview, offset: int, expect: Expectation) -> Columns:
        columns = super().decode(name, data, offset, expect)
        moved = memoryview(bytes(1000) + bytes(data))
        return replace(columns, data=moved, value_starts=columns.value_starts + 1000)


class BadRuns(LitelogFormat):
    """Its columns say that all values lie back to back."""

    def decode(self, name: str, data: memoryview, offset: int, expect: Expectation) -> Columns:
        columns = super().decode(name, data, offset, expect)
        return replace(columns, runs=np.zeros(min(1, len(columns)), np.int64))


class FewerCommits(LitelogFormat):
    def commits(self, name: str, data: memoryview, offset: int, expect: Expectation) -> list[Commit]:
        return super().commits(name, data, offset, expect)[:2]


class KnownIsLess(LitelogFormat):
    def scan(self, name: str, data: memoryview, offset: int, expect: Expectation, *, known: bool = False) -> Scan:
        scan = super().scan(name, data, offset, expect, known=known)
        return replace(scan, records=0) if known else scan


class NoStart(LitelogFormat):
    """It reads log segments from their beginning alone."""

    def decode(self, name: str, data: memoryview, offset: int, expect: Expectation) -> Columns:
        if offset:
            return Columns.empty(data, has_timestamps=True)
        return super().decode(name, data, offset, expect)


class NoCommits(LitelogFormat):
    """It finds the commits of a log segment from its beginning alone."""

    def commits(self, name: str, data: memoryview, offset: int, expect: Expectation) -> list[Commit]:
        return [] if offset else super().commits(name, data, offset, expect)


class Confused(LitelogFormat):
    """A damaged tail changes what it reads before it."""

    def decode(self, name: str, data: memoryview, offset: int, expect: Expectation) -> Columns:
        columns = super().decode(name, data, offset, expect)
        if self.scan(name, data, offset, expect).tail is not Tail.DAMAGED:
            return columns
        return replace(columns, sequences=columns.sequences + 1)


class NeedsAll(LitelogFormat):
    """It takes what is incomplete for damage."""

    def scan(self, name: str, data: memoryview, offset: int, expect: Expectation, *, known: bool = False) -> Scan:
        scan = super().scan(name, data, offset, expect, known=known)
        if scan.tail is Tail.INCOMPLETE:
            raise CorruptCommitError(name, scan.end, "length", "more", len(data))
        return scan


class WantsTooLittle(LitelogFormat):
    def scan(self, name: str, data: memoryview, offset: int, expect: Expectation, *, known: bool = False) -> Scan:
        scan = super().scan(name, data, offset, expect, known=known)
        return replace(scan, wanted=min(scan.wanted, 1))


class NoZeros(LitelogFormat):
    def scan(self, name: str, data: memoryview, offset: int, expect: Expectation, *, known: bool = False) -> Scan:
        scan = super().scan(name, data, offset, expect, known=known)
        return replace(scan, tail=Tail.DAMAGED) if scan.tail is Tail.ZEROS else scan


class Unchecked(LitelogFormat):
    """It makes the checksums right before it compares them."""

    def decode(self, name: str, data: memoryview, offset: int, expect: Expectation) -> Columns:
        return super().decode(name, memoryview(reseal(bytes(data))) if not offset else data, offset, expect)


class Silent(LitelogFormat):
    """It ends at the first damage, without a look at what follows."""

    def scan(self, name: str, data: memoryview, offset: int, expect: Expectation, *, known: bool = False) -> Scan:
        try:
            return super().scan(name, data, offset, expect, known=known)
        except CorruptionError:
            return super().scan(name, data[:0], offset, expect)

    def decode(self, name: str, data: memoryview, offset: int, expect: Expectation) -> Columns:
        try:
            return super().decode(name, data, offset, expect)
        except CorruptionError:
            return Columns.empty(data, has_timestamps=True)


class Unnamed(LitelogFormat):
    """Its errors do not name the path."""

    def scan(self, name: str, data: memoryview, offset: int, expect: Expectation, *, known: bool = False) -> Scan:
        return super().scan(name.rpartition("/")[2], data, offset, expect, known=known)


class Trusting(LitelogFormat):
    """It allocates by the length that a commit states."""

    def decode(self, name: str, data: memoryview, offset: int, expect: Expectation) -> Columns:
        if len(data) >= 86 and not offset:
            bytearray(int.from_bytes(data[82:86], "little") % (64 << 20))
        return super().decode(name, data, offset, expect)


class RefusesItself(LitelogFormat):
    def check_head(self, path: str, head: bytes) -> None:
        if head:
            raise CorruptCommitError(path, 0, "head", "another", head)


class Invents(LitelogFormat):
    def scan(self, name: str, data: memoryview, offset: int, expect: Expectation, *, known: bool = False) -> Scan:
        return replace(super().scan(name, data, offset, expect, known=known), first=0)


def reseal(data: bytes) -> bytes:
    """The same bytes with right checksums, wherever the lengths allow it."""
    from litelog.codec.checksum import crc32c

    sealed, at = bytearray(data), 64
    while at + 26 <= len(data):
        end = at + 22 + int.from_bytes(data[at + 18 : at + 22], "little")
        if end + 4 > len(data):
            break
        sealed[end : end + 4] = crc32c(bytes(sealed[at:end])).to_bytes(4, "little")
        at = end + 4
    return bytes(sealed)


FAULTS = [
    (Unsorted, "test_names_sort_in_the_order_of_the_log"),
    (TakesAll, "test_other_names_are_no_log_segments"),
    (WrongFirst, "test_a_name_states_the_first_sequence_or_none"),
    (OtherValues, "test_records_are_those_of_a_slow_decoder"),
    (BadRuns, "test_arrow_batches_hold_the_same_records"),
    (FewerCommits, "test_scan_commits_and_decode_agree"),
    (KnownIsLess, "test_scan_commits_and_decode_agree"),
    (Elsewhere, "test_records_lie_in_their_commits"),
    (NoStart, "test_a_run_continues_at_any_commit"),
    (NoStart, "test_a_log_that_grows_while_it_is_read_is_read_once"),
    (NoCommits, "test_a_commit_is_the_same_alone"),
    (NeedsAll, "test_any_prefix_decodes_to_a_prefix"),
    (WantsTooLittle, "test_any_prefix_decodes_to_a_prefix"),
    (NoZeros, "test_zeros_after_the_last_commit_are_preallocation"),
    (Unchecked, "test_zeros_after_a_cut_are_not_a_record"),
    (Unchecked, "test_a_flipped_bit_is_an_error_or_not_yet"),
    (Confused, "test_any_bytes_after_a_log_are_a_tail_or_an_error"),
    (Silent, "test_a_flipped_bit_is_an_error_or_not_yet"),
    (Silent, "test_damage_before_a_good_commit_names_its_place"),
    (Unnamed, "test_damage_before_a_good_commit_names_its_place"),
    (Trusting, "test_huge_lengths_allocate_nothing"),
    (RefusesItself, "test_the_heads_of_its_own_log_segments_are_accepted"),
    (Invents, "test_an_empty_log_segment_has_no_commits"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("faulty", "finds"), FAULTS)
@runs_in_child
def test_a_fault_of_a_format_is_found(faulty: type[LogFormat], finds: str) -> None:
    suite: Any = Suite()
    getattr(suite, finds)(LitelogFormat(), SEGMENTS)
    with pytest.raises((AssertionError, CorruptionError)):
        getattr(suite, finds)(faulty(), SEGMENTS)


def test_each_test_of_the_suite_finds_a_fault() -> None:
    assert {name for name in vars(LogFormatConformance) if name.startswith("test_")} == {finds for _, finds in FAULTS}
