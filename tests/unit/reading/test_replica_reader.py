"""ReplicaReader: where it starts, what it gives, and how it follows."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.errors import (
    CorruptionError,
    DivergedError,
    LitelogError,
    NothingToRestoreError,
    PrunedError,
    ReplicaGapError,
)
from litelog.formats.lines import LinesFormat
from litelog.formats.raw import RawFormat
from litelog.objects.claim import Relation
from litelog.objects.layout import Fencing, wal_key
from litelog.objects.position import new_generation
from litelog.reading.follower import POLLS_PER_LOOK
from litelog.reading.replica_reader import ReplicaReader
from litelog.stores.object_store import ObjectReplicaClient
from tests.builders.replica_builder import (
    SECOND,
    GenerationBuilder,
    ReplicaBuilder,
    client_of,
    make_log,
    make_segment,
    reader_of,
)
from tests.builders.stores import CountingStore
from tests.sampling import examples, sampled
from tests.waiting import WAIT_SECONDS, wait_until


def sequences(client: ObjectReplicaClient, **options: Any) -> list[int]:
    return [sequence for batch in reader_of(client, **options).batches() for sequence in batch.sequences.tolist()]


@pytest.fixture
def simple() -> ReplicaBuilder:
    builder = ReplicaBuilder()
    built = builder.add()
    for segment in make_log([[2, 3, 1], [4, 2]]):
        built.ship_segment(segment, cuts=[0, 1])
    return builder


def test_all_records_come_in_order(simple: ReplicaBuilder) -> None:
    assert sequences(simple.client) == list(range(12))
    values = [record.value for batch in reader_of(simple.client).batches() for record in batch.records()]
    assert values == [b"r%d" % number for number in range(12)]


@pytest.mark.parametrize("start", range(13))
def test_a_start_sequence_is_exact(simple: ReplicaBuilder, start: int) -> None:
    assert sequences(simple.client, start=start) == list(range(start, 12))


@pytest.mark.parametrize(("second", "first"), [(0, 0), (0.5, 2), (2, 2), (2.1, 5), (5, 5), (6, 6), (9, 10), (11, 12)])
def test_a_start_time_begins_with_the_first_record_of_then_or_later(
    simple: ReplicaBuilder, second: float, first: int
) -> None:
    assert sequences(simple.client, start_time=int(second * SECOND)) == list(range(first, 12))


@pytest.mark.slow
@given(shape=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=3), data=st.data())
@settings(max_examples=examples(50))
def test_any_start_in_any_pieces_gives_the_rest(shape: list[list[int]], data: st.DataObject) -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    log = make_log(shape)
    for segment in log:
        final = data.draw(st.sampled_from(["last", "empty"]))
        built.ship_segment(segment, data.draw(st.sets(st.integers(0, 3))), final=final)
    total = log[-1].next
    start = data.draw(st.integers(0, total + 1))
    assert sequences(builder.client, start=start) == list(range(start, total))


@pytest.mark.slow
@pytest.mark.parametrize("sealed", [True, False])
def test_raw_bytes_begin_and_end_anywhere(sealed: bool) -> None:
    builder = ReplicaBuilder(RawFormat())
    built = builder.add()
    for data, name, final in ((b"one", "a", False), (b"fifteen", "a", True), (b"two", "b", False)):
        built.ship(data, name, final=final)
    if sealed:
        built.snapshot(1)
    whole = b"onefifteentwo"
    for start in range(len(whole) + 2):
        for end in (None, start + 1, start + 3, len(whole)):
            reader = reader_of(builder.client, start=start, end=end, formats=lambda _: RawFormat())
            found = b"".join(record.value for batch in reader.batches() for record in batch.records())
            assert found == whole[start : len(whole) if end is None else end], (start, end)


@pytest.mark.slow
def test_a_start_costs_headers_and_not_the_whole_log() -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(make_segment(0, [1] * 200), cuts=range(200))
    store = CountingStore(builder.store)
    reader = reader_of(ObjectReplicaClient(store), start=150)
    next(reader.batches())
    assert store.requests["open"] <= 25


def test_a_missing_replica_says_so() -> None:
    with pytest.raises(NothingToRestoreError):
        sequences(ReplicaBuilder().client)


def test_a_replica_that_holds_nothing_yet_has_no_records() -> None:
    builder = ReplicaBuilder()
    builder.add()
    assert sequences(builder.client) == []


class Following:
    """A follower in a thread, and the sequences that it has given."""

    def __init__(self, client: ObjectReplicaClient, **options: Any) -> None:
        self.reader = reader_of(client, follow=True, **options)
        self.seen: list[int] = []
        self.error: LitelogError | None = None
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            for batch in self.reader.batches():
                with self._news:
                    self.seen += batch.sequences.tolist()
                    self._news.notify_all()
        except LitelogError as error:
            self.error = error
        with self._news:
            self._news.notify_all()

    def wait_for(self, count: int) -> list[int]:
        with self._news:
            assert self._news.wait_for(lambda: len(self.seen) >= count or self.error, WAIT_SECONDS)
        return self.seen

    def failure(self) -> LitelogError | None:
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()
        return self.error

    def end(self) -> None:
        self.reader.close()
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()


def test_a_follower_sees_records_that_are_shipped_later() -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    log = make_log([[1, 1], [2, 2]])
    following = Following(builder.client)
    try:
        built.ship_segment(log[0], cuts=[0])
        assert following.wait_for(2) == [0, 1]
        built.ship_segment(log[1], cuts=[0], final=None)
        assert following.wait_for(6) == list(range(6))
    finally:
        following.end()


@pytest.mark.parametrize("start", [11, 12, 13])
def test_a_follower_whose_end_is_there_already_does_not_wait(simple: ReplicaBuilder, start: int) -> None:
    following = Following(simple.client, start=start, end=12)
    try:
        assert following.failure() is None
    finally:
        following.end()
    assert following.seen == list(range(start, 12))


def test_a_follower_polls_one_name_and_lists_nothing(simple: ReplicaBuilder) -> None:
    store = CountingStore(simple.store)
    reader = reader_of(ObjectReplicaClient(store), follow=True)
    batches = reader.batches()
    for _ in range(5):
        next(batches)
    listed = store.requests["list"]
    polls = 0
    original = store.open

    def counted(key: Any, byte_range: Any = None) -> Any:
        nonlocal polls
        polls += 1
        if polls == POLLS_PER_LOOK - 1:
            reader.close()
        return original(key, byte_range)

    store.open = counted  # type: ignore[method-assign]
    assert list(batches) == []
    assert polls >= POLLS_PER_LOOK - 1
    assert store.requests["list"] == listed


@pytest.mark.slow
@pytest.mark.parametrize("way", ["close", "stop"])
def test_a_waiting_follower_is_woken(simple: ReplicaBuilder, way: str) -> None:
    stop = threading.Event()
    following = Following(simple.client, stop=stop if way == "stop" else None, poll_interval=3600.0)
    following.wait_for(12)
    stop.set() if way == "stop" else following.reader.close()
    assert following.failure() is None


def test_a_follower_continues_in_the_next_generation_at_the_same_place() -> None:
    builder = ReplicaBuilder()
    log = make_log([[1, 2], [2, 1, 1]])
    first = builder.add()
    first.ship_segment(log[0], final="last")
    first.ship_segment(log[1], upto=1, final=None)
    following = Following(builder.client)
    try:
        following.wait_for(5)
        second = builder.add()
        second.ship_segment(log[0], cuts=[0], final="empty")
        second.ship_segment(log[1], upto=2, final=None)  # one WAL segment across the place
        assert following.wait_for(6) == list(range(6))
        second.ship(log[1].data[log[1].ends[1] :], log[1].name)
        assert following.wait_for(7) == list(range(7))
    finally:
        following.end()
    assert following.error is None


@pytest.mark.parametrize("stands", [True, False])
def test_records_deleted_from_an_ended_generation_are_read_in_the_next_one(stands: bool) -> None:
    """The ended generation keeps its last WAL segment and its terminal. The reader ``stands`` in it, or comes to it."""
    builder = ReplicaBuilder()
    log = make_log([[1], [1, 1, 1], [1, 1]])
    passed = builder.add()
    passed.ship(log[0].data, log[0].name, final=True)
    passed.ship(log[1].data[: log[1].ends[0]], log[1].name)
    reader = reader_of(builder.client, follow=True, look_seconds=0.0, poll_interval=0.0)
    batches = reader.batches()
    read = [next(batches).sequences.tolist() for _ in range(2)]
    if stands:
        at = log[1].ends[0]
        for end in log[1].ends[1:]:
            passed.ship(log[1].data[at:end], log[1].name, final=end == log[1].ends[-1])
            at = end
        passed.ship(log[2].data[: log[2].ends[0]], log[2].name)
    else:
        passed = builder.add()
        for segment in log[:2]:
            passed.ship_segment(segment, cuts=[0])
        passed.ship_segment(log[2], upto=1, final=None)
    last = builder.add(builder.claim(first=2), start=False)
    last.start([last.seal_unshipped(number, segment) for number, segment in enumerate(log[:2])])
    last.ship_segment(log[2], final=None)
    builder.client.delete_wal_segments(passed.positions[:-2])
    builder.client.delete_snapshots([(passed.name, 0)])
    while sum(map(len, read)) < log[-1].next:
        read.append(next(batches).sequences.tolist())
    reader.close()
    assert [number for numbers in read for number in numbers] == list(range(log[-1].next))


@pytest.mark.slow
@given(
    shape=st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4), min_size=1, max_size=3),
    data=st.data(),
)
@settings(max_examples=examples(60))
def test_through_any_generations_every_record_comes_once(shape: Any, data: st.DataObject) -> None:
    """Each owner ships from the log's start up to a random point. The last one ships everything."""
    builder = ReplicaBuilder()
    log = make_log(shape)
    owners = data.draw(st.integers(1, 4))
    shift = 0
    for number in range(owners):
        step = data.draw(st.integers(0, 2)) if number else 0
        shift += step
        claim = builder.claim(shift=step, first=shift)
        built = builder.add(claim)
        whole = data.draw(st.integers(0, len(log) - 1)) if number < owners - 1 else len(log)
        for segment in log[:whole]:
            built.ship_segment(
                segment, data.draw(st.sets(st.integers(0, 3))), final=data.draw(st.sampled_from(["last", "empty"]))
            )
        if whole < len(log):
            built.ship_segment(log[whole], final=None, upto=data.draw(st.integers(0, len(shape[whole]))))
    first = builder.generations[0].name
    assert sequences(builder.client, generation=first) == list(range(log[-1].next))
    assert sequences(builder.client) == list(range(log[-1].next))


def test_a_diverged_generation_ends_a_reader_with_its_reason() -> None:
    builder = ReplicaBuilder()
    builder.add().ship_segment(make_log([[1, 1]])[0], final=None)
    first = builder.generations[0].name
    builder.add(builder.claim(Relation.DIVERGED)).ship_segment(make_segment(0, [1], tag=b"other"), final=None)
    with pytest.raises(DivergedError, match="rewound") as forked:
        sequences(builder.client, generation=first)
    said, advice = forked.value.lines
    assert said.startswith(f"{builder.client.url}: the log's history forks at "), said
    assert "a mirror: --on-fork new;" in advice
    assert f"litelog generations {builder.client.url} lists" in advice
    assert sequences(builder.client) == [0]


def test_a_reader_that_begins_again_in_its_generation_comes_to_the_fork() -> None:
    builder = ReplicaBuilder()
    builder.add().ship_segment(make_log([[1, 1]])[0], final=None)
    reader = reader_of(builder.client)
    read = [sequence for batch in reader.batches() for sequence in batch.sequences.tolist()]
    assert read == [0, 1]
    assert reader.position is not None
    builder.add(builder.claim(Relation.DIVERGED)).ship_segment(make_segment(0, [1], tag=b"other"), final=None)
    with pytest.raises(DivergedError, match="rewound"):
        sequences(builder.client, generation=reader.position.generation, start=2)
    assert sequences(builder.client, start=2) == []


def test_the_predecessor_is_read_until_the_successor_has_reached_its_end() -> None:
    builder = ReplicaBuilder()
    segment = make_segment(0, [1, 1, 1])
    builder.add().ship_segment(segment, final=None)
    second = builder.add()
    second.ship_segment(segment, upto=1, final=None)
    assert sequences(builder.client) == [0, 1, 2]


@pytest.mark.parametrize(
    ("log_format", "expected"),
    [(LinesFormat("*.log"), [b"one", b"two", b"three", b"four"]), (RawFormat("*.log"), None)],
)
def test_lines_and_raw_bytes_cross_generations_too(
    log_format: LinesFormat | RawFormat, expected: list[bytes] | None
) -> None:
    builder = ReplicaBuilder(log_format)
    builder.add().ship(b"one\ntwo\n", "a.log")
    builder.add().ship(b"one\ntwo\nthree\nfour\n", "a.log")
    first = builder.generations[0].name
    reader = ReplicaReader(builder.client, generation=first, formats=lambda _: log_format)
    values = [record.value for batch in reader.batches() for record in batch.records()]
    assert b"".join(values).replace(b"\n", b"") == b"onetwothreefour"
    if expected is not None:
        assert [value.rstrip(b"\n") for value in values] == expected


@pytest.mark.parametrize("gone", range(5))
def test_a_missing_object_is_a_gap_with_its_position(simple: ReplicaBuilder, gone: int) -> None:
    objects = simple.objects()
    positions = simple.generations[0].positions
    del objects[wal_key(positions[gone])]
    if gone == len(positions) - 1:
        assert sequences(client_of(objects)) == list(range(10))
        return
    with pytest.raises(ReplicaGapError) as caught:
        sequences(client_of(objects))
    assert caught.value.position == str(positions[gone])


def test_a_follower_that_retention_overtook_gets_an_error() -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(make_segment(0, [1, 1, 1]), cuts=[0, 1], final=None)
    following = Following(builder.client, look_seconds=0.0)
    following.wait_for(3)
    builder.client.delete_wal_segments(built.positions)
    assert isinstance(following.failure(), PrunedError)


def test_a_follower_misses_a_deleted_terminal() -> None:
    builder = ReplicaBuilder()
    segment = make_segment(0, [1, 1])
    builder.add().ship_segment(segment, final=None)
    following = Following(builder.client)
    following.wait_for(2)
    builder.add(close=False).ship_segment(segment, final=None)
    assert isinstance(following.failure(), ReplicaGapError)


@pytest.mark.slow
def test_every_damaged_byte_is_found_or_harmless() -> None:
    builder = ReplicaBuilder()
    builder.add().ship_segment(make_segment(0, [1, 2, 1]), cuts=[0, 1], final=None)
    objects = builder.objects()
    found = flipped = 0
    for key, body in objects.items():
        for at in sampled(range(len(body)), 12, f"read {key}"):
            flipped += 1
            damaged = {**objects, key: body[:at] + bytes([body[at] ^ 1 << at % 8]) + body[at + 1 :]}
            try:
                assert sequences(client_of(damaged)) == list(range(4)), (key, at)
            except CorruptionError:
                found += 1
    assert found > flipped // 2


def test_a_batch_before_the_damage_is_given() -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(make_segment(0, [1, 1]), cuts=[0], final=None)
    objects = builder.objects()
    objects[wal_key(built.positions[1])] = b"broken"
    batches = reader_of(client_of(objects)).batches()
    with pytest.raises(CorruptionError):
        list(batches)
    assert len(next(reader_of(builder.client).batches())) == 1


def isolated(builder: ReplicaBuilder, name: str | None = None, **options: Any) -> GenerationBuilder:
    """The next generation of an isolated owner. With a ``name``, it began at the same time as the first one."""
    claim = builder.claim(**options) if name is None else replace(builder.generations[0].claim, generation=name)
    return builder.add(replace(claim, owner=f"isolated{name}", fencing=Fencing.ISOLATED), close=False)


@pytest.mark.slow
def test_a_follower_leaves_an_isolated_generation_once_a_newer_one_holds_all_of_it() -> None:
    builder = ReplicaBuilder()
    segment = make_segment(0, [1, 1, 1])
    old = isolated(builder)
    old.ship_segment(segment, upto=2, final=None)
    store = CountingStore(builder.store)
    following = Following(ObjectReplicaClient(store))
    try:
        following.wait_for(2)
        new = isolated(builder)
        new.ship_segment(segment, upto=1, final=None)
        looks = store.requests["list"]
        wait_until(lambda: store.requests["list"] > looks + 20)
        assert following.reader.position.generation == old.name
        new.ship(segment.data[segment.ends[0] :], segment.name)
        assert following.wait_for(3) == [0, 1, 2]
        assert following.reader.position.generation == new.name
    finally:
        following.end()


@pytest.mark.slow
def test_a_follower_of_the_only_isolated_generation_lists_only_claims() -> None:
    builder = ReplicaBuilder()
    isolated(builder).ship_segment(make_segment(0, [1]), final=None)
    store = CountingStore(builder.store)
    following = Following(ObjectReplicaClient(store))
    try:
        following.wait_for(1)
        before = dict(store.requests)
        wait_until(lambda: store.requests["list"] >= before["list"] + 3)
    finally:
        following.end()
    polls = store.requests["open"] - before["open"]
    assert store.requests["list"] - before["list"] <= polls // POLLS_PER_LOOK + 1


@pytest.mark.parametrize("name", ["0000000100000000", "00000001ffffffff"])
def test_of_two_that_began_at_once_a_follower_of_the_lower_one_gets_an_error(name: str) -> None:
    builder = ReplicaBuilder()
    segment = make_segment(0, [1, 1])
    first = isolated(builder)
    first.ship_segment(segment, upto=1, final=None)
    following = Following(builder.client)
    following.wait_for(1)
    isolated(builder, name).ship_segment(segment, final=None)
    if name > first.name:
        assert isinstance(error := following.failure(), DivergedError)
        assert "two isolated owners wrote at the same time" in str(error)
    else:
        first.ship(segment.data[segment.ends[0] :], segment.name)
        assert following.wait_for(2) == [0, 1]
        following.end()


def test_a_reader_of_a_named_isolated_generation_stays_in_it() -> None:
    builder = ReplicaBuilder()
    segment = make_segment(0, [1, 1, 1])
    old = isolated(builder)
    old.ship_segment(segment, upto=1, final=None)
    new = isolated(builder)
    new.ship_segment(segment, final=None)
    assert sequences(builder.client) == sequences(builder.client, generation=new.name) == [0, 1, 2]
    assert sequences(builder.client, generation=old.name) == [0]
    following = Following(builder.client, generation=old.name)
    try:
        following.wait_for(1)
        old.ship(segment.data[segment.ends[0] : segment.ends[1]], segment.name)
        assert following.wait_for(2) == [0, 1]
    finally:
        following.end()


def test_a_diverged_isolated_successor_ends_a_follower() -> None:
    builder = ReplicaBuilder()
    isolated(builder).ship_segment(make_segment(0, [1]), final=None)
    following = Following(builder.client)
    following.wait_for(1)
    isolated(builder, relation=Relation.DIVERGED).ship_segment(make_segment(0, [2]), final=None)
    assert isinstance(error := following.failure(), DivergedError)
    assert "rewound" in str(error)


@pytest.mark.slow
def test_a_terminal_may_name_the_continuation_of_another_generation() -> None:
    builder = ReplicaBuilder()
    segment = make_segment(0, [1, 1])
    one = isolated(builder)
    one.ship_segment(segment, upto=1, final=None)
    two = isolated(builder, "00000001ffffffff")
    two.ship_segment(segment, upto=1, final=None)
    claim = replace(builder.claim(), generation=new_generation(2, 1))
    for ended in (one, two):
        ended.end(claim)
    builder.add(claim, close=False).ship_segment(segment, final=None)
    assert sequences(builder.client) == [0, 1]
    following = Following(builder.client, generation=two.name)
    try:
        assert following.wait_for(2) == [0, 1]
    finally:
        following.end()
    assert isinstance(Following(builder.client, generation=one.name).failure(), DivergedError)
