"""The anomalies of each kind that a verification finds, states that are not anomalies, and stores that fail or lag."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.codec.checksum import crc32c
from litelog.codec.lz4_frames import compress_frames
from litelog.errors import ConfigError, StoreError
from litelog.formats.lines import LinesFormat
from litelog.formats.litelog import encode_commit
from litelog.formats.raw import RawFormat
from litelog.objects import wal_segment
from litelog.objects.claim import Relation
from litelog.objects.layout import (
    Fencing,
    claim_key,
    sealed_key,
    sealed_prefix,
    snapshot_key,
    trial_prefix,
    wal_key,
    wal_prefix,
)
from litelog.objects.position import Position
from litelog.objects.sealed_segment import encode_footer
from litelog.objects.snapshot_entries import make_entry
from litelog.verify.findings import MAX_KEPT, Acknowledged, AnomalyKind, Scope, VerifyStoppedError, Watch
from litelog.verify.sealed import SealedVerifier
from tests.builders.child import runs_in_child
from tests.builders.replica_builder import FORMAT, ReplicaBuilder, make_log, make_segment
from tests.builders.sealed_builder import make_sealed
from tests.builders.verify_helper import LOG, everything, found, kinds, store_of, verified, write_log
from tests.sampling import examples, sampled_cases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.stores.object_store import ByteRange
    from replica_clients.memory import MemoryStore
    from tests.builders.replica_builder import GenerationBuilder

SHAPES = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4), min_size=1, max_size=5)


@pytest.fixture
def simple() -> ReplicaBuilder:
    builder = ReplicaBuilder()
    built = builder.add()
    for segment in LOG[:3]:
        built.ship_segment(segment, cuts=[0, 1])
    return builder


@pytest.mark.slow
def test_all_that_owners_write_is_well() -> None:
    report = verified(everything().store)
    assert report.anomalies == ()
    assert (report.failed, report.unknown_formats) == (0, ())
    assert [held.relation for held in report.generations] == ["first", "continues", "diverged"]
    assert [held.ended for held in report.generations] == [True, True, False]
    objects = len(everything().objects())
    assert report.claims + report.snapshots + report.sealed_segments + report.wal_segments == objects


@pytest.mark.slow
@given(shape=SHAPES, data=st.data())
@settings(max_examples=examples(60))
def test_any_history_of_owners_is_well(shape: list[list[int]], data: st.DataObject) -> None:
    builder = ReplicaBuilder()
    log = make_log(shape)
    for _ in range(data.draw(st.integers(1, 4))):
        relation = data.draw(st.sampled_from([None, Relation.DIVERGED])) if builder.generations else None
        before = data.draw(st.integers(0, len(log) - 1))
        built = builder.add(builder.claim(relation, first=before), start=False)
        if data.draw(st.booleans()):
            entries = [built.seal_unshipped(index, segment) for index, segment in enumerate(log[:before])]
            if builder.generations[:-1] or data.draw(st.booleans()):
                built.start(entries)
            if built.positions or not built._digest:
                continue
            upto = data.draw(st.integers(before, len(log)))
            for segment in log[before:upto]:
                if data.draw(st.booleans()):
                    built.stand_for_sealed(segment)
                else:
                    built.ship_segment(segment, data.draw(st.sets(st.integers(0, 3))), final="empty")
            taken = before
            for index in sorted(data.draw(st.sets(st.integers(before + 1, max(before + 1, upto))))):
                if index <= upto:
                    built.snapshot(index)
                    taken = index
            built.prune(data.draw(st.integers(before, taken)))
    report = verified(builder.store, parallelism=data.draw(st.sampled_from([1, 3])))
    assert found(report) == []


@pytest.mark.parametrize("log_format", [LinesFormat("*.log"), RawFormat("*.log")])
def test_formats_without_sequences_are_well(log_format: LinesFormat | RawFormat) -> None:
    builder = ReplicaBuilder(log_format)
    built = builder.add()
    built.ship(b"one\ntwo\n", "a-1.log")
    built.ship(b"thr", "a-1.log", final=True)
    built.ship(b"four\n" * 100_000, "a-2.log", final=True)
    built.snapshot(1)
    built.ship(b"five\n", "a-3.log")
    assert verified(builder.store, log_format).anomalies == ()


@pytest.mark.slow
@runs_in_child
def test_commits_that_cross_frames_are_well() -> None:
    segment = make_segment(0, [1])
    values = [random.Random(n).randbytes(size) for n, size in enumerate((900_000, 900_000, 5 << 20, 10, 700_000))]
    data = segment.data + b"".join(bytes(encode_commit(1 + n, 1, n, [value])) for n, value in enumerate(values))
    builder = ReplicaBuilder()
    builder.add().ship(data, segment.name)
    report = verified(builder.store)
    assert report.anomalies == ()
    assert report.content_bytes == len(data)


def test_isolated_owners_leave_each_others_generations_open() -> None:
    builder = ReplicaBuilder()
    for number in range(2):
        claim = replace(builder.claim(Relation.DIVERGED if number else None), fencing=Fencing.ISOLATED)
        builder.add(claim, close=False).ship_segment(LOG[0])
    assert verified(builder.store).anomalies == ()
    key = builder.generations[0].claim.key
    builder.store.delete([key])
    assert found(verified(builder.store))[0][0] == "missing"


def test_an_empty_store_holds_no_replica() -> None:
    assert verified({}).is_empty
    assert not verified({"epochs/00000001.json": b"{}"}).is_empty


def test_a_wal_segment_inside_another_overlaps(simple: ReplicaBuilder) -> None:
    built = simple.generations[0]
    where = Position(built.name, 0, 1)
    header = replace(built.header(b"", LOG[0].name), index=0, offset=1, length=1, crc=crc32c(b"x"))
    simple.client.write_wal_segment(where, wal_segment.encode(header, b"x"))
    assert ("overlap", wal_key(where)) in found(verified(simple.store))


def test_a_gap_names_the_missing_object_and_later_objects_are_verified(simple: ReplicaBuilder) -> None:
    built = simple.generations[0]
    objects = simple.objects()
    second, last = wal_key(built.positions[1]), wal_key(built.positions[-1])
    del objects[second]
    objects[last] += b"\0"
    report = verified(objects)
    assert ("gap", second) in found(report)
    assert last in {key for _, key in found(report)}


def test_a_left_out_record_is_a_gap() -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(LOG[0])
    late = make_segment(LOG[1].next, [1])
    built._next = late.next - 1
    built.ship(late.data, late.name)
    assert found(verified(builder.store)) == [("gap", wal_key(built.positions[-1]))]


def test_a_left_out_record_between_sealed_segments_is_a_gap() -> None:
    builder = ReplicaBuilder()
    built = builder.add(builder.claim(first=2), start=False)
    entries = [built.seal_unshipped(0, LOG[0]), built.seal_unshipped(1, LOG[2])]
    built.start(entries)
    assert found(verified(builder.store)) == [("gap", entries[1].key)]


def test_things_that_go_back_are_out_of_order(simple: ReplicaBuilder) -> None:
    built = simple.generations[0]
    built.clock = built.claim.time
    built.ship_segment(LOG[3])
    assert found(verified(simple.store)) == [("order", wal_key(built.positions[-1]))]
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(LOG[1])
    older = make_segment(0, [1])
    built._next = None
    built.ship(older.data, older.name)
    assert kinds(builder.store) == {"order"}


def test_epochs_of_commits_that_go_back_are_out_of_order() -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(make_segment(0, [1], epoch=5))
    built.ship_segment(make_segment(1, [1], epoch=4))
    assert found(verified(builder.store)) == [("order", wal_key(built.positions[-1]))]


def test_objects_after_a_terminal_are_out_of_order() -> None:
    builder = ReplicaBuilder()
    first = builder.add()
    first.ship_segment(LOG[0])
    builder.add().ship_segment(LOG[0])
    first.slot = first.slot.__class__(first.name, first.slot.index + 1, 0)
    first.ship_segment(LOG[1])
    assert ("order", wal_key(first.positions[-1])) in found(verified(builder.store))


def test_another_owners_wal_segment_is_foreign(simple: ReplicaBuilder) -> None:
    built = simple.generations[0]
    built.ship(LOG[3].data, LOG[3].name, owner="somebody")
    assert found(verified(simple.store)) == [("foreign", wal_key(built.positions[-1]))]


def test_another_logs_objects_are_foreign(simple: ReplicaBuilder) -> None:
    built = simple.generations[0]
    built.ship(LOG[3].data, LOG[3].name, log="f" * 32)
    assert found(verified(simple.store)) == [("foreign", wal_key(built.positions[-1]))]


def test_unknown_names_are_foreign_and_harmless(simple: ReplicaBuilder) -> None:
    for name in ("README", "epochs/1.json", "generations/x/wal/0", "zzz"):
        simple.store.put(name, [b"x"])
    report = verified(simple.store)
    assert report.harmful == 0
    assert found(report, harmful=False) == [("foreign", key) for key in sorted(a.key for a in report.anomalies)]
    assert len(report.anomalies) == 4


def test_leftovers_of_a_store_trial_are_not_anomalies(simple: ReplicaBuilder) -> None:
    simple.store.put(f"{trial_prefix(7)}race-0", [b"writer 1"])
    assert found(verified(simple.store)) == found(verified(simple.store), harmful=False) == []


@pytest.mark.slow
def test_foreign_names_without_end_are_counted_and_not_kept() -> None:
    store = store_of({f"photos/{number:06d}.jpg": b"" for number in range(MAX_KEPT + 5)})
    report = verified(store)
    assert len(report.anomalies) == MAX_KEPT
    assert report.counts == {"foreign": MAX_KEPT + 5}


def test_commits_that_were_damaged_before_they_were_shipped_are_named_as_such(simple: ReplicaBuilder) -> None:
    built = simple.generations[0]
    data = bytearray(LOG[3].data)
    data[-1] ^= 1
    built.ship(bytes(data), LOG[3].name, described=LOG[3].data)
    assert found(verified(simple.store)) == [("commit", wal_key(built.positions[-1]))]


def seal_other(built: GenerationBuilder, index: int = 0) -> SnapshotEntry:
    """Seal a log segment whose bytes differ from the shipped ones."""
    other = make_segment(0 if index == 0 else LOG[index - 1].next, [1] * 3, tag=b"other")
    marks = [(len(other.data), built.clock)]
    return built._put_sealed(index, other.name, other.data, 1, marks=marks, expect=None)


def test_a_sealed_segment_of_other_bytes_that_a_snapshot_names_conflicts() -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(LOG[0])
    entry = seal_other(built)
    built.ship_segment(LOG[1])
    built.snapshot(1)
    assert set(found(verified(builder.store))) == {("conflict", entry.key)}


def test_a_sealed_segment_of_other_bytes_that_a_final_names_conflicts() -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    built.stand_for_sealed(LOG[0])
    builder.store.delete([sealed_key(built.name, 0)])
    entry = seal_other(built)
    built.ship_segment(LOG[1])
    assert set(found(verified(builder.store))) == {("conflict", entry.key)}


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("shipped", ["grows", "finished", "the next one, too"])
def test_an_unnamed_sealed_segment_next_to_other_wal_bytes_is_an_orphan(ends: bool, shipped: str) -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(LOG[0])
    entry = seal_other(built, 1)
    built.ship_segment(LOG[1], final=None if shipped == "grows" else "last")
    if shipped == "the next one, too":
        built.ship_segment(LOG[2], final=None)
    if ends:
        builder.add(builder.claim(Relation.DIVERGED)).ship_segment(make_segment(0, [1], tag=b"new"), final=None)
    report = verified(builder.store)
    assert found(report, harmful=False) == [("orphan", entry.key)]
    assert (report.harmful, report.pending) == (0, 0)


def test_a_sealed_segment_of_a_growing_log_segment_is_an_orphan() -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(LOG[0], upto=1, final=None)
    entry = built.seal(0)
    report = verified(builder.store)
    assert found(report, harmful=False) == [("orphan", entry.key)]
    assert (report.harmful, report.pending) == (0, 0)


def test_a_snapshot_that_contradicts_a_footer_is_a_conflict(simple: ReplicaBuilder) -> None:
    built = simple.generations[0]
    entry = built.seal(0)
    built.entries[0] = replace(entry, highest=entry.highest + 1)
    built._write_snapshot(1)
    assert found(verified(simple.store)) == [("conflict", entry.key)]


def test_snapshots_that_disagree_conflict(simple: ReplicaBuilder) -> None:
    built = simple.generations[0]
    first = built.snapshot(1)
    built.seal(1)
    built.entries[0] = replace(built.entries[0], shipped_last=built.entries[0].shipped_last + 1)
    built._write_snapshot(2)
    assert ("conflict", first.key) in found(verified(simple.store))


def test_a_snapshot_that_names_another_chain_breaks_it(simple: ReplicaBuilder) -> None:
    built = simple.generations[0]
    built.shipped[0].chain = "0" * 64
    snapshot = built.snapshot(1)
    assert found(verified(simple.store)) == [("chain", snapshot.key)]


def test_a_sealed_segment_that_nothing_names_is_new_or_an_orphan(simple: ReplicaBuilder) -> None:
    built = simple.generations[0]
    built.seal(2)
    report = verified(simple.store)
    assert (report.anomalies, report.pending) == ((), 1)
    built.snapshot(2)
    built.seal_unshipped(5, LOG[3])
    simple.store.delete([snapshot_key(built.name, 2)])
    built._write_snapshot(2, first=1)
    report = verified(simple.store)
    assert found(report, harmful=False) == [("orphan", sealed_key(built.name, 0))]
    assert (report.harmful, report.pending) == (0, 2)


@pytest.mark.parametrize("succeeded", [False, True])
def test_sealed_segments_without_a_snapshot_are_pending_until_the_generation_ends(succeeded: bool) -> None:
    """A daemon that begins a generation seals the finished log segments, and then writes the snapshot."""
    builder = ReplicaBuilder()
    built = builder.add(builder.claim(first=2), start=False)
    entry = built.seal_unshipped(0, LOG[0])
    if succeeded:
        builder.add().ship_segment(LOG[0], final=None)
    report = verified(builder.store)
    assert found(report, harmful=False) == ([("orphan", entry.key)] if succeeded else [])
    assert (report.harmful, report.pending) == (0, 0 if succeeded else 1)


def test_a_generation_without_a_claim_is_a_missing_claim_or_an_orphan(simple: ReplicaBuilder) -> None:
    stray = simple.generations[0].name[:-1] + "f"
    simple.store.put(f"generations/{stray}/wal/{0:016x}/{0:016x}.wal.lz4", [b"x"])
    assert ("orphan", f"generations/{stray}/") in found(verified(simple.store), harmful=False)
    simple.store.delete([claim_key(1)])
    assert ("missing", claim_key(1)) in found(verified(simple.store))


def test_objects_of_a_newer_version_are_not_judged(simple: ReplicaBuilder) -> None:
    built = simple.generations[0]
    key = snapshot_key(built.name, 2)
    text = json.dumps({"version": 2, "anything": 1}).encode()
    simple.store.put(key, [b"".join(compress_frames(text))])
    report = verified(simple.store)
    assert found(report) == [("version", key)]


def test_claims_that_do_not_fit_each_other() -> None:
    builder = ReplicaBuilder()
    builder.add().ship_segment(LOG[0])
    builder.add(replace(builder.claim(), log="f" * 32))
    report = verified(builder.store)
    assert ("conflict", claim_key(2)) in found(report)
    builder = ReplicaBuilder()
    builder.add(replace(builder.claim(), relation=Relation.CONTINUES)).ship_segment(LOG[0])
    assert found(verified(builder.store)) == [("checksum", claim_key(1))]


def test_a_terminal_without_a_successors_claim_is_named() -> None:
    builder = ReplicaBuilder()
    first = builder.add()
    first.ship_segment(LOG[0])
    first.end(replace(builder.claim(), generation="0000000900000000"))
    assert found(verified(builder.store)) == [("missing", claim_key(9))]
    builder = ReplicaBuilder()
    first = builder.add()
    first.ship_segment(LOG[0])
    first.ship(b"", "", successor="nobody")
    assert kinds(builder.store) == {"conflict"}


def test_a_predecessor_that_ends_before_its_successor_saw_it_end_is_cut() -> None:
    builder = ReplicaBuilder()
    first = builder.add()
    first.ship_segment(LOG[0], final=None, cuts=[0])
    claim = builder.claim()
    builder.client.delete_wal_segments([first.positions.pop()])
    first.slot = Position(first.name, 0, LOG[0].ends[0])
    builder.add(claim, close=False, start=False)
    assert found(verified(builder.store)) == [("missing", wal_key(first.slot))]


def test_a_wal_segment_that_names_another_before_it_breaks_the_chain(simple: ReplicaBuilder) -> None:
    built = simple.generations[0]
    built.ship(LOG[3].data, LOG[3].name, previous="0" * 64)
    assert found(verified(simple.store)) == [("chain", wal_key(built.positions[-1]))]


def test_a_sum_that_the_parts_do_not_make_is_named(simple: ReplicaBuilder) -> None:
    built = simple.generations[0]
    built.ship(LOG[3].data, LOG[3].name, crc_total=1)
    assert found(verified(simple.store)) == [("checksum", wal_key(built.positions[-1]))]


@pytest.mark.parametrize("changes", [{"digest": "0" * 64}, {"crc": 1}])
def test_a_footer_with_wrong_sums_of_its_frames_is_named(changes: dict[str, int | str]) -> None:
    builder = ReplicaBuilder()
    built = builder.add(builder.claim(first=1), start=False)
    footer, body = make_sealed(built.claim, 0, LOG[0].name, LOG[0].data, FORMAT, marks=[(len(LOG[0].data), 1)])
    footer = replace(footer, **changes)
    body = body[: footer.data_bytes] + encode_footer(footer)
    builder.client.write_sealed_segment(built.name, 0, [body])
    entry = make_entry(footer, len(body))
    built.start([entry])
    assert found(verified(builder.store)) == [("checksum", entry.key)]


def test_snapshots_that_were_created_in_another_order_are_out_of_order(simple: ReplicaBuilder) -> None:
    built = simple.generations[0]
    built.snapshot(1)
    built.clock = built.claim.time
    snapshot = built.snapshot(2)
    assert found(verified(simple.store)) == [("order", snapshot.key)]


def test_a_snapshot_with_another_end_of_its_predecessor_is_a_conflict() -> None:
    builder = ReplicaBuilder()
    first = builder.add()
    first.ship_segment(LOG[0])
    second = builder.add(start=False)
    second.start(end=str(Position(first.name, 1, 5)))
    second.ship_segment(LOG[0])
    assert found(verified(builder.store)) == [("conflict", snapshot_key(second.name, 0))]


def test_a_claim_of_which_nothing_else_is_left_is_missed_by_its_epoch() -> None:
    builder = ReplicaBuilder()
    first = builder.add()
    builder.add(close=False, start=False)
    claim = replace(builder.claim(), predecessor=first.claim.generation, predecessor_end=first.slot)
    first.end(claim)
    builder.add(claim, close=False).ship_segment(LOG[0])
    builder.store.delete([claim_key(2)])
    assert found(verified(builder.store)) == [("missing", claim_key(2))]


def test_damaged_bytes_and_other_lengths_are_named_by_their_frames() -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(LOG[0])
    entry = built.seal(0)
    body = bytearray(builder.objects()[entry.key])
    frames = SealedVerifier(builder.store, Scope(), lambda name: FORMAT).footer(built.name, 0).frames
    assert len(frames) == 3
    for number in (0, 2):
        body[frames.starts[number] + 20] ^= 1
    assert found(verified({**builder.objects(), entry.key: bytes(body)})) == [("checksum", entry.key)] * 2
    where = wal_key(built.positions[0])
    store = Lying(builder.store, where)
    assert found(verified(store)) == [("length", where)]


class Lying:
    """A store whose listing states a wrong size for one object."""

    enforces_create_only = True

    def __init__(self, inner: MemoryStore, key: str) -> None:
        self.inner, self.url, self.key = inner, inner.url, key
        self.open = inner.open

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[Any]:
        for info in self.inner.list(prefix, start_after):
            yield replace(info, size=info.size + (info.key == self.key))


def test_every_kind_is_provoked_here_or_beside_this_module() -> None:
    modules = ("test_execution.py", "test_local_compare.py", "test_versions.py")
    text = "".join(Path(__file__).with_name(name).read_text() for name in modules)
    for kind in AnomalyKind:
        assert f'"{kind}"' in text, kind


@pytest.mark.slow
def test_the_order_of_results_does_not_depend_on_parallelism() -> None:
    objects = everything().objects()
    for number, key in enumerate(sorted(objects)):
        if number % 3 == 0:
            objects[key] = objects[key][: len(objects[key]) // 2]
    reports = [verified(objects, parallelism=parallelism) for parallelism in (1, 2, 8, 64)]
    assert len(reports[0].anomalies) > 5
    assert {report.anomalies for report in reports} == {reports[0].anomalies}


@pytest.mark.slow
def test_a_sample_reads_all_structure_and_a_share_of_the_contents() -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    log = make_log([[1] * 8 for _ in range(30)])
    for segment in log[:20]:
        built.ship_segment(segment, cuts=range(8))
    built.snapshot(20)
    built.prune(20)
    for segment in log[20:]:
        built.ship_segment(segment, cuts=range(8))
    whole = verified(builder.store)
    some = verified(builder.store, scope=Scope(0.25, seed=7))
    assert 0.1 < some.content_bytes / whole.content_bytes < 0.4
    assert some.content_bytes == verified(builder.store, scope=Scope(0.25, seed=7), parallelism=1).content_bytes
    assert some.content_bytes != verified(builder.store, scope=Scope(0.25, seed=8)).content_bytes
    assert verified(builder.store, scope=Scope(0.0)).content_bytes == 0
    assert (some.anomalies, some.wal_segments, some.sealed_segments) == ((), whole.wal_segments, 20)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["wal", "segments", "snapshots", "epochs"])
def test_an_empty_sample_still_finds_missing_objects(part: str) -> None:
    builder = everything()
    objects = builder.objects()
    last = sorted(key for key in objects if f"{part}/" in key)[{"epochs": 0, "wal": -2}.get(part, -1)]
    del objects[last]
    assert kinds(objects, scope=Scope(0.0)) == kinds(objects) != set()


class Wrapped:
    """A store that does something else at chosen calls."""

    enforces_create_only = True

    def __init__(self, inner: MemoryStore | Retaining) -> None:
        self.inner = inner
        self.url = inner.url
        self.requests = Counter()

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        self.requests["open"] += 1
        return self.inner.open(key, byte_range)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[Any]:
        self.requests["list"] += 1
        return self.inner.list(prefix, start_after)


class Lagging(Wrapped):
    """Its first listings lack an object that can be read."""

    def __init__(self, inner: MemoryStore, key: str, listings: int) -> None:
        super().__init__(inner)
        self.key, self.listings = key, listings

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[Any]:
        for info in super().list(prefix, start_after):
            if info.key != self.key or self.requests["list"] > self.listings:
                yield info


@pytest.mark.parametrize("number", range(6))
def test_a_wal_segment_that_is_listed_late_is_not_missing(simple: ReplicaBuilder, number: int) -> None:
    """The first listing is of all names, the second of the generation's WAL segments, the third is made again."""
    built = simple.generations[0]
    builder_claim = replace(simple.claim(), predecessor_end=built.slot)
    key = wal_key(built.positions[number])
    simple.add(builder_claim).ship_segment(LOG[0])
    assert found(verified(Lagging(simple.store, key, 2), parallelism=1)) == []
    assert found(verified(Lagging(simple.store, key, 99), parallelism=1)) != []


@pytest.mark.slow
@pytest.mark.parametrize("part", ["epochs/", "segments/"])
def test_an_object_that_is_named_but_never_listed_is_read_directly(part: str) -> None:
    builder = everything()
    for key in builder.objects():
        if part in key and key != claim_key(3):
            assert found(verified(Lagging(builder.store, key, 99))) == [], key


class Failing(Wrapped):
    def __init__(self, inner: Any, key: str) -> None:
        super().__init__(inner)
        self.key = key

    def open(self, key: Any, byte_range: Any = None) -> Any:
        if key == self.key:
            raise StoreError("open", key, "503")
        return super().open(key, byte_range)


def pending() -> ReplicaBuilder:
    """Objects of every kind, and a sealed segment that no ``final`` and no snapshot names yet."""
    builder = everything()
    builder.generations[-1].seal(2)
    return builder


def standing() -> ReplicaBuilder:
    """A ``final`` that stands for a sealed segment, which no snapshot names yet."""
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(LOG[0], cuts=[1])
    built.stand_for_sealed(LOG[1])
    built.ship_segment(LOG[2], final=None)
    return builder


@pytest.mark.slow
@pytest.mark.parametrize("make", [pending, standing])
@pytest.mark.parametrize("compared", [False, True])
def test_an_object_that_cannot_be_read_stops_nothing_and_is_not_an_anomaly(
    make: Any, compared: bool, tmp_path: Path
) -> None:
    """The same in comparison with the log: verification does not report unread bytes of a whole log as missing or
    additional."""
    builder = make()
    write_log(tmp_path / "log", LOG if make is pending else LOG[:3])
    options = {"against": str(tmp_path / "log")} if compared else {}
    assert found(verified(builder.store, **options), harmful=False) == []
    assert verified(builder.store).pending == (make is pending)
    bad = {}
    for key in builder.objects():
        report = verified(Failing(builder.store, key), **options)
        assert report.failed >= 1
        assert key in report.failures[0]
        anomalies = found(report, harmful=False)
        bad.update({key: anomalies} if anomalies else {})
    assert bad == {}


def test_an_unread_claim_of_an_isolated_owner_makes_nothing_else_an_anomaly() -> None:
    builder = ReplicaBuilder()
    for _ in range(3):
        builder.add(replace(builder.claim(), fencing=Fencing.ISOLATED), close=False).ship_segment(LOG[0])
    before = found(verified(builder.store))
    for built in builder.generations[:2]:
        report = verified(Failing(builder.store, built.claim.key))
        assert report.failed >= 1
        assert set(found(report)) <= set(before)


class FailingList(Wrapped):
    def __init__(self, inner: MemoryStore, prefix: str) -> None:
        super().__init__(inner)
        self.prefix = prefix

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[Any]:
        if prefix == self.prefix:
            raise StoreError("list", prefix, "503")
        return super().list(prefix, start_after)


@pytest.mark.slow
def test_wal_segments_that_cannot_be_listed_are_not_an_anomaly(tmp_path: Path) -> None:
    builder = pending()
    write_log(tmp_path / "log", LOG)
    for built in builder.generations:
        report = verified(FailingList(builder.store, wal_prefix(built.name)), against=str(tmp_path / "log"))
        assert (report.failed, report.against, found(report, harmful=False)) == (1, None, []), built.name


def test_an_unconfirmed_gap_is_not_reported_and_later_objects_are_verified() -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(LOG[0], cuts=[0, 1, 2])
    built.ship_segment(LOG[1], cuts=[0, 1], final=None)
    without = builder.objects()
    del without[wal_key(built.positions[1])]
    assert [kind for kind, _ in found(verified(without))] == ["gap"]

    class FailingLater(FailingList):
        listed = 0

        def list(self, prefix: Any, start_after: Any = None) -> Any:
            self.listed += prefix == self.prefix
            return super().list(prefix, start_after) if self.listed > 1 else self.inner.list(prefix, start_after)

    report = verified(FailingLater(store_of(without), wal_prefix(built.name)))
    assert (report.failed, found(report, harmful=False)) == (1, [])
    assert report.wal_segments == len(built.positions) - 1


@pytest.mark.parametrize("prefix", ["", sealed_prefix(pending().generations[1].name)])
def test_verify_raises_if_objects_cannot_be_listed(prefix: str) -> None:
    with pytest.raises(StoreError, match="503"):
        verified(FailingList(pending().store, prefix))


class Noisy(Wrapped):
    """Flips a bit in every third answer for each object."""

    def __init__(self, inner: MemoryStore | Retaining, number: int) -> None:
        super().__init__(inner)
        self.number = number

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        self.requests[key] += 1
        stream = self.inner.open(key, byte_range)
        if self.requests[key] % 3 == self.number:
            data = bytearray(stream.read())
            data[len(data) // 2] ^= 4
            return io.BytesIO(data)
        return stream


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_bytes_that_change_on_their_way_are_read_again(number: int) -> None:
    builder = everything()
    position = builder.generations[-1].positions[-1]
    known = Acknowledged(position, wal_segment.digest([builder.objects()[wal_key(position)]]))
    report = verified(Noisy(builder.store, number), acknowledged=known)
    assert (found(report, harmful=False), report.failed) == ([], 0)


class Retaining(Wrapped):
    """Calls a function after a number of requests."""

    def __init__(self, inner: MemoryStore, act: Callable[..., Any], after: int) -> None:
        super().__init__(inner)
        self.act, self.left = act, after

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.act()

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        self._count()
        return super().open(key, byte_range)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[Any]:
        self._count()
        return super().list(prefix, start_after)


@pytest.mark.slow
@pytest.mark.parametrize("way", [lambda store: store, *(partial(Noisy, number=number) for number in range(3))])
@pytest.mark.parametrize("after", sampled_cases(range(1, 40), 4, "requests after which retention removes objects"))
def test_objects_that_retention_removes_meanwhile_are_not_an_anomaly(after: int, way: Callable[..., Any]) -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    for segment in LOG[:3]:
        built.ship_segment(segment, cuts=[0])
    built.snapshot(1)
    acted = []

    def act() -> None:
        built.snapshot(3, first=1)
        built.prune(3)
        builder.client.delete_snapshots([(built.name, 0), (built.name, 1)])
        builder.client.delete_sealed_segments([(built.name, 0)])
        acted.append(True)

    report = verified(way(Retaining(builder.store, act, after)), parallelism=1)
    assert found(report) == []
    if not acted:
        assert after > 10


@pytest.mark.slow
def test_objects_that_are_shipped_meanwhile_are_not_an_anomaly() -> None:
    for after in range(1, 30):
        builder = ReplicaBuilder()
        built = builder.add()
        built.ship_segment(LOG[0], cuts=[0])

        def act(builder: Any = builder, built: Any = built) -> None:
            built.ship_segment(LOG[1])
            successor = builder.add()
            successor.ship_segment(LOG[0])

        assert found(verified(Retaining(builder.store, act, after), parallelism=1)) == []


def test_a_store_that_cannot_be_listed_is_an_error() -> None:
    class Down(Wrapped):
        def list(self, prefix: Any, start_after: Any = None) -> None:
            raise StoreError("list", prefix, "down")

    with pytest.raises(StoreError):
        verified(Down(everything().store))


def test_a_format_that_is_not_installed_is_reported() -> None:
    def unknown(name: Any) -> None:
        raise ConfigError(f"no format {name}")

    from litelog.verify.execution import verify

    report = verify(everything().store, formats=unknown)
    assert report.unknown_formats == ("litelog",)
    assert report.anomalies == ()
    assert report.content_bytes > 0


def test_it_can_be_stopped() -> None:
    left = 5

    def should_continue() -> Any:
        nonlocal left
        left -= 1
        return left > 0

    with pytest.raises(VerifyStoppedError):
        verified(everything().store, watch=Watch(should_continue=should_continue))
    assert left == 0


@pytest.mark.slow
def test_progress_reaches_the_total() -> None:
    seen = []
    report = verified(everything().store, watch=Watch(progress=seen.append))
    assert [step.objects for step in seen] == sorted(step.objects for step in seen)
    assert seen[-1].objects == seen[-1].total
    assert seen[-1].bytes == seen[-1].total_bytes == report.object_bytes
