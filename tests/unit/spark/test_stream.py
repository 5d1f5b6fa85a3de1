"""Streams without Spark: their batches hold the right records, no matter how they are cut, restarted and repeated."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")

from litelog.errors import (
    ConfigError,
    DivergedError,
    PrunedError,
    ReplicaGapError,
    StoreError,
    TruncatedError,
    UnknownVersionError,
)
from litelog.formats.lines import LinesFormat
from litelog.objects.claim import Relation
from litelog.objects.layout import Fencing, wal_key
from litelog.reading.follower import LOOK_SECONDS, POLLS_PER_LOOK
from litelog.spark.scan.inputs import path_of
from litelog.spark.stream.batching import Budget
from litelog.spark.stream.options import DISCOVERY_SECONDS, parse_any_options, parse_stream_options
from litelog.spark.stream.steps import decode, encode
from litelog.spark.stream.tail import HEADERS_IN_A_ROW
from replica_clients.file import FileStore
from tests.builders.daemon_builder import Daemon
from tests.builders.log_builder import make_log as make_folder
from tests.builders.replica_builder import GenerationBuilder, LogSegment, ReplicaBuilder, make_log, make_segment
from tests.builders.spark_streaming import Query, live_builder

if TYPE_CHECKING:
    from pathlib import Path

SHAPE = [[3, 2], [4, 1, 2], [2, 2], [1, 1, 1, 1]]
COUNTS = [count for counts in SHAPE for count in counts]
RECORDS = sum(COUNTS)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _shipped(*, sealed: int = 0, shape: list[list[int]] = SHAPE) -> tuple[ReplicaBuilder, str, list[LogSegment]]:
    """A replica with a WAL segment for each commit; ``sealed`` log segments are sealed and pruned."""
    builder, url = live_builder()
    log = make_log(shape)
    generation = builder.add()
    for number, segment in enumerate(log):
        generation.ship_segment(segment, cuts=range(99), final=None if number == len(log) - 1 else "last")
    if sealed:
        generation.snapshot(sealed)
        generation.prune(sealed)
    return builder, url, log


def _ship_on(generation: GenerationBuilder, segment: LogSegment, commits: int, *, final: bool = False) -> None:
    """Ship a log segment up to a number of commits, each as one WAL segment, from the generation's next slot on."""
    ends = segment.ends[:commits]
    for end in ends:
        if end > generation.slot.offset:
            data = segment.data[generation.slot.offset : end]
            generation.ship(data, segment.name, final=final and end == ends[-1])


@pytest.mark.slow
@pytest.mark.parametrize("sealed", [0, 1, 3])
@pytest.mark.parametrize(
    "limits",
    [{}, {"maxFilesPerTrigger": 1}, {"maxBytesPerTrigger": 150}, {"maxFilesPerTrigger": 2, "numPartitions": 3}],
)
def test_every_record_comes_once_and_a_batch_that_is_made_again_is_the_same(
    sealed: int, limits: dict[str, object]
) -> None:
    builder, url, _ = _shipped(sealed=sealed)
    query = Query(url, **limits).run()
    assert query.sequences() == list(range(RECORDS))
    assert query.rows[0] == []  # it only records where the stream begins
    query.restart(forget=len(query.rows))
    if sealed < 3:
        builder.generations[0].snapshot(3)  # records that came from WAL segments come from sealed segments now
    builder.generations[0].prune(3)
    query.restart(forget=len(query.rows))
    assert not query.step()


@pytest.mark.slow
def test_a_batch_takes_no_more_than_its_limits_and_one_object_at_least() -> None:
    _, url, _ = _shipped()
    one = Query(url, maxBytesPerTrigger=1).run()
    assert [len(rows) for rows in one.rows] == [0, *COUNTS]
    two = Query(url, maxFilesPerTrigger=2).run()
    assert [len(rows) for rows in two.rows] == [0, 5, 5, 4, 3, 2, 1]
    both = Query(url, maxFilesPerTrigger=2, maxBytesPerTrigger=1).run()
    assert [len(rows) for rows in both.rows] == [0, *COUNTS]
    every = Query(url).run()
    assert [len(rows) for rows in every.rows] == [0, RECORDS]
    # Trigger.Once asks for a batch without a limit, whatever the options say.
    once = Query(url, maxFilesPerTrigger=1)
    once.step()
    assert once.follower.latest(json.loads(once.offsets[0]), Budget(None, None)) == json.loads(every.offsets[1])


@pytest.mark.slow
def test_it_follows_data_that_is_shipped_sealed_and_pruned_meanwhile() -> None:
    builder, url = live_builder()
    generation = builder.add()
    log = make_log(SHAPE)
    query = Query(url).run()
    assert query.rows == []
    for number, segment in enumerate(log):
        for commits in range(1, len(segment.ends) + 1):
            last = commits == len(segment.ends)
            _ship_on(generation, segment, commits, final=last)
            query.run()
            assert query.sequences() == list(range(segment.next - (0 if last else sum(SHAPE[number][commits:]))))
        generation.snapshot(number + 1)
        generation.prune(number + 1)
    assert len(query.rows) == len(COUNTS) + 1
    assert Query(url).run().sequences() == list(range(RECORDS))


def test_a_stream_continues_inside_a_log_segment_sealed_and_pruned_since() -> None:
    builder, url, log = _shipped(shape=[[3, 2, 4], [1, 1]])
    query = Query(url, maxFilesPerTrigger=1)
    for _ in range(2):
        query.step()
    assert query.sequences() == [0, 1, 2]
    generation = builder.generations[0]
    generation.seal(0, frame_commits=3)
    generation.snapshot(1)
    generation.prune(1)
    query.restart().run()
    assert query.sequences() == list(range(log[-1].next))


def test_a_log_segment_that_went_up_sealed_after_its_place_is_read() -> None:
    builder, url = live_builder()
    generation = builder.add()
    log = make_log([[3, 2], [2, 2], [1]])
    _ship_on(generation, log[0], 1)
    query = Query(url).run()
    assert query.sequences() == [0, 1, 2]
    _ship_on(generation, log[0], 2, final=True)
    generation.stand_for_sealed(log[1])
    _ship_on(generation, log[2], 1)
    assert query.run().sequences() == list(range(10))


@pytest.mark.slow
@pytest.mark.parametrize("sealed", [0, 2, 3])
def test_starts(sealed: int) -> None:
    builder, url, log = _shipped(sealed=sealed)
    starts: list[tuple[dict[str, str], int]] = [
        ({"startingSequence": "earliest"}, 0),
        ({"startingTimestamp": "earliest"}, 0),
    ]
    starts += [({"startingSequence": str(number)}, number) for number in (0, 4, 11, 16, RECORDS)]
    # A commit's records have the time of its first one.
    starts += [
        ({"startingTimestamp": datetime.fromtimestamp(number, UTC).isoformat()}, at)
        for number, at in ((3, 3), (4, 5), (17, 17))
    ]
    starts += [({"startingSequence": "latest"}, RECORDS), ({"startingTimestamp": "LATEST"}, RECORDS)]
    queries = []
    for options, first in starts:
        query = Query(url, maxFilesPerTrigger=2, **options).run()
        assert query.sequences() == list(range(first, RECORDS)), options
        assert len(query.offsets) >= 1
        queries.append((query, first))
    more = make_log([[1, 1, 1, 1, 2]], log[-1].next - 4)[0]
    builder.generations[0].ship(more.data[builder.generations[0].slot.offset :], more.name)
    for query, first in queries:
        assert query.restart(forget=len(query.offsets)).run().sequences() == list(range(first, RECORDS + 2))


def test_a_start_before_the_first_record_is_a_loss() -> None:
    builder, url, _ = _shipped()
    builder.generations[0].snapshot(3, first=1)
    builder.generations[0].prune(3)
    with pytest.raises(TruncatedError):
        Query(url, startingSequence="2").step()
    assert Query(url, startingSequence="2", failOnDataLoss="false").run().sequences() == list(range(5, RECORDS))
    assert Query(url).run().sequences() == list(range(5, RECORDS))


def test_a_log_that_has_not_begun_is_waited_for_and_read_from_its_first_record() -> None:
    builder, url = live_builder()
    query = Query(url, startingSequence="latest").run()
    assert (query.offsets, query.rows) == ([], [])
    generation = builder.add()
    generation.ship_segment(make_log([[2, 1]])[0], final=None)
    assert query.run().sequences() == [0, 1, 2]


@pytest.mark.parametrize("limits", [{}, {"maxFilesPerTrigger": 2}])
def test_available_now_ends_at_the_end_at_its_start(limits: dict[str, object]) -> None:
    builder, url, log = _shipped()
    query = Query(url, available_now=True, **limits)
    more = make_log([[1, 1, 1, 1, 2]], log[-1].next - 4)[0]
    generation = builder.generations[0]
    generation.ship(more.data[generation.slot.offset :], more.name, final=True)
    # Everything that existed is in a sealed segment now, followed by more.
    generation.snapshot(4)
    generation.prune(4)
    query.run()
    assert query.sequences() == list(range(RECORDS))
    assert query.restart().run().sequences() == list(range(RECORDS + 2))


def test_available_now_reads_through_generations() -> None:
    builder, url, _ = _shipped()
    log = make_log([[1, 1, 1, 1, 3]], RECORDS - 4)
    second = builder.add(builder.claim(shift=-3))
    second.ship_segment(log[0], final=None)
    query = Query(url, available_now=True, startingSequence="latest").run()
    assert query.sequences() == []
    assert Query(url, available_now=True).run().sequences() == list(range(RECORDS - 4, RECORDS + 3))


@pytest.mark.slow
def test_available_now_does_not_end_at_a_store_that_failed_for_a_moment() -> None:
    _, url, _ = _shipped()
    failures = [StoreError("open", "x", "timeout") for _ in range(4)]
    for steps in range(4):
        query = Query(url, available_now=True, maxFilesPerTrigger=2)
        for _ in range(steps):
            query.step()
        query.stores[0].failures += failures
        while query.step():
            pass
        assert query.sequences() == list(range(RECORDS))


def test_patterns_are_looked_up_as_often_as_the_option_says(tmp_path: Path) -> None:
    query = Query(str(tmp_path / "all" / "*"), discoveryInterval="5s")
    assert not query.step()
    _three(tmp_path)
    query.clock.advance(4)
    assert not query.step()
    query.clock.advance(1)
    assert _by_log(query.run()) == {"a": [0, 1, 2, 3], "b": [0, 1, 2, 3]}


def test_a_pattern_that_fits_nothing_is_looked_up_now_and_then(tmp_path: Path) -> None:
    query = Query(str(tmp_path / "all" / "*"))
    assert not query.step()
    _three(tmp_path)
    assert not query.step()
    query.clock.advance(DISCOVERY_SECONDS)
    assert _by_log(query.run()) == {"a": [0, 1, 2, 3], "b": [0, 1, 2, 3]}


@pytest.mark.slow
@pytest.mark.parametrize("cut", [0, 3, 4])
def test_a_stream_continues_in_a_successor_at_the_same_record(cut: int) -> None:
    """It may cut the bytes that its predecessor had shipped in any way."""
    builder, url, _ = _shipped()
    query = Query(url, maxFilesPerTrigger=3).run()
    grown = make_log([[1, 1, 1, 1, 1, 2]], RECORDS - 4)[0]
    second = builder.add(builder.claim(shift=-3))
    second.ship_segment(grown, cuts=[cut], final=None)
    query.run()
    assert query.sequences() == list(range(RECORDS + 3))
    changes = [
        (before, after)
        for before, after in zip(map(_places, query.offsets), map(_places, query.offsets[1:]), strict=False)
        if before[0] != after[0]
    ]
    assert [(before[1] - after[1], before[2] - after[2]) for before, after in changes] == [(3, 0)]
    query.restart(forget=len(query.rows))


def _places(text: str) -> tuple[str, int, int]:
    (log,) = json.loads(text)["logs"].values()
    return log["generation"], log["index"], log["offset"]


def test_a_new_owner_that_has_not_begun_is_waited_for() -> None:
    builder, url, _ = _shipped()
    query = Query(url).run()
    second = builder.add(builder.claim(shift=-3), start=False)
    query.run()
    query.reset_counts()
    query.run()
    assert query.counts["LIST"] == 0
    second.start()
    second.ship_segment(make_log([[1, 1, 1, 1, 2]], RECORDS - 4)[0], cuts=range(9), final=None)
    assert query.run().sequences() == list(range(RECORDS + 2))


@pytest.mark.slow
def test_a_stream_continues_in_a_successor_whose_predecessor_is_pruned() -> None:
    builder, url, log = _shipped()
    query = Query(url, maxFilesPerTrigger=3)
    for _ in range(3):
        query.step()
    assert query.sequences() == list(range(14))
    first = builder.generations[0]
    second = builder.add(builder.claim(first=3), start=False)
    second.start([second.seal_unshipped(number, segment) for number, segment in enumerate(log[:3])])
    second.ship_segment(log[3], final=None)
    builder.client.delete_wal_segments(first.positions[:-1])
    builder.client.delete_snapshots([(first.name, 0)])
    query.restart(forget=2)
    assert query.run().sequences() == list(range(RECORDS))


def _succeed(builder: ReplicaBuilder, log: list[LogSegment]) -> None:
    """The next owner's generation, whose snapshot names all log segments but the last one."""
    made = builder.add(builder.claim(first=len(log) - 1), start=False)
    made.start([made.seal_unshipped(number, segment) for number, segment in enumerate(log[:-1])])
    made.ship_segment(log[-1], final=None)


def _take_away(generation: GenerationBuilder) -> None:
    """Delete a generation as retention does, except for its last WAL segment and the terminal that ended it."""
    generation.client.delete_wal_segments(generation.positions[:-2])
    generation.client.delete_snapshots([(generation.name, 0)])


def test_a_step_from_one_isolated_generation_to_the_next_is_made_again() -> None:
    """No terminal leads to the next generation."""
    builder, url = live_builder()
    log = make_log([[1, 1, 1]])[0]
    for number in range(3):
        claim = replace(builder.claim(), fencing=Fencing.ISOLATED)
        builder.add(claim, close=False).ship_segment(log, upto=number + 1, final=None)
        if not number:
            query = Query(url).run()
            continue
        for _ in range(2 * POLLS_PER_LOOK):
            query.clock.advance(2)
            if (end := query.next_offset()) is not None:
                break
        assert end is not None
        query.offsets.append(end)  # it is killed before it reads
        query.start()
        query.rows.append(query.read(len(query.offsets) - 1))
        assert query.run().sequences() == list(range(number + 1))


@pytest.mark.slow
def test_a_stream_skips_a_generation_that_retention_pruned_to_its_last_wal_segment() -> None:
    builder, url, log = _shipped()
    first, lossy = Query(url, maxFilesPerTrigger=3), Query(url, maxFilesPerTrigger=3, failOnDataLoss="false")
    for query in (first, lossy):
        for _ in range(3):
            query.step()
    _succeed(builder, log)
    _succeed(builder, log)
    for generation in builder.generations[:2]:  # the stream is in the first, and only passes the second
        _take_away(generation)
    for query in (first, lossy):
        query.restart(forget=1)
        assert query.run().sequences() == list(range(RECORDS))


@pytest.mark.parametrize("lossy", ["false", "true"])
def test_a_name_that_was_listed_and_is_gone_is_looked_up_again(lossy: str) -> None:
    builder, url, log = _shipped()
    query = Query(url, failOnDataLoss=lossy, maxFilesPerTrigger=1)
    for _ in range(3):
        query.step()
    _succeed(builder, log)
    _take_away(builder.generations[0])
    assert query.run().sequences() == list(range(RECORDS))


@pytest.mark.parametrize("lossy", ["false", "true"])
def test_steps_known_for_half_the_grace_are_looked_up_again(lossy: str) -> None:
    """The objects of a step may be deleted before a task reads them, since retention may delete their generation."""
    builder, url = live_builder()
    log = make_log([[1], [1, 1, 1, 1, 1]])
    generation = builder.add()
    generation.ship_segment(log[0])
    query = Query(url, failOnDataLoss=lossy, maxFilesPerTrigger=1).run()
    _ship_on(generation, log[1], 5)
    query.clock.advance(2)
    query.step()  # its headers are read, and one is taken
    assert query.sequences() == [0, 1]
    _succeed(builder, log)
    _take_away(generation)
    query.clock.advance(LOOK_SECONDS)
    assert query.run().sequences() == list(range(6))


def test_lines_continue_at_their_place_as_their_numbers_begin_again() -> None:
    builder, url = live_builder(LinesFormat("app.*"))
    first = builder.add()
    first.ship(b"a\nb\n", "app.0", final=True)
    first.ship(b"c\nd\n", "app.1")
    query = Query(url).run()
    second = builder.add(builder.claim(shift=-1))  # the source dropped app.0
    second.ship(b"c\nd\ne\n", "app.1")
    second.ship(b"f\n", "app.1")
    assert query.run().values() == [b"a", b"b", b"c", b"d", b"e", b"f"]


@pytest.mark.slow
def test_a_history_that_forks_is_a_loss() -> None:
    builder, url, _ = _shipped()
    query = Query(url).run()
    lossy = Query(url, failOnDataLoss="false").run()
    other = make_log([[3, 2], [4, 1, 2], [2, 2], [1, 1], [5, 5]])
    second = builder.add(builder.claim(Relation.DIVERGED))
    for segment in other:
        second.ship_segment(segment, final=None if segment is other[-1] else "last")
    with pytest.raises(DivergedError, match="rewound"):
        query.run()
    # The last record that it had delivered has another time now.
    assert lossy.run().sequences() == [*range(RECORDS), *range(RECORDS - 1, other[-1].next)]


def test_a_checkpoint_that_retention_overtook_is_a_loss() -> None:
    builder, url, _ = _shipped()
    queries = [Query(url, maxFilesPerTrigger=1, failOnDataLoss=word) for word in ("true", "false")]
    for query in queries:
        for _ in range(2):
            query.step()
        assert query.sequences() == [0, 1, 2]
    generation = builder.generations[0]
    generation.snapshot(3, first=2)
    generation.prune(3)
    builder.client.delete_sealed_segments([(generation.name, number) for number in (0, 1)])
    at = json.loads(queries[0].offsets[-1])["logs"].popitem()[1]["offset"]
    with pytest.raises(PrunedError, match=f"{generation.name}/{0:016x}/{at:016x}"):
        queries[0].restart().run()
    assert queries[1].restart().run().sequences() == [0, 1, 2, *range(12, RECORDS)]


@pytest.mark.slow
def test_it_stops_at_the_first_gap_and_then_says_it() -> None:
    builder, url, _ = _shipped()
    generation = builder.generations[0]
    gone = generation.positions[3]
    builder.client.delete_wal_segments([gone])
    for number in range(2):
        query = Query(url, maxFilesPerTrigger=1 + number * 2, failOnDataLoss="true")
        with pytest.raises(ReplicaGapError, match=str(gone)):
            query.run()
        lossy = Query(url, maxFilesPerTrigger=1 + number * 2, failOnDataLoss="false").run()
        assert lossy.sequences() == [*range(9), *range(10, RECORDS)]
        lossy.restart(forget=len(lossy.rows))


@pytest.mark.slow
def test_a_hole_at_which_a_stream_stands_is_a_loss_up_to_the_next_object() -> None:
    builder, url, _ = _shipped()
    strict, lossy = Query(url).run(), Query(url, failOnDataLoss="false").run()
    generation = builder.generations[0]
    _ship_on(generation, make_log([[1] * 7], RECORDS - 4)[0], 7)
    gone = generation.positions[-3]
    builder.client.delete_wal_segments([gone])
    for query in (strict, lossy):
        query.clock.advance(2)
        assert not query.step()
        query.clock.advance(LOOK_SECONDS)
    with pytest.raises(ReplicaGapError, match=str(gone)):
        strict.run()
    assert lossy.run().sequences() == [*range(RECORDS), RECORDS + 1, RECORDS + 2]
    lossy.restart(forget=len(lossy.rows))


@pytest.mark.slow
def test_a_position_removed_by_retention_is_a_loss_up_to_the_remaining_records() -> None:
    builder, url, _ = _shipped()
    strict, lossy = Query(url).run(), Query(url, failOnDataLoss="false").run()
    generation = builder.generations[0]
    grown = make_log([[1] * 6, [2], [1]], RECORDS - 4)
    _ship_on(generation, grown[0], 6, final=True)
    generation.ship_segment(grown[1])
    generation.ship_segment(grown[2], final=None)
    generation.snapshot(5, first=4)
    generation.prune(5)
    for query in (strict, lossy):
        query.clock.advance(LOOK_SECONDS)
    with pytest.raises(PrunedError):
        strict.run()
    assert lossy.run().sequences() == [*range(RECORDS), *range(RECORDS + 2, RECORDS + 5)]


def _poll_until_a_look(query: Query) -> None:
    for _ in range(2 * POLLS_PER_LOOK):
        query.clock.advance(2)
        query.step()


@pytest.mark.slow
def test_a_stream_loses_a_missing_terminal_and_continues_in_the_next_generation() -> None:
    builder, url, _ = _shipped()
    strict, lossy = Query(url).run(), Query(url, failOnDataLoss="false").run()
    second = builder.add(builder.claim(shift=-3), close=False)
    second.ship_segment(make_log([[1, 1, 1, 1, 2]], RECORDS - 4)[0], final=None)
    with pytest.raises(ReplicaGapError, match=second.claim.key):
        _poll_until_a_look(strict)
    _poll_until_a_look(lossy)
    assert lossy.sequences() == list(range(RECORDS + 2))


@pytest.mark.slow
def test_data_after_a_gap_at_the_end_waits_for_the_missing_object() -> None:
    """A store may list an object before an older one. At the end the stream does not list, so it skips nothing."""
    builder, url, _ = _shipped()
    generation = builder.generations[0]
    key = wal_key(generation.positions[-2])
    body = builder.store.open(key).read()
    query = Query(url, maxFilesPerTrigger=1)
    while len(query.sequences()) < RECORDS - 2:
        query.step()
    query.restart(forget=1)
    builder.store.delete([key])
    fresh = Query(url, maxFilesPerTrigger=100)
    with pytest.raises(ReplicaGapError):
        fresh.run()
    builder.store.put(key, [body])
    assert query.run().sequences() == list(range(RECORDS))


def test_a_checkpoint_cannot_be_in_another_replica() -> None:
    _, url, _ = _shipped()
    query = Query(url).run()
    query.offsets[-1] = query.offsets[-1].replace("00000001000000a1", "00000001000000a2")
    with pytest.raises(ConfigError, match="another replica"):
        query.restart().step()


@pytest.mark.slow
def test_a_quiet_log_costs_a_get_for_each_poll_and_no_listing() -> None:
    _, url, _ = _shipped()
    query = Query(url, pollInterval="1s").run()
    query.clock.advance(10)
    query.step()
    query.reset_counts()
    for _ in range(100 * 100):  # 100 seconds, with a call every 10 ms
        query.clock.advance(0.01)
        assert not query.step()
        assert decode(query.follower.report() or {}) == decode(json.loads(query.offsets[-1]))
    looks = 100 // POLLS_PER_LOOK + 1
    assert 90 <= query.counts["GET"] <= 100 + looks
    assert query.counts["LIST"] == 0


@pytest.mark.slow
def test_polls_are_closer_where_news_was_and_reach_the_interval() -> None:
    builder, url, log = _shipped()
    query = Query(url, pollInterval="5s").run()
    query.clock.advance(10)
    query.step()
    generation = builder.generations[0]
    end = log[-1]
    grown = make_log([[1] * 60], RECORDS - 4)[0]
    assert end.data == grown.data[: len(end.data)]
    for commits in range(5, 8):  # one a second
        _ship_on(generation, grown, commits)
        waited = 0.0
        query.reset_counts()
        while not query.step():
            query.clock.advance(0.01)
            waited += 0.01
        assert waited <= (5.1 if commits == 5 else 0.3)
        query.clock.advance(max(0.0, 1 - waited))
    assert query.counts["LIST"] == 0


@pytest.mark.slow
def test_a_stream_with_a_large_lag_lists_instead_of_probing_each_key() -> None:
    builder, url, _ = _shipped()
    query = Query(url).run()
    grown = make_log([[1] * 300], RECORDS - 4)[0]
    _ship_on(builder.generations[0], grown, 300)
    query.reset_counts()
    query.clock.advance(2)
    query.step()
    assert query.sequences() == list(range(RECORDS + 296))
    assert query.counts["LIST"] == 1
    assert query.counts["GET"] <= HEADERS_IN_A_ROW + 3


def test_now_and_then_it_makes_sure_that_it_stands_at_the_end() -> None:
    """A machine that slept longer than the grace finds its next name deleted, and reads the objects that replace it."""
    builder, url, _log = _shipped()
    query = Query(url).run()
    generation = builder.generations[0]
    grown = make_log([[1] * 6, [2]], RECORDS - 4)
    _ship_on(generation, grown[0], 6, final=True)
    _ship_on(generation, grown[1], 1)
    generation.snapshot(4)
    generation.prune(4)
    query.clock.advance(2)
    assert not query.step()
    query.clock.advance(LOOK_SECONDS)
    assert query.run().sequences() == list(range(grown[1].next))


def test_a_store_that_fails_is_asked_again_and_ends_no_query() -> None:
    builder, url, _ = _shipped()
    query = Query(url)
    query.step()
    failure = StoreError("open", "x", "timeout")
    query.stores[0].failures += [failure] * 2  # as often as these tests try a request
    assert not query.step()
    query.clock.advance(5)
    query.run()
    assert query.sequences() == list(range(RECORDS))
    assert not query.stores[0].failures
    query.stores[0].failures += [StoreError("open", "x", "access denied", retryable=False)]
    query.clock.advance(5)
    with pytest.raises(StoreError, match="access denied"):
        query.step()
    assert builder


def _three(folder: Path) -> list[Daemon]:
    daemons = []
    for name in ("a", "b"):
        log = make_folder(folder / f"log-{name}")
        log.roll(4)
        daemon = Daemon(log, FileStore(str(folder / "all" / name)), str(folder / f"state-{name}"))
        _sync(daemon)
        daemons.append(daemon)
    return daemons


def _sync(daemon: Daemon) -> None:
    while daemon.sync():
        pass


def _by_log(query: Query) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in query.all_rows():
        found.setdefault(row["log"].rpartition("/")[2], []).append(row["sequence"])
    return found


@pytest.mark.slow
def test_several_logs_have_an_offset_each_and_new_ones_begin_at_their_first_record(tmp_path: Path) -> None:
    daemons = _three(tmp_path)
    query = Query(str(tmp_path / "all" / "*"), startingSequence="2").run()
    assert _by_log(query) == {"a": [2, 3], "b": [2, 3]}
    log = make_folder(tmp_path / "log-c")
    log.roll(5)
    third = Daemon(log, FileStore(str(tmp_path / "all" / "c")), str(tmp_path / "state-c"))
    _sync(third)
    daemons[0].log.append(2)
    _sync(daemons[0])
    query.run()
    assert _by_log(query) == {"a": [2, 3, 4, 5], "b": [2, 3]}
    query.clock.advance(DISCOVERY_SECONDS)
    query.run()
    assert _by_log(query) == {"a": [2, 3, 4, 5], "b": [2, 3], "c": [0, 1, 2, 3, 4]}
    query.restart(forget=len(query.rows))
    assert [name.rpartition("/")[2] for name in json.loads(query.offsets[-1])["logs"]] == ["a", "b", "c"]
    for daemon in (*daemons, third):
        daemon.close()


def test_a_log_of_a_stream_keeps_its_name_when_others_come(tmp_path: Path) -> None:
    """Offsets have the same name."""
    daemons = []
    for name in ("t1", "t2"):
        log = make_folder(tmp_path / f"log-{name}")
        log.roll(3)
        daemons.append(Daemon(log, FileStore(str(tmp_path / "n" / name / "ev")), str(tmp_path / f"state-{name}")))
    _sync(daemons[0])
    query = Query(str(tmp_path / "n" / "*" / "ev")).run()
    _sync(daemons[1])
    daemons[0].log.append(2)
    _sync(daemons[0])
    query.restart().run()
    names = [f"{str(tmp_path)[1:]}/n/{name}/ev" for name in ("t1", "t2")]
    assert sorted((row["log"], row["sequence"]) for row in query.all_rows()) == [
        *((names[0], number) for number in range(5)),
        *((names[1], number) for number in range(3)),
    ]
    assert sorted(json.loads(query.offsets[-1])["logs"]) == names
    for daemon in daemons:
        daemon.close()


@pytest.mark.slow
def test_a_limit_is_shared_by_all_logs(tmp_path: Path) -> None:
    daemons = _three(tmp_path)
    for daemon in daemons:
        for _ in range(5):
            daemon.log.append(1)
            _sync(daemon)
    query = Query(str(tmp_path / "all" / "*"), maxFilesPerTrigger=2).run()
    assert [len({row["log"] for row in rows}) for rows in query.rows[1:]] == [2] * 6
    assert _by_log(query) == {"a": list(range(9)), "b": list(range(9))}
    for daemon in daemons:
        daemon.close()


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["maxFilesPerTrigger", "maxBytesPerTrigger"])
def test_a_log_with_much_ahead_has_its_turn_next_to_busy_ones(limit: str) -> None:
    """A batch does not have room for all logs."""
    (full, waiting), (busy, url) = live_builder(), live_builder()
    log = make_segment(0, [1] * 30)
    full.add().ship_segment(log, range(30), final=None)
    busy.add()
    query = Query(url, paths=json.dumps([waiting]), **{limit: 1})
    for start, end in pairwise([0, *log.ends]):
        busy.generations[0].ship(log.data[start:end], log.name)
        query.clock.advance(2.0)
        query.step()
    found = [row["log"] for row in query.all_rows()]
    assert found.count(waiting.partition("://")[2]) >= 14
    assert sorted(query.run().sequences()) == sorted([*range(30)] * 2)


def test_a_log_of_the_checkpoint_that_is_not_there_is_a_loss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    daemons = _three(tmp_path)
    query = Query(str(tmp_path / "all" / "*")).run()
    lost = Query(str(tmp_path / "all" / "a"), includeMetadata="true")
    lost.offsets = query.offsets
    with pytest.raises(ReplicaGapError):
        lost.step()
    lossy = Query(str(tmp_path / "all" / "a"), includeMetadata="true", failOnDataLoss="false")
    lossy.offsets, lossy.rows = list(query.offsets), list(query.rows)
    daemons[0].log.append(1)
    _sync(daemons[0])
    assert _by_log(lossy.run()) == {"a": [0, 1, 2, 3, 4], "b": [0, 1, 2, 3]}
    assert sum("missing from the replica" in record.message for record in caplog.records) == 1
    assert len(json.loads(lossy.offsets[-1])["logs"]) == 2
    for daemon in daemons:
        daemon.close()


def test_offsets_are_versioned_and_always_the_same_text() -> None:
    text = (
        '{"version": 1, "logs": {"a": {"generation": "00000001000000a1", "index": 2, "offset": 3, "sequence": null}, '
        '"b": {"generation": "00000001000000a1", "index": 18446744073709551615, "offset": 0, "sequence": 7}}}'
    )
    offsets = decode(json.loads(text))
    assert json.dumps(encode(dict(reversed(offsets.items())))) == text
    with pytest.raises(UnknownVersionError, match="version of its offsets is 2, expected 1"):
        decode({**json.loads(text), "version": 2})
    for changed in ({"version": "1"}, {"version": True}, {"logs": []}, {}):
        with pytest.raises(ConfigError, match="checkpoint"):
            decode({"version": 1, "logs": {}, **changed} if changed else {})
    for name, value in (("index", -1), ("offset", 1 << 64), ("sequence", "1"), ("generation", "x"), ("index", True)):
        broken = json.loads(text)
        broken["logs"]["a"][name] = value
        with pytest.raises(ConfigError, match="checkpoint"):
            decode(broken)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingSequence": "3"}, "endingSequence: a stream has no end"),
        ({"endingTimestamp": "2026-11-21"}, "endingTimestamp"),
        ({"generation": "00000001000000a1"}, "generation"),
        ({"startingSequence": "1", "startingTimestamp": "latest"}, "both"),
        ({"startingSequence": "newest"}, "startingSequence"),
        ({"maxFilesPerTrigger": "0"}, "maxFilesPerTrigger"),
        ({"maxBytesPerTrigger": "much"}, "maxBytesPerTrigger"),
        ({"pollInterval": "soon"}, "pollInterval"),
        ({"pollInterval": "1ms"}, "from 10ms to 5m"),
        ({"maxFilePerTrigger": "1"}, "did you mean maxFilesPerTrigger"),
        ({"format": "lines"}, "local folders"),
    ],
)
def test_options_that_fit_no_stream_are_refused_by_name(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_stream_options({"path": "memory://x", **{name.lower(): value for name, value in options.items()}})


@pytest.mark.parametrize("name", ["maxFilesPerTrigger", "maxBytesPerTrigger", "pollInterval"])
def test_a_value_that_no_stream_takes_is_refused_before_it_is_known_to_be_one(name: str) -> None:
    """load() raises the error, since Spark hides errors of start() under its own."""
    with pytest.raises(ConfigError, match=name):
        parse_any_options({"path": "memory://x", name: "much"})
    parse_any_options({"path": "memory://x", "maxFilesPerTrigger": "3", "pollInterval": "2s"})


def test_the_folder_of_a_log_is_not_a_replica(tmp_path: Path) -> None:
    make_folder(tmp_path / "log").roll(1)
    with pytest.raises(ConfigError, match="not a replica"):
        Query(str(tmp_path / "log")).step()


@pytest.mark.slow
def test_no_secret_is_in_the_name_that_an_offset_has_of_a_log() -> None:
    urls = ["s3://canary:canary@bucket/logs/a?session-token=canary#canary", "file:///logs/a", "s3://bucket/logs/a"]
    assert [path_of(url) for url in urls] == ["***@bucket/logs/a", "logs/a", "bucket/logs/a"]
