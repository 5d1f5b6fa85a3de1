"""A generation that was closed before its first snapshot never began. Readers skip it, and followers wait."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from litelog.errors import DivergedError, NothingToRestoreError
from litelog.objects.claim import Relation
from litelog.objects.layout import claim_key, snapshot_key, wal_key
from litelog.objects.position import generation
from litelog.reading.contents import list_pieces
from litelog.reading.generations import find_tip
from litelog.reading.latest import find_extent, find_latest, open_latest
from litelog.reading.replica_reader import ReplicaReader
from litelog.reading.successors import find_begun, find_shift, find_successor
from litelog.restore.execution import restore
from litelog.restore.follow import CopyFollower
from litelog.restore.history_plan import Target, find_plan
from litelog.shipping.claiming import close_below
from litelog.stores.object_store import ObjectReplicaClient
from litelog.verify.execution import verify
from tests.builders.manual_clock import ManualClock
from tests.builders.replica_builder import FORMAT, GenerationBuilder, ReplicaBuilder, make_log
from tests.builders.stores import CountingStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from litelog.objects.claim import Claim
    from litelog.stores.object_store import ByteRange, ObjectInfo

LOG = make_log([[2, 1], [1, 2], [2, 2]])
KINDS = pytest.mark.parametrize("kind", ["abandoned", "late", "late and sealed"])
RELATIONS = pytest.mark.parametrize("relation", [Relation.CONTINUES, Relation.DIVERGED])


@dataclass
class Lineage:
    """``old`` holds the log up to a commit of its second log segment; ``unbegun`` was claimed after it and closed."""

    builder: ReplicaBuilder
    old: GenerationBuilder
    unbegun: GenerationBuilder | None = None
    new: GenerationBuilder | None = None

    def claim(self, relation: Relation = Relation.CONTINUES, first: int = 0) -> Claim:
        """The next epoch's claim, which follows ``old``."""
        claim = self.builder.claim(relation, first=first)
        return replace(claim, predecessor=self.old.claim.generation, predecessor_end=self.old.slot)

    def pause(self, relation: Relation, kind: str = "abandoned") -> Lineage:
        """Claim a generation, close ``old`` for it, and pause its owner."""
        self.unbegun = self.builder.add(self.claim(relation, first=1 if kind == "late and sealed" else 0), start=False)
        return self

    def take_over(self) -> Lineage:
        """Another owner claims, and closes all generations below."""
        self.new = self.builder.add(self.claim(), start=False)
        return self

    def put_late(self, kind: str) -> Lineage:
        """The paused owner continues with its first snapshot."""
        assert self.unbegun is not None
        if kind == "late and sealed":
            self.unbegun.start([self.unbegun.seal_unshipped(0, LOG[0])])
        elif kind == "late":
            self.unbegun.start()
        return self

    def begin(self) -> Lineage:
        """The new owner begins, and ships the whole log."""
        assert self.new is not None
        self.new.start()
        for segment in LOG[:2]:
            self.new.ship_segment(segment, cuts=[0])
        self.new.ship_segment(LOG[2], final=None)
        return self


@pytest.fixture
def lineage() -> Lineage:
    return build(ReplicaBuilder())


def build(builder: ReplicaBuilder) -> Lineage:
    old = builder.add()
    old.ship_segment(LOG[0], cuts=[0])
    old.ship_segment(LOG[1], upto=1, final=None)
    return Lineage(builder, old)


def files(*counts: int) -> dict[str, bytes]:
    """The log's files, cut after a number of commits each."""
    return {segment.name: segment.data[: segment.ends[count - 1]] for segment, count in zip(LOG, counts, strict=False)}


def restored(lineage: Lineage, target: Path, name: str | None = None) -> dict[str, bytes]:
    plan = find_plan(lineage.builder.client, Target(generation(name) if name else None), FORMAT)
    restore(lineage.builder.client, plan, str(target), log_format=FORMAT)
    return {path.name: path.read_bytes() for path in target.iterdir()}


@pytest.mark.slow
@KINDS
@RELATIONS
def test_a_restore_takes_the_predecessor_during_a_takeover_and_then_the_successor(
    lineage: Lineage, tmp_path: Path, relation: Relation, kind: str
) -> None:
    lineage.pause(relation, kind).take_over().put_late(kind)
    assert find_latest(lineage.builder.client) == lineage.old.claim
    assert open_latest(lineage.builder.client).base.claim == lineage.old.claim
    assert restored(lineage, tmp_path / "during") == files(2, 1)
    lineage.begin()
    assert lineage.new is not None
    assert find_latest(lineage.builder.client) == lineage.new.claim
    assert restored(lineage, tmp_path / "after") == files(2, 2, 2)


@KINDS
@RELATIONS
def test_there_is_nothing_to_restore_of_a_generation_that_never_began(
    lineage: Lineage, tmp_path: Path, relation: Relation, kind: str
) -> None:
    lineage.pause(relation, kind).take_over().put_late(kind).begin()
    assert lineage.unbegun is not None
    name = lineage.unbegun.claim.generation
    with pytest.raises(NothingToRestoreError, match=f"generation {name}: never began"):
        restored(lineage, tmp_path / "out", name)


@KINDS
def test_it_is_not_a_tip_with_data_and_has_no_extent(lineage: Lineage, kind: str) -> None:
    lineage.pause(Relation.CONTINUES, kind).take_over().put_late(kind)
    assert lineage.unbegun is not None
    client, claim = lineage.builder.client, lineage.unbegun.claim
    tip, extent, pieces = find_tip(client, claim), find_extent(client, claim), list_pieces(client, claim)
    assert (tip.started, tip.sealed, tip.slot) == (False, None, lineage.unbegun.slot)
    assert not extent.began
    assert not extent.has_data
    assert (pieces.base.snapshot, pieces.base.entries, pieces.gap) == (None, (), None)


def test_a_generation_whose_snapshot_came_before_its_terminal_did_begin(lineage: Lineage, tmp_path: Path) -> None:
    claim = lineage.claim(Relation.DIVERGED, first=1)
    began = lineage.builder.add(claim, start=False)
    began.start([began.seal_unshipped(0, LOG[0])])
    lineage.builder.add(lineage.claim(), start=False)
    client = lineage.builder.client
    assert find_extent(client, claim).began
    assert find_tip(client, claim).started
    assert find_latest(client) == claim
    assert restored(lineage, tmp_path / "latest") == files(2)
    assert restored(lineage, tmp_path / "named", claim.generation) == files(2)


class EarlierListingStore(CountingStore):
    """Answers listings as if no snapshot had been put yet."""

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return (info for info in super().list(prefix, start_after) if "/snapshots/" not in info.key)


def test_an_owner_that_closes_a_generation_sees_the_content_of_its_first_snapshot(lineage: Lineage) -> None:
    claim = lineage.claim(Relation.DIVERGED, first=1)
    began = lineage.builder.add(claim, start=False)
    began.start([began.seal_unshipped(0, LOG[0])])
    client, successor = lineage.builder.client, lineage.claim()
    tips = close_below(client, successor, [claim], ManualClock())
    assert tips[claim.generation].terminal is not None
    assert tips[claim.generation].sealed is not None
    assert tips[claim.generation] == find_tip(client, claim)


@pytest.mark.parametrize("ended", [False, True])
def test_a_snapshot_that_came_after_the_listing_shows_the_content_of_its_generation(
    lineage: Lineage, ended: bool
) -> None:
    claim = lineage.claim(Relation.DIVERGED, first=1)
    began = lineage.builder.add(claim, start=False)
    began.start([began.seal_unshipped(0, LOG[0])])
    if ended:
        lineage.builder.add(lineage.claim(), start=False)
    tip = find_tip(ObjectReplicaClient(EarlierListingStore(lineage.builder.store)), claim)
    assert tip.started
    assert tip.sealed is not None
    assert tip == find_tip(lineage.builder.client, claim)


@KINDS
def test_verify_reports_a_late_snapshot_as_harmless(lineage: Lineage, kind: str) -> None:
    lineage.pause(Relation.DIVERGED, kind).take_over().put_late(kind)
    assert lineage.unbegun is not None
    for _ in range(2):
        report = verify(lineage.builder.store, formats=lambda _: FORMAT)
        assert report.harmful == 0
        told = [(str(anomaly.kind), anomaly.key, anomaly.what) for anomaly in report.anomalies]
        if kind == "abandoned":
            assert told == []
        else:
            ((said, key, what),) = told
            claim = lineage.unbegun.claim
            assert (said, key) == ("orphan", snapshot_key(lineage.unbegun.name, claim.first))
            assert what.startswith(f"came after {wal_key(lineage.unbegun.slot)}: its generation never began")
        lineage = build(ReplicaBuilder()).pause(Relation.DIVERGED, kind).take_over().put_late(kind).begin()
        assert lineage.unbegun is not None


@KINDS
def test_verify_compares_a_log_with_the_generation_that_is_read(lineage: Lineage, tmp_path: Path, kind: str) -> None:
    lineage.pause(Relation.DIVERGED, kind).take_over().put_late(kind)
    for name, data in files(2, 1).items():
        (tmp_path / name).write_bytes(data)
    report = verify(lineage.builder.store, formats=lambda _: FORMAT, against=str(tmp_path))
    assert report.against is not None
    assert (report.against.generation, report.harmful) == (lineage.old.claim.generation, 0)


@KINDS
def test_the_listing_shows_a_generation_as_never_begun(lineage: Lineage, kind: str) -> None:
    from litelog_cli.listing import describe_generations

    lineage.pause(Relation.DIVERGED, kind).take_over().put_late(kind)
    old, unbegun, new = describe_generations(lineage.builder.client)
    assert (old.began, unbegun.began, new.began) == (True, False, True)
    assert (unbegun.sealed_segments, unbegun.first, unbegun.last_shipped) == (0, None, None)


class ActingStore(CountingStore):
    """Calls ``act`` once, before a request of that number for an object of the paused owner's generation."""

    def __init__(self, lineage: Lineage, act: Callable[[], object], at: int) -> None:
        super().__init__(lineage.builder.store)
        assert lineage.unbegun is not None
        self._prefix = f"generations/{lineage.unbegun.name}/"
        self._act, self._left = act, at
        self.on_newer: Callable[[], object] = lambda: None
        """Called after each read of the newer claim."""

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._count_down(prefix)
        return super().list(prefix, start_after)

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        self._count_down(key)
        stream = super().open(key, byte_range)
        if key == claim_key(3):
            self.on_newer()
        return stream

    def _count_down(self, name: str) -> None:
        if name.startswith(self._prefix):
            self._left -= 1
            if self._left == 0:
                self._act()


def follow(client: ObjectReplicaClient, count: int) -> list[int]:
    """The first ``count`` records that a follower gives."""
    reader = ReplicaReader(client, follow=True, poll_interval=0.0, formats=lambda _: FORMAT)
    seen: list[int] = []
    for batch in reader.batches():
        seen += batch.sequences.tolist()
        if len(seen) >= count:
            reader.close()
    return seen


@KINDS
@RELATIONS
def test_a_follower_skips_a_generation_that_never_began(lineage: Lineage, relation: Relation, kind: str) -> None:
    lineage.pause(relation, kind).take_over().put_late(kind).begin()
    assert follow(lineage.builder.client, 10) == list(range(10))


@KINDS
@RELATIONS
@pytest.mark.parametrize("at", range(1, 8))
def test_a_follower_that_waits_for_a_generation_to_begin_sees_it_abandoned(
    lineage: Lineage, relation: Relation, kind: str, at: int
) -> None:
    """``at``: the request before which that happens."""
    lineage.pause(relation, kind)
    store = ActingStore(lineage, lambda: lineage.take_over().put_late(kind).begin(), at)
    assert follow(ObjectReplicaClient(store), 10) == list(range(10))


@RELATIONS
@pytest.mark.parametrize("at", range(1, 8))
def test_a_snapshot_without_a_terminal_is_not_trusted_once_there_is_a_newer_claim(
    lineage: Lineage, relation: Relation, at: int
) -> None:
    lineage.pause(relation)

    def take_over() -> None:
        """The new owner looks, the snapshot comes, and then the terminal."""
        assert lineage.unbegun is not None
        claim = lineage.claim()
        new = GenerationBuilder(lineage.builder.client, claim, FORMAT)
        lineage.put_late("late")
        later.append(lambda: close(new))

    def close(new: GenerationBuilder) -> None:
        assert lineage.unbegun is not None
        lineage.unbegun.ship(b"", "", owner=new.claim.owner, successor=new.claim.key, previous="")
        lineage.new = new
        lineage.begin()

    later: list[Callable[[], None]] = []
    store = ActingStore(lineage, take_over, at)
    reader = ReplicaReader(
        ObjectReplicaClient(store),
        follow=True,
        poll_interval=0.0,
        formats=lambda _: FORMAT,
    )
    store.on_newer = lambda: later.pop()() if later else None
    seen: list[int] = []
    for batch in reader.batches():
        seen += batch.sequences.tolist()
        if len(seen) >= 10:
            reader.close()
    assert seen == list(range(10))


def test_a_follower_waits_until_a_generation_begins_before_it_reports_a_fork(lineage: Lineage) -> None:
    lineage.pause(Relation.DIVERGED)
    assert lineage.unbegun is not None
    store = ActingStore(lineage, lineage.unbegun.start, 4)
    with pytest.raises(DivergedError, match="rewound"):
        follow(ObjectReplicaClient(store), 10)


def test_several_generations_that_never_began_are_skipped(lineage: Lineage) -> None:
    for _ in range(3):
        lineage.pause(Relation.DIVERGED)
    lineage.take_over().begin()
    client, old = lineage.builder.client, lineage.old
    assert lineage.new is not None
    terminal = find_tip(client, old.claim).terminal
    assert terminal is not None
    assert find_successor(client, old.claim, terminal) == lineage.new.claim
    assert find_begun(client, old.claim) == lineage.new.claim
    assert follow(client, 10) == list(range(10))


def test_no_reader_follows_until_an_owner_has_begun(lineage: Lineage) -> None:
    client, old = lineage.builder.client, lineage.old
    lineage.pause(Relation.CONTINUES)
    terminal = find_tip(client, old.claim).terminal
    assert terminal is not None
    assert find_successor(client, old.claim, terminal) is None
    lineage.take_over()
    assert find_successor(client, old.claim, terminal) is None
    assert find_begun(client, old.claim) is None


@KINDS
@RELATIONS
@pytest.mark.parametrize("waits", [False, True])
def test_a_copy_is_kept_up_to_date_past_a_generation_that_never_began(
    lineage: Lineage, tmp_path: Path, relation: Relation, kind: str, waits: bool
) -> None:
    client, out = lineage.builder.client, tmp_path / "out"
    plan = find_plan(client, Target(), FORMAT)
    restore(client, plan, str(out), log_format=FORMAT)
    with CopyFollower(client, str(out), plan, FORMAT) as follower:
        steps = [
            lambda: lineage.pause(relation, kind),
            lineage.take_over,
            lambda: lineage.put_late(kind),
            lineage.begin,
        ]
        for act in steps:
            act()
            if waits:
                for _ in range(3):
                    follower.step()
        while follower.step():
            pass
        assert follower.position is not None
        assert lineage.new is not None
        assert follower.position == lineage.new.slot
    assert {path.name: path.read_bytes() for path in out.iterdir()} == files(2, 2, 2)


@RELATIONS
def test_a_copy_waits_while_a_newer_claim_may_end_a_generation_before_it_began(
    lineage: Lineage, tmp_path: Path, relation: Relation
) -> None:
    client, out = lineage.builder.client, tmp_path / "out"
    plan = find_plan(client, Target(), FORMAT)
    restore(client, plan, str(out), log_format=FORMAT)
    lineage.pause(relation, "late and sealed")
    assert lineage.unbegun is not None
    with CopyFollower(client, str(out), plan, FORMAT) as follower:
        new = lineage.new = GenerationBuilder(client, lineage.claim(), FORMAT)
        lineage.put_late("late and sealed")  # after the new owner has looked for it
        for _ in range(3):
            assert not follower.step()
        lineage.unbegun.ship(b"", "", owner=new.claim.owner, successor=new.claim.key, previous="")
        lineage.begin()
        while follower.step():
            pass
        assert follower.position == new.slot
    assert {path.name: path.read_bytes() for path in out.iterdir()} == files(2, 2, 2)


@KINDS
@RELATIONS
@pytest.mark.parametrize("waits", [False, True])
def test_a_stream_skips_a_generation_that_never_began(relation: Relation, kind: str, waits: bool) -> None:
    pytest.importorskip("pyarrow")
    from tests.builders.spark_streaming import Query, live_builder

    builder, url = live_builder()
    lineage = build(builder)
    query = Query(url).run()
    steps = [lambda: lineage.pause(relation, kind), lineage.take_over, lambda: lineage.put_late(kind), lineage.begin]
    for act in steps:
        act()
        if waits:
            query.run()
            query.restart()
    query.run()
    assert query.sequences() == list(range(10))


def test_a_follower_leaves_a_generation_that_never_reached_its_predecessors_end(
    lineage: Lineage,
) -> None:
    """Another owner closed it while its owner still shipped the predecessor's data. The new generation holds all of
    that data, too."""
    lineage.pause(Relation.CONTINUES)
    assert lineage.unbegun is not None
    lineage.unbegun.start().ship_segment(LOG[0])
    lineage.take_over().begin()
    assert lineage.new is not None
    assert find_shift(lineage.builder.client, lineage.unbegun.claim, lineage.new.claim) == 0
    assert follow(lineage.builder.client, 10) == list(range(10))


def test_a_successor_does_not_hold_its_rivals_data(
    lineage: Lineage,
) -> None:
    lineage.pause(Relation.CONTINUES)
    assert lineage.unbegun is not None
    lineage.unbegun.start().ship_segment(LOG[0])
    lineage.unbegun.ship_segment(LOG[1])
    lineage.take_over().begin()
    assert lineage.new is not None
    with pytest.raises(DivergedError, match=r"not what .* held after that"):
        find_shift(lineage.builder.client, lineage.unbegun.claim, lineage.new.claim)
    assert find_shift(lineage.builder.client, lineage.unbegun.claim, lineage.new.claim, lineage.old.slot) == 0


@pytest.mark.slow
def test_a_follower_reads_the_successor_of_an_empty_generation_from_its_start() -> None:
    builder = ReplicaBuilder()
    empty = builder.add()
    again = replace(builder.claim(Relation.FIRST), predecessor=None, predecessor_end=None)
    builder.add(again).ship_segment(LOG[0])
    builder.add().ship_segment(LOG[0], final=None)
    reader = ReplicaReader(builder.client, generation=empty.name, formats=lambda _: FORMAT)
    assert [number for batch in reader.batches() for number in batch.sequences.tolist()] == [0, 1, 2]
