"""A reader lists while a writer appends: every interleaving of their steps, and then real threads."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ClosedError
from litelog.objects.position import Position, generation
from litelog.reading.segment_feed import SegmentFeed
from litelog.reading.segment_iterator import SegmentIterator
from litelog.stores.replica_client import WalSegmentInfo
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litelog.objects.position import Generation

G = generation("0000000100000000")


def seg(index: int, offset: int = 0) -> WalSegmentInfo:
    return WalSegmentInfo(Position(G, index, offset), 100)


class Choices:
    """One path through a tree of choices; ``explore`` walks all of them, depth first.

    These are all interleavings: the iterator's one lock makes each step atomic, so the only choices are between steps.
    """

    def __init__(self, path: list[int]) -> None:
        self.path = path
        self.widths: list[int] = []

    def pick(self, width: int) -> int:
        depth = len(self.widths)
        self.widths.append(width)
        if depth == len(self.path):
            self.path.append(0)
        return self.path[depth]


def explore(run: Callable[[Choices], None]) -> int:
    """Run every path. Returns their number."""
    path: list[int] | None = []
    count = 0
    while path is not None:
        choices = Choices(path)
        run(choices)
        count += 1
        path = choices.path
        while path and path[-1] == choices.widths[len(path) - 1] - 1:
            path.pop()
        if path:
            path[-1] += 1
        else:
            path = None
    return count


class Writer:
    """Puts and publishes segments, a step at a time, at each point that the path chooses."""

    def __init__(self, choices: Choices, infos: list[WalSegmentInfo], backlog: int, feed: SegmentFeed) -> None:
        self.choices = choices
        self.stored = infos[:backlog]
        self.feed = feed
        self.steps = [step for info in infos[backlog:] for step in ((self._put, info), (feed.publish, info))]

    def _put(self, info: WalSegmentInfo) -> None:
        self.stored.append(info)

    def step(self) -> None:
        work, info = self.steps.pop(0)
        work(info)

    def go_on_maybe(self) -> None:
        while self.steps and self.choices.pick(2):
            self.step()

    def list_segments(self, _: Generation, since: Position | None) -> Iterator[WalSegmentInfo]:
        """List like a folder: each name that is added during the listing is in it or not, independent of others."""
        self.go_on_maybe()
        certain = list(self.stored)
        self.go_on_maybe()
        seen = [info for info in self.stored if info in certain or self.choices.pick(2)]
        self.go_on_maybe()
        yield from (info for info in seen if since is None or info.position >= since)


INFOS = [seg(0), seg(0, 1), seg(1), seg(1, 1), seg(2)]


@pytest.mark.slow
@pytest.mark.parametrize(("total", "backlog", "page"), [(3, 0, 1000), (4, 1, 1), (4, 1, 1000), (5, 3, 2)])
def test_no_interleaving_of_listing_and_appending_loses_or_doubles_one(total: int, backlog: int, page: int) -> None:
    """The reader sleeps until it is notified, so after a lost wake it lacks segments."""

    def run(choices: Choices) -> None:
        feed = SegmentFeed(G)
        writer = Writer(choices, INFOS[:total], backlog, feed)
        notified = threading.Event()
        writer.go_on_maybe()
        iterator = feed.subscribe(writer.list_segments, notified=notified, page=page)
        taken: list[WalSegmentInfo] = []
        while True:
            writer.go_on_maybe()
            if notified.is_set():
                notified.clear()
                writer.go_on_maybe()
                while (info := iterator.next()) is not None:
                    taken.append(info)
            elif writer.steps:
                writer.step()
            else:
                break
        assert taken == INFOS[:total], choices.path
        assert not iterator.wait(0)

    count = explore(run)
    assert count > 1000


@pytest.mark.slow
@pytest.mark.parametrize("page", [1, 1000])
def test_no_interleaving_of_rewinds_and_appends_loses_one(page: int) -> None:
    infos = [seg(0), seg(1), seg(1, 1)]

    def run(choices: Choices) -> None:
        feed = SegmentFeed(G)
        writer = Writer(choices, infos, 1, feed)
        iterator = feed.subscribe(writer.list_segments, page=page)
        place = rewinds = 0
        while place < len(infos):
            info = iterator.next()
            if info is None:
                writer.step()
                continue
            assert info == infos[place], choices.path
            place += 1
            writer.go_on_maybe()
            if rewinds < 2 and choices.pick(2):
                rewinds += 1
                place -= 1 + (choices.pick(2) if place > 1 else 0)
                iterator.rewind(infos[place].position)
        while writer.steps:
            writer.step()
        assert iterator.next() is None

    assert explore(run) > 5000


def run_together(*targets: Callable[[], None]) -> None:
    """Start all at one barrier, join all, raise the first failure."""
    barrier = threading.Barrier(len(targets))
    failures: list[BaseException] = []

    def body(target: Callable[[], None]) -> None:
        try:
            barrier.wait(WAIT_SECONDS)
            target()
        except BaseException as error:  # noqa: BLE001 (raised again below)
            failures.append(error)

    threads = [threading.Thread(target=body, args=(target,), daemon=True) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive(), "a wake was lost"
    if failures:
        raise failures[0]


class SharedReplica:
    """A folder that two threads share: one lists it, a name at a time, while the other adds names."""

    def __init__(self) -> None:
        self.stored: dict[WalSegmentInfo, None] = {}

    def list_segments(self, _: Generation, since: Position | None) -> Iterator[WalSegmentInfo]:
        return iter(sorted(info for info in list(self.stored) if since is None or info.position >= since))


def shape(seed: int, count: int) -> list[WalSegmentInfo]:
    """A random run of segments: indexes of different lengths."""
    draw = random.Random(seed)
    infos = [seg(0)]
    while len(infos) < count:
        last = infos[-1].position
        infos.append(seg(last.index + 1) if draw.random() < 0.2 else seg(last.index, last.offset + 1))
    return infos


@pytest.mark.slow
@pytest.mark.parametrize("page", [1, 7, 1000])
def test_readers_in_threads_get_all_while_a_writer_appends(page: int) -> None:
    for seed in range(20):
        infos, replica, feed = shape(seed, 150), SharedReplica(), SegmentFeed(G)
        results: list[list[WalSegmentInfo]] = [[], [], []]

        def write(
            infos: list[WalSegmentInfo] = infos, replica: SharedReplica = replica, feed: SegmentFeed = feed
        ) -> None:
            for info in infos:
                replica.stored[info] = None
                feed.publish(info)
            feed.close()

        def reader(
            result: list[WalSegmentInfo], replica: SharedReplica = replica, feed: SegmentFeed = feed
        ) -> Callable[[], None]:
            return lambda: result.extend(feed.subscribe(replica.list_segments, page=page))

        run_together(write, *(reader(result) for result in results))
        assert results == [infos] * 3


@pytest.mark.slow
def test_one_append_wakes_a_blocked_reader_every_time() -> None:
    """The writer waits for the reader each time, so that each single wake has to arrive."""
    replica, iterator = SharedReplica(), SegmentIterator(G, lambda *_: ())
    iterator.open()
    taken = threading.Semaphore(0)
    results: list[WalSegmentInfo] = []
    infos = shape(1, 1500)

    def write() -> None:
        for info in infos:
            replica.stored[info] = None
            iterator.append(info)
            assert taken.acquire(timeout=WAIT_SECONDS)
        iterator.finish()

    def read() -> None:
        for info in iterator:
            results.append(info)
            taken.release()

    run_together(write, read)
    assert results == infos


def test_an_event_shared_by_many_iterators_never_loses_a_wake() -> None:
    notified = threading.Event()
    count = 300
    iterators = [SegmentIterator(G, lambda *_: (), notified=notified).open() for _ in range(4)]
    taken = [0] * len(iterators)

    def writer(iterator: SegmentIterator) -> Callable[[], None]:
        return lambda: [iterator.append(seg(0, offset)) for offset in range(count)] and None

    def read() -> None:
        while sum(taken) < count * len(iterators):
            assert notified.wait(WAIT_SECONDS), "a wake was lost"
            notified.clear()
            for number, iterator in enumerate(iterators):
                while (info := iterator.next()) is not None:
                    assert info.position.offset == taken[number]
                    taken[number] += 1

    run_together(read, *(writer(iterator) for iterator in iterators))
    assert taken == [count] * len(iterators)


@pytest.mark.parametrize("end", ["close", "fail", "finish"])
def test_a_blocked_reader_is_woken_by_every_end(end: str) -> None:
    for _ in range(20):
        iterator = SegmentIterator(G, lambda *_: ())
        iterator.open()
        seen: list[str] = []

        def read(iterator: SegmentIterator = iterator, seen: list[str] = seen) -> None:
            assert iterator.wait(WAIT_SECONDS)
            try:
                iterator.next()
            except (ClosedError, OSError) as error:
                seen.append(type(error).__name__)

        def finish(iterator: SegmentIterator = iterator) -> None:
            while not iterator._changed._waiters:  # type: ignore[attr-defined]
                time.sleep(0)
            if end == "fail":
                iterator.fail(OSError("stop"))
            else:
                getattr(iterator, end)()

        run_together(read, finish)
        assert seen == ["OSError" if end == "fail" else "ClosedError"]


@pytest.mark.slow
def test_several_threads_share_one_iterator_and_each_segment_is_given_to_one() -> None:
    infos, replica, feed = shape(3, 600), SharedReplica(), SegmentFeed(G)
    iterator = feed.subscribe(replica.list_segments, page=3)
    shares: list[list[WalSegmentInfo]] = [[], [], []]

    def write() -> None:
        for info in infos:
            replica.stored[info] = None
            feed.publish(info)
        feed.close()

    def reader(share: list[WalSegmentInfo]) -> Callable[[], None]:
        return lambda: share.extend(iterator)

    run_together(write, *(reader(share) for share in shares))
    assert sorted(info for share in shares for info in share) == infos
    assert all(share == sorted(share) for share in shares)


@pytest.mark.slow
def test_a_consumer_that_hangs_in_its_listing_does_not_hold_up_the_producer() -> None:
    feed, release, entered = SegmentFeed(G), threading.Event(), threading.Event()
    replica = SharedReplica()

    def hanging(name: Generation, since: Position | None) -> Iterator[WalSegmentInfo]:
        entered.set()
        assert release.wait(WAIT_SECONDS)
        return replica.list_segments(name, since)

    results: list[WalSegmentInfo] = []

    def slow() -> None:
        results.extend(feed.subscribe(hanging))

    def write() -> None:
        assert entered.wait(WAIT_SECONDS)
        good = feed.subscribe(replica.list_segments)
        for info in infos:
            replica.stored[info] = None
            feed.publish(info)
            assert good.next() == info
        feed.close()
        release.set()

    infos = shape(5, 50)
    run_together(slow, write)
    assert results == infos
