"""Verification against the log on local disk: the bytes that it compares, those that it cannot, and differences."""

from __future__ import annotations

import gc
import tracemalloc
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from litelog.errors import SourceMissingError
from litelog.log.writer import LogWriter
from litelog.objects.claim import Relation
from litelog.objects.layout import snapshot_key
from litelog.verify.findings import Scope, Watch
from litelog.verify.local_compare import LocalComparison, check_log, compare_logs
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon
from tests.builders.log_builder import make_log
from tests.builders.replica_builder import FORMAT, ReplicaBuilder, make_segment, make_unfinished
from tests.builders.verify_helper import LOG, found, kinds, verified, write_log

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def sealed_and_wal(tmp_path: Path) -> tuple[ReplicaBuilder, Path]:
    """A replica of four log segments, two of them sealed, and the log."""
    write_log(tmp_path / "log", LOG)
    return make_unfinished(LOG, snapshots=[2], prune=2, last_cuts=[0, 1]), tmp_path / "log"


def test_a_log_that_is_its_replica(sealed_and_wal: tuple[ReplicaBuilder, Path]) -> None:
    builder, log = sealed_and_wal
    report = verified(builder.store, against=str(log))
    assert report.anomalies == ()
    assert (report.against.files, report.against.gone, report.against.behind) == (4, 0, 0)
    assert report.against.bytes == sum(len(segment.data) for segment in LOG)
    with open(log / LOG[3].name, "ab") as file:
        file.write(b"more")
    assert verified(builder.store, against=str(log)).against.behind == 4


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_any_other_byte_of_the_log_differs(sealed_and_wal: tuple[ReplicaBuilder, Path], number: int) -> None:
    builder, log = sealed_and_wal
    segment = LOG[number]
    for at in range(0, len(segment.data), 7):
        data = bytearray(segment.data)
        data[at] ^= 1
        (log / segment.name).write_bytes(data)
        report = verified(builder.store, against=str(log))
        ((kind, _),) = found(report)
        assert kind == "differs"
        words = report.anomalies[0].what.split()
        start, stop = int(words[words.index("offset") + 1]), int(words[words.index("below") + 1])
        assert start <= at < stop
        assert stop - start < len(segment.data) or len(segment.ends) == 1


@pytest.mark.parametrize("number", range(4))
def test_other_commits_of_the_same_size_differ(sealed_and_wal: tuple[ReplicaBuilder, Path], number: int) -> None:
    """All commits that end with their own CRC-32C have the same CRC-32C, whatever they hold."""
    builder, log = sealed_and_wal
    segment = LOG[number]
    counts = [[2, 3, 1], [4, 2], [1], [2, 2, 2]][number]
    other = make_segment(segment.next - sum(counts), counts, tag=b"q")
    assert (other.name, other.ends) == (segment.name, segment.ends)
    (log / segment.name).write_bytes(other.data)
    report = verified(builder.store, against=str(log))
    assert found(report) == [("differs", report.anomalies[0].key)]
    assert f"other bytes of {segment.name}" in report.anomalies[0].what


@pytest.mark.parametrize("name", ["litelog", "lines", "spacetimedb"])
@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_finished_log_segment_that_continues_differs(tmp_path: Path, name: str, *, is_sealed: bool) -> None:
    """Zeros are preallocation, and SpacetimeDB leaves garbage. What follows in the newest one will be shipped."""
    log, store = make_log(tmp_path / "log", name), MemoryStore()
    first = log.roll(3)
    with closing(Daemon(log, store, str(tmp_path / "state"))) as daemon:
        if not is_sealed:
            daemon.sync()
        log.roll(3)
        daemon.sync()
    for data, name_of in ((b"", first), (bytes(100), first), (log.commit(), log.name), (log.commit(), first)):
        log.write(data, name_of)
        report = verified(store, log.format, against=log.folder)
        grew = name_of == first and data.strip(b"\0") and name != "spacetimedb"
        assert [each.kind for each in report.anomalies] == (["differs"] if grew else []), report.anomalies


@pytest.mark.slow
def test_a_comparison_holds_nothing_of_each_wal_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica may have very many of them."""
    log, store, held = make_log(tmp_path / "log"), MemoryStore(), list[int]()
    compare = LocalComparison.compare

    def measure(self: LocalComparison, *arguments: Any) -> Any:
        held.append(tracemalloc.get_traced_memory()[0])
        return compare(self, *arguments)

    monkeypatch.setattr(LocalComparison, "compare", measure)
    log.roll(1)
    with closing(Daemon(log, store, str(tmp_path / "state"))) as daemon:
        for count in (1, 100, 300):
            for _ in range(count):
                log.append(1)
                daemon.sync()
            gc.collect()
            tracemalloc.start()
            try:
                assert verified(store, against=log.folder).anomalies == ()
            finally:
                tracemalloc.stop()
    _, few, many = held
    assert many - few < 300 * 64, "the first one loads modules"


def test_a_log_with_less_data_than_its_replica(sealed_and_wal: tuple[ReplicaBuilder, Path]) -> None:
    builder, log = sealed_and_wal
    (log / LOG[3].name).write_bytes(LOG[3].data[:-1])
    assert kinds(builder.store, against=str(log)) == {"ahead"}
    (log / LOG[3].name).unlink()
    assert kinds(builder.store, against=str(log)) == {"ahead"}


@pytest.mark.slow
def test_verify_against_a_log_that_lacks_log_segments(sealed_and_wal: tuple[ReplicaBuilder, Path]) -> None:
    builder, log = sealed_and_wal
    (log / LOG[0].name).unlink()
    report = verified(builder.store, against=str(log))
    assert (report.anomalies, report.against.gone) == ((), 1)
    (log / LOG[2].name).unlink()
    assert kinds(builder.store, against=str(log)) == {"differs"}
    write_log(log, LOG)
    stray = f"{int(LOG[1].name[:20]) + 1:020d}.log"
    (log / stray).write_bytes(b"x")
    assert found(verified(builder.store, against=str(log))) == [("missing", str(log / stray))]
    (log / stray).unlink()
    (log / f"{99:020d}.log").write_bytes(b"new")
    assert verified(builder.store, against=str(log)).against.behind == 3


def test_every_log_segment_that_is_not_compared_is_named_with_its_reason(
    sealed_and_wal: tuple[ReplicaBuilder, Path],
) -> None:
    builder, log = sealed_and_wal
    (log / f"{99:020d}.log").write_bytes(b"new")
    (log / f"{1:020d}.log").write_bytes(b"")
    report = verified(builder.store, against=str(log))
    assert found(report) == []
    left_out = [(each.file, each.bytes, each.reason) for each in report.against.not_compared]
    assert left_out == [(f"{1:020d}.log", 0, "empty"), (f"{99:020d}.log", 3, "newer")]
    assert (report.against.left_out, report.against.missing) == (2, 0)
    sampled = verified(builder.store, against=str(log), scope=Scope(0.5, seed=1)).against
    assert sampled.files + sampled.left_out == len(LOG) + 2
    assert {each.reason for each in sampled.not_compared} == {"empty", "newer", "sampled"}


def test_log_segments_that_are_older_than_all_that_the_replica_holds_are_missed(
    sealed_and_wal: tuple[ReplicaBuilder, Path],
) -> None:
    """For example, a copy replaced the log's folder, and the daemon has not noticed."""
    builder, log = sealed_and_wal
    built = builder.generations[0]
    builder.store.delete([snapshot_key(built.name, 2)])
    built.snapshot(2, first=2)
    report = verified(builder.store, against=str(log))
    assert [key for _, key in found(report)] == [str(log / segment.name) for segment in LOG[:2]]
    assert (report.against.files, report.against.missing) == (2, 2)


@pytest.mark.parametrize(("relation", "missed"), [(Relation.DIVERGED, 0), (Relation.CONTINUES, 2)])
def test_log_segments_that_only_a_diverged_predecessor_holds_are_not_missed(
    tmp_path: Path, relation: Relation, missed: int
) -> None:
    builder = ReplicaBuilder()
    first = builder.add()
    for segment in LOG[:2]:
        first.ship_segment(segment)
    second = builder.add(builder.claim(relation, first=0 if relation is Relation.DIVERGED else 2))
    second.ship_segment(LOG[2])
    write_log(tmp_path / "log", LOG[:3])
    report = verified(builder.store, against=str(tmp_path / "log"))
    assert sum(key.startswith(str(tmp_path)) for _, key in found(report)) == missed
    earlier = [each.file for each in report.against.not_compared if each.reason == "earlier"]
    assert earlier == ([] if missed else [segment.name for segment in LOG[:2]])


@pytest.mark.parametrize("after", range(12))
def test_log_segments_that_are_removed_while_they_are_compared_are_older_ones(
    sealed_and_wal: tuple[ReplicaBuilder, Path], after: int
) -> None:
    builder, log = sealed_and_wal
    left = after

    def truncate() -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            for segment in LOG[:2]:
                (log / segment.name).unlink()
        return True

    watch = Watch(should_continue=truncate)
    report = verified(builder.store, against=str(log), watch=watch, parallelism=1)
    assert found(report) == []
    assert report.against.files + report.against.gone == len(LOG)


def test_another_log_is_not_compared(sealed_and_wal: tuple[ReplicaBuilder, Path], tmp_path: Path) -> None:
    other = tmp_path / "other"
    with LogWriter(str(other)) as writer:
        writer.append(b"a record")
    report = verified(sealed_and_wal[0].store, against=str(other))
    assert (found(report), report.against) == ([("foreign", str(other))], None)
    assert writer.log_id.hex in report.anomalies[0].what


def test_no_folder_to_compare_with(sealed_and_wal: tuple[ReplicaBuilder, Path], tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError):
        verified(sealed_and_wal[0].store, against=str(tmp_path / "nothing"))


@pytest.mark.slow
def test_the_generation_that_readers_read_is_compared(tmp_path: Path) -> None:
    builder = ReplicaBuilder()
    builder.add().ship_segment(LOG[0])
    other = make_segment(0, [2, 3, 1], tag=b"other")
    builder.add(builder.claim(Relation.DIVERGED)).ship_segment(other)
    builder.add().ship_segment(other, upto=1, final=None)  # has not reached its predecessor's end
    write_log(tmp_path / "log", [other])
    report = verified(builder.store, against=str(tmp_path / "log"))
    assert report.anomalies == ()
    assert report.against.generation == builder.generations[1].name


@pytest.mark.slow
def test_a_local_log_is_checked_by_its_format(tmp_path: Path) -> None:
    write_log(tmp_path / "log", LOG)
    assert check_log(str(tmp_path / "log"), FORMAT) == LOG[-1].next
    assert compare_logs(str(tmp_path / "log"), str(tmp_path / "log"), FORMAT) == sum(len(s.data) for s in LOG)
    for segment in LOG:
        for at in range(0, len(segment.data), 5):
            data = bytearray(segment.data)
            data[at] ^= 1
            write_log(tmp_path / "other", LOG)
            (tmp_path / "other" / segment.name).write_bytes(data)
            with pytest.raises(Exception, match=r"corrupt|gap|format"):
                check_log(str(tmp_path / "other"), FORMAT)
            with pytest.raises(Exception, match=f"offset {at}"):
                compare_logs(str(tmp_path / "other"), str(tmp_path / "log"), FORMAT)
