"""Which generation is restored, from which objects and up to where."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litelog.errors import ConfigError, CorruptObjectError, ExitCode, NothingToRestoreError, ReplicaGapError
from litelog.objects.claim import Claim, Relation
from litelog.objects.layout import claim_key, snapshot_key, wal_key
from litelog.objects.position import Position, generation
from litelog.reading.contents import missing_piece
from litelog.reading.latest import GenerationRange, find_latest, latest
from litelog.reading.search import first_reaching
from litelog.restore.history_plan import Target, find_plan, plan_generation
from litelog.stores.replica_client import WalSegmentInfo
from tests.builders.replica_builder import FORMAT, SECOND, ReplicaBuilder, client_of, make_log, make_segment

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.restore.plan import RestorePlan
    from tests.builders.replica_builder import LogSegment

GENERATION = generation("0000000100000001")


def plan_of(builder: ReplicaBuilder, **bounds: object) -> RestorePlan:
    return find_plan(builder.client, Target(**bounds), FORMAT)


@pytest.fixture
def simple() -> ReplicaBuilder:
    """Sequences 0-5 and 6-11 in two log segments. Each commit of two records is one WAL segment."""
    builder = ReplicaBuilder()
    built = builder.add()
    for segment in make_log([[2, 2, 2], [2, 2, 2]]):
        built.ship_segment(segment, cuts=[0, 1])
    return builder


def test_without_bounds_everything_is_planned(simple: ReplicaBuilder) -> None:
    plan = plan_of(simple)
    log = make_log([[2, 2, 2], [2, 2, 2]])
    assert [file.name for file in plan.files] == [segment.name for segment in log]
    assert [file.size for file in plan.files] == [len(segment.data) for segment in log]
    assert plan.end == Position(plan.pieces[0].position.generation, 1, len(log[1].data))
    assert plan.size == sum(len(segment.data) for segment in log)
    assert len(plan.pieces) == 6


def test_a_plan_prints_for_people_and_programs(simple: ReplicaBuilder) -> None:
    plan = plan_of(simple)
    assert plan.claim.generation in str(plan)
    assert plan.files[0].name in str(plan)
    assert json.loads(json.dumps(plan.as_json()))["position"] == str(plan.end)


def test_planning_writes_nothing_and_asks_for_no_whole_object(simple: ReplicaBuilder) -> None:
    before = simple.objects()

    class Watched:
        def __init__(self, client: Any) -> None:
            self.client, self.whole = client, []

        def __getattr__(self, name: Any) -> Any:
            return getattr(self.client, name)

        def read_wal_segment(self, position: Any, start: Any = 0, length: Any = None) -> Any:
            if length is None:
                self.whole.append(position)
            return self.client.read_wal_segment(position, start, length)

    watched = Watched(simple.client)
    find_plan(watched, Target(), FORMAT)
    assert watched.whole == []
    find_plan(watched, Target(sequence=4), FORMAT)
    assert len(watched.whole) == 1
    assert simple.objects() == before


def test_index_includes_that_log_segment(simple: ReplicaBuilder) -> None:
    plan = plan_of(simple, index=0)
    assert [file.index for file in plan.files] == [0]
    assert {piece.position.index for piece in plan.pieces} == {0}


@pytest.mark.parametrize("index", [2, 99])
def test_an_index_that_is_not_there_names_those_that_are(simple: ReplicaBuilder, index: int) -> None:
    with pytest.raises(NothingToRestoreError, match="indexes 0 to 1") as caught:
        plan_of(simple, index=index)
    assert caught.value.exit_code is ExitCode.NOTHING_TO_RESTORE


def test_an_index_before_the_first_is_not_there() -> None:
    builder = ReplicaBuilder()
    builder.add(builder.claim(first=5)).ship_segment(make_log([[1]])[0])
    with pytest.raises(NothingToRestoreError, match="indexes 5 to 5"):
        plan_of(builder, index=4)


@pytest.mark.parametrize(("sequence", "commits"), [(1, 1), (2, 1), (3, 2), (5, 3), (6, 3), (7, 4), (11, 6)])
def test_sequence_cuts_before_the_first_commit_that_passes_it(
    simple: ReplicaBuilder, sequence: int, commits: int
) -> None:
    log = make_log([[2, 2, 2], [2, 2, 2]])
    expected = [(index, end) for index, segment in enumerate(log) for end in segment.ends][commits - 1]
    plan = plan_of(simple, sequence=sequence)
    assert (plan.end.index, plan.end.offset) == expected


def test_an_unreached_sequence_is_reported_with_the_end_of_the_replica(simple: ReplicaBuilder) -> None:
    with pytest.raises(NothingToRestoreError, match="up to sequence 11"):
        plan_of(simple, sequence=12)


def test_a_sequence_within_the_first_commit_is_answered_with_its_end(simple: ReplicaBuilder) -> None:
    inside = r"sequence 0 is inside the first commit, which holds .* 0 to 1;.* earliest possible end is 1"
    with pytest.raises(NothingToRestoreError, match=inside):
        plan_of(simple, sequence=0)


def test_a_sequence_within_the_first_sealed_commit_is_answered_with_its_end() -> None:
    for build in (lambda builder: builder.add().stand_for_sealed(make_segment(7, [3, 2])), _begin_sealed):
        builder = ReplicaBuilder()
        build(builder)
        with pytest.raises(NothingToRestoreError, match=r"8 is inside .* the sequences 7 to 9;"):
            plan_of(builder, sequence=8)
        with pytest.raises(NothingToRestoreError, match="nothing that early; it begins with sequence 7"):
            plan_of(builder, sequence=6)


def _begin_sealed(builder: ReplicaBuilder) -> None:
    newer = builder.add(builder.claim(first=1), start=False)
    newer.start([newer.seal_unshipped(0, make_segment(7, [3, 2]))])


@pytest.mark.parametrize(("second", "commits"), [(0, 1), (1.9, 1), (2, 2), (5.5, 3), (6, 4), (10, 6), (10_000, 6)])
def test_timestamp_cuts_before_the_first_later_commit(simple: ReplicaBuilder, second: float, commits: int) -> None:
    log = make_log([[2, 2, 2], [2, 2, 2]])
    expected = [(index, end) for index, segment in enumerate(log) for end in segment.ends][commits - 1]
    plan = plan_of(simple, timestamp=int(second * SECOND))
    assert (plan.end.index, plan.end.offset) == expected


def test_a_time_before_all_records_leaves_nothing(simple: ReplicaBuilder) -> None:
    with pytest.raises(NothingToRestoreError, match="nothing that early"):
        plan_of(simple, timestamp=-1)


def test_a_time_is_found_though_timestamps_jump_back() -> None:
    builder = ReplicaBuilder()
    segment = make_segment(0, [1, 1, 1, 1], stamps=[10, 500, 20, 30])
    builder.add().ship_segment(segment, cuts=[0, 1, 2])
    assert plan_of(builder, timestamp=100).end.offset == segment.ends[0]


def test_two_bounds_are_refused() -> None:
    with pytest.raises(ConfigError, match="sequence and timestamp"):
        Target(sequence=1, timestamp=1)


def test_an_empty_replica_has_nothing_to_restore() -> None:
    with pytest.raises(NothingToRestoreError, match="no replica there"):
        plan_of(ReplicaBuilder())


def test_a_claim_alone_has_nothing_to_restore() -> None:
    builder = ReplicaBuilder()
    builder.add(start=False)
    with pytest.raises(NothingToRestoreError, match="nothing of the log yet"):
        plan_of(builder)


def test_an_unknown_generation_names_those_there_are(simple: ReplicaBuilder) -> None:
    with pytest.raises(NothingToRestoreError, match=simple.generations[0].name):
        plan_of(simple, generation=generation("ffffffffffffffff"))


@pytest.mark.parametrize("removed", [0, 1, 2, 3])
def test_a_missing_piece_that_names_show_is_a_gap(simple: ReplicaBuilder, removed: int) -> None:
    objects = simple.objects()
    gone = simple.generations[0].positions
    index = {0: 0, 1: 0, 2: 0, 3: 3}[removed]
    del objects[wal_key(gone[index])]
    with pytest.raises(ReplicaGapError) as caught:
        find_plan(client_of(objects), Target(), FORMAT)
    assert caught.value.position == str(gone[index])


def test_a_listing_that_lags_for_a_moment_is_made_again(simple: ReplicaBuilder) -> None:
    class Behind:
        def __init__(self, client: Any) -> None:
            self.client, self.listings = client, 0

        def __getattr__(self, name: Any) -> Any:
            return getattr(self.client, name)

        def snapshots_and_wal_segments(self, name: Any, since: Any = 0) -> Any:
            self.listings += 1
            snapshot, *wal = self.client.snapshots_and_wal_segments(name, since)
            return iter([snapshot, *(wal[1:] if self.listings == 1 else wal)])

    client = Behind(simple.client)
    assert len(plan_generation(client, simple.generations[0].claim, Target(), FORMAT).pieces) == 6
    assert client.listings == 2


@pytest.mark.slow
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.data())
def test_any_missing_index_or_first_piece_is_named(counts: list[int], data: st.DataObject) -> None:
    start = Position(GENERATION, 3, 0)
    positions = [Position(GENERATION, 3 + index, 10 * at) for index, count in enumerate(counts) for at in range(count)]
    pieces = [WalSegmentInfo(position, 1) for position in positions]
    assert missing_piece(start, pieces) is None
    gone = data.draw(st.integers(3, 2 + len(counts)))
    left = [piece for piece in pieces if piece.position.index != gone]
    gap = missing_piece(start, left)
    if gone == 2 + len(counts):
        assert gap is None  # the newest: names cannot show it
    else:
        assert gap is not None
        assert gap.position == str(Position(GENERATION, gone, 0))


@given(st.lists(st.one_of(st.none(), st.integers(1, 3)), max_size=12), st.integers(0, 30))
def test_bisection_and_a_linear_walk_find_the_same_position(steps: list[int | None], sequence: int) -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    reached, headers = 0, []
    for step in steps:
        reached += step or 0
        headers.append(replace(built.header(b"", "x"), next=None if step is None else reached))
    walked = next((n for n, header in enumerate(headers) if (header.next or 0) > sequence), len(headers))
    positions = [Position(GENERATION, 0, number) for number in range(len(headers))]
    assert first_reaching(positions, lambda asked: [headers[at.offset] for at in asked], sequence) == walked


def _claim(epoch: int, relation: Relation = Relation.FIRST, *, shift: int = 0, first: int = 0) -> Claim:
    return Claim(
        "0" * 32, "litelog", "o", "h", f"{epoch:08x}00000001", first, relation, 0,
        None if relation is Relation.FIRST else f"{epoch - 1:08x}00000001", None, shift,
    )  # fmt: skip


def _chosen(*histories: tuple[Claim, tuple[int, int]]) -> int | None:
    by_generation = {claim.generation: claim for claim, _ in histories}
    ends = {claim.generation: end for claim, end in histories}

    def extent(claim: Claim) -> GenerationRange:
        name = claim.generation
        return GenerationRange(Position(name, claim.first, 0), Position(name, *ends[claim.generation]))

    found = latest(by_generation, extent)
    return None if found is None else found.epoch


def test_a_generation_that_has_not_reached_its_predecessors_end_waits() -> None:
    two = _claim(2, Relation.CONTINUES)
    assert _chosen((_claim(1), (3, 100)), (two, (3, 99))) == 1
    assert _chosen((_claim(1), (3, 100)), (two, (3, 100))) == 2
    assert _chosen((_claim(1), (3, 100)), (two, (4, 0))) == 2


def test_the_claims_mapping_of_indexes_counts() -> None:
    two = _claim(2, Relation.CONTINUES, shift=-2)
    assert _chosen((_claim(1), (3, 100)), (two, (1, 99))) == 1
    assert _chosen((_claim(1), (3, 100)), (two, (1, 100))) == 2


def test_a_diverged_generation_is_the_latest_as_soon_as_it_holds_anything() -> None:
    two = _claim(2, Relation.DIVERGED)
    assert _chosen((_claim(1), (3, 100)), (two, (0, 1))) == 2
    assert _chosen((_claim(1), (3, 100)), (two, (0, 0))) == 1


def test_continuing_a_predecessor_that_was_short_itself_is_not_enough() -> None:
    two, three = _claim(2, Relation.CONTINUES), _claim(3, Relation.CONTINUES)
    assert _chosen((_claim(1), (3, 100)), (two, (1, 0)), (three, (2, 0))) == 1
    assert _chosen((_claim(1), (3, 100)), (two, (1, 0)), (three, (3, 100))) == 3


def test_empty_generations_do_not_abort_the_look_up() -> None:
    builder = ReplicaBuilder()
    builder.add().ship_segment(make_log([[1, 1]])[0])
    builder.add(start=False)
    builder.add()
    assert find_latest(builder.client).epoch == 1


def test_a_predecessor_of_a_later_epoch_is_corrupt() -> None:
    two = replace(_claim(2, Relation.CONTINUES), predecessor=f"{9:08x}00000001")
    with pytest.raises(CorruptObjectError, match="predecessor"):
        _chosen((_claim(1), (0, 1)), (two, (0, 1)))


def test_a_continuing_replica_is_read_from_the_generation_that_holds_all() -> None:
    builder = ReplicaBuilder()
    segment = make_log([[1, 1, 1]])[0]
    builder.add().ship_segment(segment, upto=2, final=None)
    second = builder.add()
    second.ship(segment.data[: segment.ends[0]], segment.name)
    assert find_latest(builder.client).epoch == 1
    second.ship(segment.data[segment.ends[0] : segment.ends[1]], segment.name)
    assert find_latest(builder.client).epoch == 2


@pytest.fixture
def dropping() -> tuple[ReplicaBuilder, list[LogSegment]]:
    """Two generations, in which snapshots drop the oldest log segments. WAL segments of the first have covered ones."""
    builder = ReplicaBuilder()
    log = make_log([[1, 1]] * 8)
    first = builder.add()
    for segment in log[:3]:
        first.ship_segment(segment, cuts=[0])
    first.snapshot(2, first=1)
    entries = [first.entries[1], first.seal(2)]
    second = builder.add(builder.claim(first=3), start=False)
    second.start(entries, end=first.slot)
    for segment in log[3:6]:
        second.ship_segment(segment)
    return builder, log


def test_a_loss_after_the_index_that_is_restored_does_not_matter(
    dropping: tuple[ReplicaBuilder, list[LogSegment]],
) -> None:
    builder, log = dropping
    builder.client.delete_wal_segments([builder.generations[0].positions[4]])  # only index 0 is prepended, if it exists
    plan = plan_of(builder)
    assert [file.name for file in plan.files] == [segment.name for segment in log[1:6]]
    with pytest.raises(ReplicaGapError):
        plan_of(builder, generation=builder.generations[0].name)


def test_a_loss_before_what_a_generation_dropped_does_not_matter(
    dropping: tuple[ReplicaBuilder, list[LogSegment]],
) -> None:
    builder, log = dropping
    builder.generations[1].snapshot(6, first=5)
    builder.generations[1].ship_segment(log[6])
    builder.client.delete_wal_segments([builder.generations[0].positions[4]])
    plan = plan_of(builder)
    assert [file.name for file in plan.files] == [segment.name for segment in log[5:7]]


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_a_deleted_claim_is_missed(epoch: int) -> None:
    builder = ReplicaBuilder()
    for _ in range(3):
        builder.add().ship_segment(make_log([[1, 1]])[0])
    objects = builder.objects()
    del objects[claim_key(epoch)]
    with pytest.raises(ReplicaGapError) as caught:
        find_latest(client_of(objects))
    assert caught.value.position == claim_key(epoch)


def test_a_claim_that_only_a_terminal_remembers_is_missed() -> None:
    builder = ReplicaBuilder()
    builder.add().ship_segment(make_log([[1, 1]])[0])
    builder.add(start=False)
    objects = builder.objects()
    del objects[claim_key(2)]
    with pytest.raises(ReplicaGapError, match="terminal"):
        find_latest(client_of(objects))


@pytest.mark.slow
def test_a_missing_snapshot_is_named(simple: ReplicaBuilder, tmp_path: Path) -> None:
    from litelog.restore.execution import restore

    objects = simple.objects()
    key = snapshot_key(simple.generations[0].name, 0)
    del objects[key]
    client = client_of(objects)
    with pytest.raises(ReplicaGapError) as caught:
        restore(client, find_plan(client, Target(), FORMAT), str(tmp_path / "out"), log_format=FORMAT)
    assert caught.value.position == key
