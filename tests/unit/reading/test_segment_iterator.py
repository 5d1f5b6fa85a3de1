"""The segment iterator: order, listings, errors, rewinding; and the feed that serves many iterators."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from litelog.errors import ClosedError, GenerationMismatchError, PrunedError, SegmentOrderError, StoreError
from litelog.objects.position import Position, generation
from litelog.reading.segment_feed import SegmentFeed
from litelog.reading.segment_iterator import MAX_REMEMBERED, PAGE, SegmentIterator
from litelog.stores.replica_client import WalSegmentInfo
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from litelog.objects.position import Generation

G = generation("0000000100000000")
OTHER = generation("0000000200000000")


def at(index: int, offset: int = 0, name: Generation = G) -> Position:
    return Position(name, index, offset)


def seg(index: int, offset: int = 0, name: Generation = G) -> WalSegmentInfo:
    return WalSegmentInfo(at(index, offset, name), 100 + offset)


class Replica:
    """WAL segments in memory, as a client lists them. It counts listings, and fails when a test says so."""

    def __init__(self, *infos: WalSegmentInfo) -> None:
        self.infos = dict.fromkeys(infos)
        self.listings = 0
        self.failure: Exception | None = None

    def put(self, info: WalSegmentInfo) -> WalSegmentInfo:
        self.infos[info] = None
        return info

    def prune(self, *infos: WalSegmentInfo) -> None:
        for info in infos:
            del self.infos[info]

    def list_segments(self, name: Generation, since: Position | None) -> Iterator[WalSegmentInfo]:
        self.listings += 1
        if self.failure is not None:
            raise self.failure
        return iter(
            [i for i in sorted(self.infos) if i.position.generation == name and (not since or i.position >= since)]
        )


class Counter:
    """A signal that counts."""

    def __init__(self) -> None:
        self.count = 0

    def set(self) -> None:
        self.count += 1


def opened(
    replica: Replica, start: Position | None = None, signal: Counter | None = None, page: int = PAGE
) -> SegmentIterator:
    return SegmentIterator(G, replica.list_segments, start, signal, page).open()


def write(replica: Replica, iterator: SegmentIterator, *infos: WalSegmentInfo) -> None:
    for info in infos:
        iterator.append(replica.put(info))


def drain(iterator: SegmentIterator) -> list[tuple[int, int]]:
    taken = []
    while (info := iterator.next()) is not None:
        taken.append((info.position.index, info.position.offset))
    return taken


def test_an_append_to_an_empty_iterator_notifies_once_and_is_given() -> None:
    replica, signal = Replica(), Counter()
    iterator = opened(replica, signal=signal)
    assert signal.count == 0
    assert iterator.next() is None
    write(replica, iterator, seg(0))
    assert signal.count == 1
    assert iterator.wait(0)
    assert iterator.next() == seg(0)
    assert iterator.next() is None
    assert not iterator.wait(0)


def test_two_appends_before_a_read_are_given_in_order_after_one_event() -> None:
    replica = Replica()
    iterator = SegmentIterator(G, replica.list_segments)
    iterator.open()
    write(replica, iterator, seg(0), seg(0, 1))
    assert isinstance(iterator.notified, threading.Event)
    assert iterator.notified.is_set()
    assert drain(iterator) == [(0, 0), (0, 1)]


def test_indexes_appended_while_the_reader_lags_are_pending_and_returned_in_order() -> None:
    replica = Replica()
    iterator = opened(replica)
    write(replica, iterator, seg(0), seg(1), seg(1, 1), seg(2))
    assert iterator.next() == seg(0)
    assert list(iterator.pending_indexes) == [1, 2]
    assert drain(iterator) == [(1, 0), (1, 1), (2, 0)]
    assert list(iterator.pending_indexes) == []


def test_another_generation_is_refused() -> None:
    iterator = opened(Replica())
    with pytest.raises(GenerationMismatchError) as caught:
        iterator.append(seg(0, name=OTHER))
    assert (caught.value.expected, caught.value.actual) == (G, OTHER)
    for call in (iterator.rewind, iterator.skip_to):
        with pytest.raises(GenerationMismatchError):
            call(at(0, name=OTHER))
    with pytest.raises(GenerationMismatchError):
        SegmentIterator(G, Replica().list_segments, at(0, name=OTHER))
    assert iterator.next() is None


@pytest.mark.parametrize(
    ("refused", "what", "expected"),
    [
        ((0, 9), "below the last index", (3, 0)),
        ((2, 0), "below the last index", (3, 0)),
        ((5, 0), "skips the next index", (4, 0)),
        ((4, 1), "skips the next index", (4, 0)),
    ],
)
def test_with_pending_indexes_order_is_kept(refused: tuple[int, int], what: str, expected: tuple[int, int]) -> None:
    replica = Replica()
    iterator = opened(replica)
    write(replica, iterator, seg(0), seg(1), seg(2), seg(3))
    assert list(iterator.pending_indexes) == [1, 2, 3]
    with pytest.raises(SegmentOrderError) as caught:
        iterator.append(seg(*refused))
    assert caught.value.what == what
    assert (caught.value.expected, caught.value.actual) == (str(at(*expected)), str(at(*refused)))
    write(replica, iterator, seg(3, 5))
    assert list(iterator.pending_indexes) == [1, 2, 3]
    assert drain(iterator) == [(0, 0), (1, 0), (2, 0), (3, 0), (3, 5)]


@pytest.mark.parametrize("drained", [False, True])
@pytest.mark.parametrize(
    ("refused", "what"),
    [
        ((1, 9), "below the last index"),
        ((2, 4), "before the last offset"),
        ((4, 0), "skips the next index"),
        ((3, 1), "skips the next index"),
    ],
)
def test_gaps_and_regressions_are_refused_also_when_drained(drained: bool, refused: tuple[int, int], what: str) -> None:
    replica = Replica(seg(1), seg(1, 5), seg(2))
    iterator = opened(replica)
    write(replica, iterator, seg(2, 5))
    if drained:
        assert len(drain(iterator)) == 4
    with pytest.raises(SegmentOrderError) as caught:
        iterator.append(seg(*refused))
    assert caught.value.what == what
    write(replica, iterator, seg(2, 6), seg(3))
    assert drain(iterator)[-2:] == [(2, 6), (3, 0)]


def test_the_last_one_appended_again_changes_nothing() -> None:
    replica, signal = Replica(), Counter()
    iterator = opened(replica, signal=signal)
    write(replica, iterator, seg(0), seg(0))
    assert signal.count == 1
    assert drain(iterator) == [(0, 0)]
    write(replica, iterator, seg(0))
    assert drain(iterator) == []
    assert signal.count == 1


def test_an_object_that_a_listing_saw_before_its_append_is_given_once() -> None:
    replica = Replica(seg(0), seg(0, 5))
    iterator = opened(replica)
    iterator.append(seg(0, 5))
    assert drain(iterator) == [(0, 0), (0, 5)]
    iterator.append(seg(0, 5))
    write(replica, iterator, seg(0, 6))
    assert drain(iterator) == [(0, 6)]


def test_an_object_listed_with_a_pending_index_before_its_append_is_given_once() -> None:
    replica = Replica()
    iterator = opened(replica)
    write(replica, iterator, seg(0), seg(1))
    replica.put(seg(1, 5))
    assert drain(iterator) == [(0, 0), (1, 0), (1, 5)]
    iterator.append(seg(1, 5))
    assert drain(iterator) == []


def test_a_folder_read_while_names_come_into_it_leaves_none_out() -> None:
    """The listing shows the second of two names that were created while it ran, and not the first."""
    replica = Replica(seg(0))
    iterator: SegmentIterator

    def torn(name: Generation, since: Position | None) -> Iterable[WalSegmentInfo]:
        seen = list(replica.list_segments(name, since))
        if replica.listings == 1:
            write(replica, iterator, seg(0, 1))
            replica.put(seg(0, 2))
            seen.append(seg(0, 2))
        return seen

    iterator = SegmentIterator(G, torn)
    iterator.open()
    iterator.append(seg(0, 2))
    assert drain(iterator) == [(0, 0), (0, 1), (0, 2)]


def test_opening_on_a_backlog_notifies_at_once() -> None:
    signal = Counter()
    iterator = opened(Replica(seg(3), seg(3, 1)), signal=signal)
    assert signal.count == 1
    assert iterator.wait(0)
    assert drain(iterator) == [(3, 0), (3, 1)]


def test_a_stored_error_reaches_the_consumer_after_all_earlier_segments() -> None:
    replica, signal = Replica(), Counter()
    iterator = opened(replica, signal=signal)
    write(replica, iterator, seg(0))
    iterator.fail(OSError("disk"))
    iterator.fail(OSError("second"))
    assert signal.count >= 2
    assert iterator.next() == seg(0)
    assert iterator.wait(0)
    for call in (iterator.next, iterator.peek, iterator.__next__, iterator.next):
        with pytest.raises(OSError, match="disk"):
            call()
    with pytest.raises(ClosedError) as caught:
        iterator.append(seg(0, 1))
    assert isinstance(caught.value.__cause__, OSError)


def test_a_stored_error_does_not_grow_with_every_time_it_is_raised() -> None:
    iterator = opened(Replica())
    iterator.fail(OSError("disk"))
    depths = []
    for _ in range(3):
        with pytest.raises(OSError, match="disk") as caught:
            iterator.next()
        depths.append(len(caught.traceback))
    assert depths[0] == depths[1] == depths[2]


def test_a_failed_upload_rewinds_without_a_listing_and_skips_nothing() -> None:
    replica = Replica()
    iterator = opened(replica)
    write(replica, iterator, seg(0), seg(0, 1), seg(0, 2))
    assert drain(iterator) == [(0, 0), (0, 1), (0, 2)]
    assert isinstance(iterator.notified, threading.Event)
    iterator.notified.clear()
    iterator.rewind(at(0, 1))
    assert iterator.notified.is_set()
    assert iterator.wait(0)
    write(replica, iterator, seg(0, 3))
    assert drain(iterator) == [(0, 1), (0, 2), (0, 3)]
    iterator.rewind(at(0, 3))
    assert drain(iterator) == [(0, 3)]
    assert replica.listings == 1


def test_a_rewind_beyond_the_remembered_segments_lists() -> None:
    replica = Replica()
    iterator = opened(replica)
    count = MAX_REMEMBERED + 10
    write(replica, iterator, *(seg(0, n) for n in range(count)))
    drain(iterator)
    iterator.rewind(at(0, 1))
    iterator.rewind(at(0, 0))
    write(replica, iterator, seg(0, count))
    assert drain(iterator) == [(0, n) for n in range(count + 1)]
    assert replica.listings == 2


def test_a_rewind_forward_is_refused() -> None:
    iterator = opened(Replica())
    with pytest.raises(ValueError, match="cannot rewind"):
        iterator.rewind(at(0))
    iterator = opened(Replica(seg(0), seg(0, 1)))
    with pytest.raises(ValueError, match="cannot rewind"):
        iterator.rewind(at(0, 1))
    assert drain(iterator) == [(0, 0), (0, 1)]


def test_a_rewind_to_a_removed_segment_raises_pruned_error() -> None:
    replica = Replica(*(seg(0, n) for n in range(MAX_REMEMBERED + 2)))
    iterator = opened(replica)
    drain(iterator)
    replica.prune(seg(0))
    iterator.rewind(at(0))
    with pytest.raises(PrunedError) as caught:
        iterator.next()
    assert caught.value.position == str(at(0))


def test_a_pending_index_that_retention_removed_can_be_skipped() -> None:
    replica = Replica()
    iterator = opened(replica)
    write(replica, iterator, seg(0), seg(1), seg(1, 5), seg(2), seg(3))
    assert iterator.next() == seg(0)
    replica.prune(seg(1), seg(1, 5))
    for _ in range(2):
        assert iterator.wait(0)
        with pytest.raises(PrunedError) as caught:
            iterator.next()
        assert caught.value.position == str(at(1))
    iterator.skip_to(at(2))
    assert drain(iterator) == [(2, 0), (3, 0)]


@pytest.mark.parametrize("pruned", [[(1, 0)], [(2, 0), (2, 5)], [(2, 0)], [(3, 0)]])
def test_no_part_of_a_pending_range_is_left_out_silently(pruned: list[tuple[int, int]]) -> None:
    replica = Replica()
    iterator = opened(replica)
    everything = [(0, 0), (1, 0), (1, 5), (2, 0), (2, 5), (3, 0)]
    write(replica, iterator, *(seg(*one) for one in everything))
    replica.prune(*(seg(*one) for one in pruned))
    taken = []
    end = None
    try:
        for info in iterator:
            taken.append((info.position.index, info.position.offset))  # noqa: PERF401
    except PrunedError as error:
        end = error.position
    assert taken == everything[: everything.index(pruned[0])]
    assert end == str(at(*pruned[0]))


def test_a_segment_that_a_listing_left_out_once_is_listed_again() -> None:
    replica = Replica(seg(0), seg(1), seg(2))

    def flickering(name: Generation, since: Position | None) -> Iterable[WalSegmentInfo]:
        return [i for i in replica.list_segments(name, since) if i != seg(1) or replica.listings != 1]

    iterator = SegmentIterator(G, flickering)
    iterator.open()
    assert drain(iterator) == [(0, 0), (1, 0), (2, 0)]


def test_a_pending_index_that_a_listing_left_out_once_is_listed_again() -> None:
    replica = Replica()

    def flickering(name: Generation, since: Position | None) -> Iterable[WalSegmentInfo]:
        return [i for i in replica.list_segments(name, since) if i != seg(1) or replica.listings != 2]

    iterator = SegmentIterator(G, flickering)
    iterator.open()
    write(replica, iterator, seg(0), seg(1), seg(2))
    assert drain(iterator) == [(0, 0), (1, 0), (2, 0)]
    assert replica.listings == 3


def test_offsets_that_retention_removed_between_two_pages_are_pruned() -> None:
    replica = Replica(*(seg(0, n) for n in range(9)))
    iterator = opened(replica, page=2)
    given = [iterator.next() for _ in range(3)]
    assert given == [seg(0, 0), seg(0, 1), seg(0, 2)]
    replica.prune(*(seg(0, n) for n in range(5)))
    with pytest.raises(PrunedError) as caught:
        iterator.next()
    assert caught.value.position == str(at(0, 2))


def test_a_generation_whose_first_offsets_are_gone_is_pruned_at_the_opening() -> None:
    with pytest.raises(PrunedError):
        opened(Replica(seg(4, 5), seg(4, 6)))


def test_keeping_up_lists_only_at_the_opening() -> None:
    replica = Replica(seg(0))
    iterator = opened(replica)
    assert drain(iterator) == [(0, 0)]
    for index in range(5):
        for offset in range(index == 0, 20):
            write(replica, iterator, seg(index, offset))
            assert drain(iterator) == [(index, offset)]
    assert replica.listings == 1


def test_a_reader_that_lags_lists_once_for_a_whole_range_of_indexes() -> None:
    replica = Replica()
    iterator = opened(replica)
    everything = [(index, offset) for index in range(20) for offset in range(20)]
    write(replica, iterator, *(seg(*one) for one in everything))
    assert drain(iterator) == everything
    assert replica.listings == 2


def test_a_listing_that_fails_is_passed_on_and_loses_nothing() -> None:
    replica = Replica()
    iterator = opened(replica)
    write(replica, iterator, seg(0), seg(1))
    assert iterator.next() == seg(0)
    replica.failure = StoreError("list", "x", "503")
    with pytest.raises(StoreError):
        iterator.next()
    write(replica, iterator, seg(1, 1))
    assert iterator.wait(0)
    replica.failure = None
    assert drain(iterator) == [(1, 0), (1, 1)]


def test_an_append_during_a_listing_that_fails_is_not_lost() -> None:
    replica = Replica()
    iterator: SegmentIterator

    def failing(name: Generation, since: Position | None) -> Iterable[WalSegmentInfo]:
        if replica.listings == 0:
            replica.listings += 1
            write(replica, iterator, seg(0))
            raise StoreError("list", "x", "503")
        return replica.list_segments(name, since)

    iterator = SegmentIterator(G, failing)
    with pytest.raises(StoreError):
        iterator.open()
    assert drain(iterator) == [(0, 0)]


def test_peek_does_not_advance() -> None:
    replica = Replica(seg(0), seg(0, 1))
    iterator = opened(replica)
    assert iterator.peek() == iterator.peek() == seg(0)
    assert drain(iterator) == [(0, 0), (0, 1)]
    assert iterator.peek() is None


def test_close_ends_at_once_and_finish_ends_after_the_existing_segments() -> None:
    iterator = opened(Replica(seg(0), seg(1)))
    iterator.finish()
    assert list(iterator) == [seg(0), seg(1)]
    with pytest.raises(ClosedError):
        iterator.next()
    with opened(Replica(seg(0))) as closed:
        pass
    closed.close()
    assert closed.is_closed
    assert closed.wait(0)
    assert list(closed) == []
    with pytest.raises(ClosedError):
        closed.peek()
    with pytest.raises(ClosedError):
        closed.append(seg(0, 1))


def test_a_base_that_is_read_after_the_opening_is_skipped_to() -> None:
    replica = Replica(seg(0), seg(0, 5), seg(1))
    iterator = opened(replica)
    write(replica, iterator, seg(1, 5))
    iterator.skip_to(at(0, 5))
    assert iterator.peek() == seg(0, 5)
    iterator.skip_to(at(1, 5))
    iterator.skip_to(at(0, 5))
    assert drain(iterator) == [(1, 5)]
    iterator.skip_to(at(1, 9))
    write(replica, iterator, seg(1, 9))
    assert drain(iterator) == [(1, 9)]
    iterator.rewind(at(0, 5))
    assert drain(iterator) == [(0, 5), (1, 0), (1, 5), (1, 9)]


def test_segments_below_the_base_are_not_given_until_a_rewind_asks_for_them() -> None:
    replica = Replica(seg(0), seg(0, 5))
    iterator = opened(replica)
    iterator.skip_to(at(0, 9))
    write(replica, iterator, seg(0, 7))
    assert drain(iterator) == []
    iterator.rewind(at(0, 5))
    write(replica, iterator, seg(0, 8))
    assert drain(iterator) == [(0, 5), (0, 7), (0, 8)]
    iterator.skip_to(at(0, 20))
    iterator.rewind(at(0, 8))
    assert drain(iterator) == [(0, 8)]
    write(replica, iterator, seg(0, 9))
    assert drain(iterator) == [(0, 9)]


def test_a_base_in_a_pending_range_is_found_by_the_listing() -> None:
    replica = Replica()
    iterator = opened(replica)
    write(replica, iterator, *(seg(index, offset) for index in range(5) for offset in (0, 5)))
    iterator.skip_to(at(3, 5))
    assert drain(iterator) == [(3, 5), (4, 0), (4, 5)]


@pytest.mark.parametrize(
    ("start", "given"),
    [
        (at(0), [(0, 0), (0, 5), (1, 0)]),
        (at(0, 5), [(0, 5), (1, 0)]),
        (at(0, 9), [(1, 0)]),
        (at(1), [(1, 0)]),
        (at(1, 7), []),
        (at(2), []),
    ],
)
def test_reading_starts_at_a_slot(start: Position, given: list[tuple[int, int]]) -> None:
    assert drain(opened(Replica(seg(0), seg(0, 5), seg(1)), start)) == given


@pytest.mark.parametrize("start", [at(0), at(0, 3), at(1)])
def test_a_start_that_is_gone_is_pruned(start: Position) -> None:
    with pytest.raises(PrunedError) as caught:
        opened(Replica(seg(0, 5), seg(2)), start)
    assert caught.value.position == str(start)


@pytest.mark.parametrize(
    ("start", "first", "is_taken"),
    [
        (None, (7, 0), True),
        (None, (7, 1), False),
        (at(3), (3, 0), True),
        (at(3), (4, 0), False),
        (at(3), (3, 5), False),
        (at(3, 5), (3, 5), True),
        (at(3, 5), (4, 0), True),
        (at(3, 5), (5, 0), False),
    ],
)
def test_the_first_append_has_to_be_where_reading_starts(
    start: Position | None, first: tuple[int, int], is_taken: bool
) -> None:
    iterator = opened(Replica(), start)
    if is_taken:
        iterator.append(seg(*first))
        assert drain(iterator) == [first]
    else:
        with pytest.raises(SegmentOrderError, match="skips the first one"):
            iterator.append(seg(*first))
        assert drain(iterator) == []


def test_a_backlog_is_listed_page_by_page_and_never_held_whole() -> None:
    total = 3 * PAGE + 7
    served = 0

    def endless(name: Generation, since: Position | None) -> Iterator[WalSegmentInfo]:
        nonlocal served
        for offset in range(since.offset if since else 0, total):
            served += 1
            yield seg(0, offset, name)

    iterator = SegmentIterator(G, endless).open()
    assert served <= PAGE + 2
    iterator.append(seg(0, total - 1))
    assert [offset for _, offset in drain(iterator)] == list(range(total))
    assert served <= total + 3 * 3


@pytest.mark.parametrize("appended", [PAGE - 1, PAGE, PAGE + 1, PAGE + 2, 3 * PAGE])
def test_a_reader_that_stands_still_holds_a_page_and_loses_nothing(appended: int) -> None:
    replica = Replica()
    iterator = opened(replica)
    write(replica, iterator, *(seg(0, n) for n in range(appended)))
    assert len(iterator._ready) <= PAGE
    assert drain(iterator) == [(0, n) for n in range(appended)]


@pytest.mark.parametrize("listed", [PAGE - 1, PAGE, PAGE + 1, PAGE + 2, PAGE + 3])
@pytest.mark.parametrize("arriving", [0, 1, PAGE + 1])
def test_appends_next_to_a_long_listing_are_neither_lost_nor_doubled(listed: int, arriving: int) -> None:
    replica = Replica(*(seg(0, n) for n in range(listed)))
    iterator: SegmentIterator

    def busy(name: Generation, since: Position | None) -> Iterator[WalSegmentInfo]:
        if replica.listings == 0:
            write(replica, iterator, *(seg(0, listed + n) for n in range(arriving)))
        return replica.list_segments(name, since)

    iterator = SegmentIterator(G, busy)
    iterator.open()
    assert len(iterator._ready) <= 2 * PAGE + 1
    assert replica.listings == 1
    write(replica, iterator, seg(0, listed + arriving), seg(1))
    assert drain(iterator) == [*((0, n) for n in range(listed + arriving + 1)), (1, 0)]


def test_every_subscriber_gets_everything_from_where_it_starts() -> None:
    replica, feed = Replica(seg(0)), SegmentFeed(G)
    first = feed.subscribe(replica.list_segments)
    feed.publish(replica.put(seg(0, 1)))
    second = feed.subscribe(replica.list_segments, start=at(0, 1))
    feed.publish(replica.put(seg(1)))
    feed.close()
    feed.close()
    third = feed.subscribe(replica.list_segments)
    assert list(first) == list(third) == [seg(0), seg(0, 1), seg(1)]
    assert list(second) == [seg(0, 1), seg(1)]


@pytest.mark.parametrize("left", [[(2, 0), (2, 1)], [(2, 7)], [(3, 0)]])
def test_a_start_that_was_pruned_is_reported_and_the_base_is_where_to_subscribe(left: list[tuple[int, int]]) -> None:
    replica, feed = Replica(*(seg(*place) for place in left)), SegmentFeed(G, at(1))
    with pytest.raises(PrunedError) as caught:
        feed.subscribe(replica.list_segments)
    assert caught.value.position == str(at(1))
    iterator = feed.subscribe(replica.list_segments, at(3))
    for info in (seg(3), seg(3, 1), seg(4)):
        if info not in replica.infos:
            feed.publish(replica.put(info))
    assert drain(iterator) == [(3, 0), (3, 1), (4, 0)]


def test_a_generation_that_holds_nothing_yet_is_read_from_its_first_index() -> None:
    replica, feed = Replica(), SegmentFeed(G, at(5))
    iterator = feed.subscribe(replica.list_segments)
    assert iterator.next() is None
    feed.publish(replica.put(seg(5)))
    feed.publish(replica.put(seg(5, 1)))
    assert drain(iterator) == [(5, 0), (5, 1)]


def test_a_consumer_that_failed_closed_or_lags_touches_no_other() -> None:
    replica, feed = Replica(), SegmentFeed(G)
    closed, failed, refusing, slow, good = (feed.subscribe(replica.list_segments) for _ in range(5))
    closed.close()
    failed.fail(OSError("mine"))
    refusing.append(seg(5))
    everything = [replica.put(seg(index)) for index in range(3)]
    for info in everything:
        feed.publish(info)
        assert good.next() == info
    assert refusing.next() == seg(5)
    with pytest.raises(SegmentOrderError):
        refusing.next()
    with pytest.raises(OSError, match="mine"):
        failed.next()
    assert drain(slow) == [(0, 0), (1, 0), (2, 0)]
    assert len(feed._iterators) == 2
    slow.close()
    feed.subscribe(replica.list_segments)
    assert len(feed._iterators) == 2


def test_a_failed_feed_fails_every_iterator_and_those_to_come() -> None:
    replica, feed = Replica(), SegmentFeed(G)
    before = feed.subscribe(replica.list_segments)
    feed.publish(replica.put(seg(0)))
    feed.fail(OSError("fenced"))
    feed.fail(OSError("later"))
    feed.close()
    after = feed.subscribe(replica.list_segments)
    for iterator in (before, after):
        assert iterator.next() == seg(0)
        with pytest.raises(OSError, match="fenced"):
            iterator.next()


def test_a_subscription_whose_listing_fails_is_none() -> None:
    replica, feed = Replica(), SegmentFeed(G)
    replica.failure = StoreError("list", "x", "503")
    with pytest.raises(StoreError):
        feed.subscribe(replica.list_segments)
    feed.publish(seg(0))
    assert feed._iterators == []


class IteratorMachine(RuleBasedStateMachine):
    """Compares the segments that the iterator gives with a list and a place in it."""

    def __init__(self) -> None:
        super().__init__()
        self.replica = Replica()
        self.model: list[WalSegmentInfo] = []
        self.place = 0
        self.iterator: SegmentIterator | None = None
        self.unpublished: WalSegmentInfo | None = None
        self.is_end_known = False

    def _next_info(self, is_new_index: bool) -> WalSegmentInfo:
        if not self.model:
            return seg(0)
        last = self.model[-1].position
        return seg(last.index + 1) if is_new_index else seg(last.index, last.offset + 1)

    @rule(is_new_index=st.booleans())
    @precondition(lambda self: self.unpublished is None)
    def put(self, is_new_index: bool) -> None:
        self.unpublished = self.replica.put(self._next_info(is_new_index))
        self.model.append(self.unpublished)

    @rule()
    @precondition(lambda self: self.unpublished is not None)
    def publish(self) -> None:
        if self.iterator is not None and self.unpublished is not None:
            self.iterator.append(self.unpublished)
            self.is_end_known = True
        self.unpublished = None

    @rule(page=st.sampled_from([1, 2, 3, PAGE]))
    @precondition(lambda self: self.iterator is None)
    def open(self, page: int) -> None:
        self.iterator = opened(self.replica, page=page)
        self.is_end_known = len(self.model) <= page

    @rule()
    @precondition(lambda self: self.iterator is not None)
    def take(self) -> None:
        assert self.iterator is not None
        is_peeked = self.iterator.peek()
        info = self.iterator.next()
        assert info == is_peeked
        if info is None:
            known = len(self.model) - (self.unpublished is not None)
            assert self.place >= known
        else:
            assert info == self.model[self.place]
            self.place += 1

    @rule(back=st.integers(0, 12))
    @precondition(lambda self: self.iterator is not None and self.place > 0)
    def rewind(self, back: int) -> None:
        assert self.iterator is not None
        self.place = max(0, self.place - 1 - back)
        self.iterator.rewind(self.model[self.place].position)

    @rule(ahead=st.integers(0, 12))
    @precondition(lambda self: self.iterator is not None and self.place < len(self.model))
    def skip_to(self, ahead: int) -> None:
        assert self.iterator is not None
        target = min(len(self.model) - 1, self.place + ahead)
        self.iterator.skip_to(self.model[target].position)
        self.place = max(self.place, target)

    @rule(index=st.integers(0, 4), offset=st.integers(0, 4))
    @precondition(lambda self: self.is_end_known and self.model and self.unpublished is None)
    def append_out_of_order(self, index: int, offset: int) -> None:
        assert self.iterator is not None
        last, asked = self.model[-1].position, at(index, offset)
        if asked < last or index > last.index + 1 or (index == last.index + 1 and offset):
            with pytest.raises(SegmentOrderError):
                self.iterator.append(seg(index, offset))

    @invariant()
    def news_is_never_hidden(self) -> None:
        if self.iterator is not None and self.place < len(self.model) - (self.unpublished is not None):
            assert self.iterator.wait(0)


TestIteratorMachine = IteratorMachine.TestCase
TestIteratorMachine.settings = settings(max_examples=examples(150), stateful_step_count=40)


@pytest.mark.parametrize("page", [1, 2, 3])
def test_every_order_of_pages_and_indexes_is_given_whole(page: int) -> None:
    for shape in range(1 << 7):
        replica = Replica(seg(0))
        iterator = opened(replica, page=page)
        everything = [(0, 0)]
        for bit in range(7):
            index, offset = everything[-1]
            everything.append((index + 1, 0) if shape >> bit & 1 else (index, offset + 1))
            write(replica, iterator, seg(*everything[-1]))
        assert drain(iterator) == everything
