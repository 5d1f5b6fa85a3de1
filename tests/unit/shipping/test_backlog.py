"""Log segments that are finished while the daemon is away go up sealed, with an empty ``final`` for each."""

from __future__ import annotations

import itertools
import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from litelog.errors import CorruptionError, FencedError, SourceMissingError, StoreError
from litelog.objects.layout import parse_sealed, parse_wal
from litelog.reading.latest import find_latest
from litelog.reading.replica_reader import ReplicaReader
from litelog.restore.execution import restore
from litelog.restore.history_plan import Target, find_plan
from litelog.shipping.context import Settings
from litelog.stores.object_store import ObjectReplicaClient
from litelog_cli.segment_listing import replica_segments
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon, held, newest_snapshot, start_sealing
from tests.builders.independent_reader import objects, read_replica
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.stores import CountingStore, Fault, FaultyStore, KilledError, KillingStore
from tests.builders.verify_helper import found, verified
from tests.sampling import at_night, sampled_cases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from typing_extensions import Buffer

    from litelog.stores.object_store import ObjectStore
    from tests.builders.manual_clock import ManualClock

ALL_FORMATS = pytest.mark.parametrize("log", ["litelog", *at_night("lines"), "raw"], indirect=True)


@pytest.fixture
def log(request: pytest.FixtureRequest, tmp_path: Path) -> LogBuilder:
    """Two log segments, of which one is finished."""
    made = make_log(tmp_path / "log", getattr(request, "param", "litelog"))
    made.roll(3)
    made.roll(2)
    return made


def leave(log: LogBuilder, store: ObjectStore, state: str, clock: ManualClock) -> str:
    """Have a daemon ship the whole log, and close it. Returns its generation."""
    daemon = start_sealing(log, store, state, clock)
    daemon.sync()
    name = daemon.generation
    daemon.close()
    clock.advance(100)
    return name


def go_on_alone(log: LogBuilder, *commits: int) -> None:
    """Grow the log during the downtime: its newest log segment, and a number of further ones."""
    log.append(2)
    for count in commits:
        log.roll(count)


def headers(store: ObjectStore) -> list[dict[str, object]]:
    """The newest generation's WAL segments."""
    return [header for header, _, _ in list(read_replica(store).values())[-1].segments]


def finals(store: ObjectStore) -> dict[int, dict[str, object]]:
    """The WAL segments that stand for a sealed segment, by index."""
    return {int(str(header["index"])): header for header in headers(store) if "sealed" in header}


def sealed(store: ObjectStore) -> list[str]:
    return [key for key in objects(store) if parse_sealed(key) is not None]


def check_readers(store: ObjectStore, log: LogBuilder, folder: Path) -> None:
    """All readers agree that the replica holds just the log."""
    client = ObjectReplicaClient(store)
    files = log.files()
    assert held(store) == files
    report = verified(store, log.format)
    assert found(report) == []
    shutil.rmtree(folder, ignore_errors=True)
    restore(client, find_plan(client, Target(), log.format), str(folder), log_format=log.format)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")} == files
    listed = list(replica_segments(client, find_latest(client)))
    assert [(facts.file, facts.log_bytes) for facts in listed] == [(name, len(text)) for name, text in files.items()]
    if log.format.name == "litelog":
        with ReplicaReader(client) as reader:
            read = [record.sequence for columns in reader.batches() for record in columns.records()]
        assert read == list(range(log.next))


@pytest.mark.slow
@ALL_FORMATS
def test_log_segments_finished_during_a_downtime_are_sealed_with_a_final_for_each(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, tmp_path: Path
) -> None:
    name = leave(log, store, state, clock)
    begun, before = log.name, len(log.texts[log.name])
    go_on_alone(log, 1, 4, 2)
    daemon = start_sealing(log, store, state, clock)
    daemon.sync()
    assert daemon.generation == name
    assert [event.left for event in daemon.sealed_events[:2]] == [1, 0]
    assert [event.entry.index for event in daemon.sealed_events] == [2, 3, 1]  # 1 had begun as WAL segments
    assert sorted(finals(store)) == [2, 3]
    for index, final in finals(store).items():
        assert (final["offset"], final["length"], final["final"], final["crc_total"]) == (0, 0, True, 0)
        assert final["file"] == sorted(log.files())[index]
    rest = [header for header in headers(store) if header["index"] == 1][-1]
    assert (rest["file"], rest["final"]) == (begun, True)
    assert int(str(rest["offset"])) + int(str(rest["length"])) > before
    check_readers(store, log, tmp_path / "out")
    for _ in range(2):  # it continues as usual
        log.append(1)
        daemon.sync()
        log.roll(2)
        daemon.sync()
    assert sorted(finals(store)) == [2, 3]
    check_readers(store, log, tmp_path / "out")


@pytest.mark.parametrize("log", ["litelog", "lines"], indirect=True)
def test_a_follower_reads_past_the_finals(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, tmp_path: Path
) -> None:
    leave(log, store, state, clock)
    client = ObjectReplicaClient(store)
    reader = ReplicaReader(client, follow=True, poll_interval=0.001, formats=lambda _: log.format)
    values: list[bytes] = []
    wanted = log.next + 2 + 1 + 4 + 2

    def grow() -> None:
        go_on_alone(log, 1, 4, 2)
        start_sealing(log, store, state, clock).sync()

    with reader:
        for columns in reader.batches():
            if not values:
                grow()
            values += [record.value for record in columns.records()]
            if len(values) >= wanted:
                break
    text = b"".join(log.files().values())
    assert len(values) == wanted
    assert [text.find(value) >= 0 for value in values] == [True] * wanted
    assert len(set(values)) == wanted


@ALL_FORMATS
def test_the_next_snapshot_names_them_and_their_finals_are_deleted_in_time(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, tmp_path: Path
) -> None:
    leave(log, store, state, clock)
    go_on_alone(log, 1, 4, 2)
    daemon = start_sealing(log, store, state, clock, settings=Settings(wal_retention=3600.0))
    daemon.sync()
    archive = daemon.replica.archive
    assert archive is not None
    assert archive.status.unsealed == 0
    archive.request_snapshot()
    snapshot = newest_snapshot(daemon)
    assert (snapshot.next, [entry.file for entry in snapshot.segments]) == (4, sorted(log.files())[:4])
    clock.advance(3601)
    log.append(1)
    daemon.sync()
    clock.advance(1)
    log.append(1)
    daemon.sync()
    assert finals(store) == {}
    check_readers(store, log, tmp_path / "out")


@pytest.mark.parametrize("lost", ["nothing", "the archive's state"])
def test_facts_about_finals_that_the_state_lacks_are_read_from_the_replica(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, tmp_path: Path, lost: str
) -> None:
    leave(log, store, state, clock)
    go_on_alone(log, 1, 4, 2)
    daemon = start_sealing(log, store, state, clock)
    daemon.sync()
    daemon.close()
    before = sealed(store)
    if lost != "nothing":
        kept = daemon.folder.load()
        assert kept is not None
        daemon.folder.save(replace(kept, archive=None))
    again = start_sealing(log, store, state, clock)
    again.sync()
    assert again.replica.archive is not None
    again.replica.archive.request_snapshot()
    assert again.replica.archive.status.error is None
    snapshot = newest_snapshot(again)
    assert snapshot.next == 4
    assert sealed(store) == before
    check_readers(store, log, tmp_path / "out")


@pytest.mark.slow
@ALL_FORMATS
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", sampled_cases(range(1, 9), 3, "puts at which a daemon that seals crashes"))
def test_after_a_crash_at_any_put_sealing_resumes_and_seals_nothing_twice(
    log: LogBuilder, state: str, clock: ManualClock, at: int, after: bool, tmp_path: Path
) -> None:
    store = MemoryStore("test")
    name = leave(log, store, state, clock)
    go_on_alone(log, 1, 4, 2)
    killing = KillingStore(store, at, after=after)
    daemon = start_sealing(log, killing, state, clock)
    try:
        daemon.sync()
    except KilledError:
        daemon.crash()
    else:
        assert at > 7
        daemon.close()
    there = sealed(store)
    counting = CountingStore(store)
    again = start_sealing(log, counting, state, clock)
    again.sync()
    assert again.generation == name
    adopted = {key for key in there if (parse_sealed(key) or ("", -1))[1] in finals(store)}
    assert not adopted & set(counting.put_keys)
    check_readers(store, log, tmp_path / "out")
    log.roll(1)
    again.sync()
    check_readers(store, log, tmp_path / "out")
    again.close()


@pytest.mark.slow
def test_segments_that_were_sealed_before_a_crash_are_not_uploaded_again(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, tmp_path: Path
) -> None:
    leave(log, store, state, clock)
    go_on_alone(log, 1, 4, 2)
    daemon = start_sealing(log, KillingStore(store, 4, after=False), state, clock)  # the rest, two sealed ones, a final
    with pytest.raises(KilledError):
        daemon.sync()
    daemon.crash()
    there = sealed(store)
    indexes = [parse_sealed(key) for key in there]
    assert {(daemon.claims[0].generation, 2), (daemon.claims[0].generation, 3)} < set(indexes)
    assert finals(store) == {}
    counting = CountingStore(store)
    start_sealing(log, counting, state, clock).sync()
    assert [key for key in counting.put_keys if parse_sealed(key) is not None and key in there] == []
    assert sorted(finals(store)) == [2, 3]
    check_readers(store, log, tmp_path / "out")


@pytest.mark.slow
def test_a_log_segment_begun_as_wal_segments_continues_so_after_a_kill(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, tmp_path: Path
) -> None:
    """Also if the state does not show the WAL segments. A sealed segment would state other times than they do."""
    name = leave(log, store, state, clock)
    log.append(2)
    log.roll(3)
    daemon = start_sealing(
        log, KillingStore(store, 2, after=True), state, clock
    )  # the rest, and the beginning of the next one
    with pytest.raises(KilledError):
        daemon.sync()
    daemon.crash()
    clock.advance(5)
    go_on_alone(log, 4, 2)
    clock.advance(5)
    again = start_sealing(log, store, state, clock)
    again.sync()
    assert again.generation == name
    assert sorted(finals(store)) == [3]
    assert {header["index"] for header in headers(store) if header["length"]} == {1, 2, 4}
    check_readers(store, log, tmp_path / "out")


@pytest.mark.slow
def test_a_wal_segment_that_arrives_while_its_log_segment_is_sealed_is_no_conflict(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, tmp_path: Path
) -> None:
    """The daemon gave up the put and was started again, and only then the store carried the put out."""
    leave(log, store, state, clock)

    class Late(CountingStore):
        held: tuple[str, list[bytes]] | None = None
        arrived = False

        def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
            position = parse_wal(key)
            if position is not None and (position.index, position.offset) == (2, 0) and self.held is None:
                self.held = (key, [bytes(piece) for piece in body])
                raise StoreError("put", key, "timed out")
            if key.endswith("/segments/0000000000000002.segment.lz4") and self.held is not None:
                self.arrived = True
                super().put(*self.held, create_only=create_only)
            super().put(key, body, create_only=create_only)

    late = Late(store)
    daemon = start_sealing(log, late, state, clock)
    daemon.sync()
    log.roll(2)
    with pytest.raises(StoreError, match="timed out"):
        daemon.sync()
    daemon.crash()
    clock.advance(100)
    log.append(1)
    log.roll(1)
    daemon = start_sealing(log, late, state, clock)
    daemon.sync()
    daemon.replica.archive.finish()  # type: ignore[union-attr]
    assert late.arrived
    assert found(verified(store)) == []
    check_readers(store, log, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("rolled", [False, True])
def test_an_older_state_adopts_finals_for_wal_segments_and_wal_segments_for_finals(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, tmp_path: Path, rolled: bool
) -> None:
    """``rolled``: the earlier run shipped WAL segments where this one would seal; else the other way round."""
    name = leave(log, store, state, clock)
    shutil.copytree(state, state + ".old")
    if rolled:
        daemon = start_sealing(log, store, state, clock)
        for _ in range(3):
            log.roll(2)
            daemon.sync()
            log.append(1)
            daemon.sync()
    else:
        go_on_alone(log, 1, 4, 2)
        daemon = start_sealing(log, store, state, clock)
        daemon.sync()
    daemon.close()
    before = {key: body for key, body in objects(store).items() if parse_wal(key) is not None}
    again = start_sealing(log, store, state + ".old", clock)
    if not rolled:
        again.owner.backlog_sealer = None  # it ships WAL segments only
    again.sync()
    assert again.generation == name
    assert {key: body for key, body in objects(store).items() if parse_wal(key) is not None} == before
    log.roll(1)
    again.sync()
    check_readers(store, log, tmp_path / "out")


def rewrite(log: LogBuilder, names: Iterable[str]) -> None:
    """Write other bytes, in commits of the same size, in place of log segments that were not shipped."""
    for name in sorted(names):
        log.next = int(name[:20])
        text = log.texts.pop(name)
        log.delete(name)
        log.name = name
        log.write(log.header())
        while len(log.texts[name]) < len(text):
            log.write(log.commit(10, b"x"))


@pytest.mark.slow
@pytest.mark.parametrize("finished", [False, True])
def test_a_log_rewritten_between_a_seal_and_its_snapshot_begins_a_generation(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, tmp_path: Path, finished: bool
) -> None:
    """``finished``: the sealed log segment is as long as it was; else it still grows."""
    name = leave(log, store, state, clock)
    names = set(log.files())
    go_on_alone(log, 1, 4, 2)
    daemon = start_sealing(log, KillingStore(store, 4, after=False), state, clock)
    with pytest.raises(KilledError):
        daemon.sync()
    daemon.crash()
    added = sorted(set(log.files()) - names)
    if finished:
        rewrite(log, added)
    else:
        for gone in added[1:]:
            log.delete(gone)
            log.texts.pop(gone)
        rewrite(log, added[:1])
    again = start_sealing(log, store, state, clock)
    again.sync()
    if not finished:
        log.roll(1)
        again.sync()  # it is finished, and cannot be sealed where another one lies
        again.sync()
    assert again.generation > name
    assert held(store) == log.files()
    assert again.replica.archive is not None
    again.replica.archive.request_snapshot()
    assert again.replica.archive.status.error is None
    log.roll(1)
    again.sync()
    assert held(store) == log.files()


@pytest.mark.parametrize("seals", [False, True])
def test_a_final_of_other_bytes_than_the_log_has_now_is_not_adopted(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, seals: bool
) -> None:
    """The state is older, and the log was rewritten. ``seals``: the daemon meets the ``final`` when it seals, else when
    it puts a WAL segment."""
    name = leave(log, store, state, clock)
    shutil.copytree(state, state + ".old")
    names = set(log.files())
    go_on_alone(log, 1, 4, 2)
    daemon = start_sealing(log, store, state, clock)
    daemon.replica.sync(upto(daemon, lambda: 3 in finals(store)))
    daemon.crash()
    rewrite(log, set(log.files()) - names)
    again = start_sealing(log, store, state + ".old", clock)
    if not seals:
        again.owner.backlog_sealer = None
    again.sync()
    assert again.generation > name
    assert again.claims[-1].relation == "diverged"
    assert held(store) == log.files()


def test_a_gap_begins_a_generation_after_it(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock
) -> None:
    leave(log, store, state, clock)
    go_on_alone(log, 1)
    before = log.files()
    log.next += 5
    log.roll(2)
    log.roll(1)
    daemon = start_sealing(log, store, state, clock)
    for _ in range(3):
        daemon.sync()
    assert daemon.claims[-1].relation == "diverged"
    parts = [one.files() for one in read_replica(store).values() if one.files()]
    assert parts[-2] == before
    assert parts[-1] == {name: text for name, text in log.files().items() if name not in before}


@pytest.mark.parametrize("begun", [False, True])
def test_growth_after_a_final_is_reported_as_usual(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, begun: bool
) -> None:
    """``begun``: part of the next log segment was shipped."""
    daemon = start_sealing(log, store, state, clock)
    daemon.sync()
    old = log.name
    log.roll(1)
    daemon.replica.sync(upto(daemon, lambda: not begun and daemon.acknowledged[-1].header.final))
    daemon.close()
    log.write(b"more", old)
    log.roll(1)
    log.roll(1)
    again = start_sealing(log, store, state, clock)
    with pytest.raises(CorruptionError, match=old):
        again.sync()
    assert not any("sealed" in header for one in read_replica(store).values() for header, _, _ in one.segments)


def test_the_commits_before_a_corrupt_one_are_shipped_before_the_log_freezes(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock
) -> None:
    leave(log, store, state, clock)
    go_on_alone(log, 1, 4, 2)
    names, good = sorted(log.files()), log.files()
    text = bytearray(good[names[3]])
    text[len(text) // 2] ^= 1
    log.overwrite(0, bytes(text), names[3])
    daemon = start_sealing(log, store, state, clock)
    with pytest.raises(CorruptionError):
        daemon.sync()
    there = held(store)
    assert [there[name] for name in names[:3]] == [good[name] for name in names[:3]]
    assert good[names[3]].startswith(there.get(names[3], b""))
    assert sorted(finals(store)) == [2]


@pytest.mark.slow
@ALL_FORMATS
@pytest.mark.parametrize("mounted", [True, False])
def test_a_log_that_vanishes_during_a_put_is_missing_and_not_rewound(
    log: LogBuilder, state: str, clock: ManualClock, *, mounted: bool
) -> None:
    """The answer to each put is lost in turn. ``mounted``: the folder is gone; else it is empty."""
    lost = 0
    for number in itertools.count():
        store = MemoryStore(f"test-{number}")
        folder = f"{state}-{number}"
        name = leave(log, store, folder, clock)
        go_on_alone(log, 1, 4, 2)
        faulty = FaultyStore(store, {"put": [*[Fault.NONE] * number, Fault.AFTER]})
        daemon = start_sealing(log, faulty, folder, clock)
        try:
            daemon.sync()
        except StoreError:
            lost += 1
            os.rename(log.folder, log.folder + ".away")
            if not mounted:
                os.mkdir(log.folder)
            with pytest.raises(SourceMissingError):
                daemon.sync()
            if not mounted:
                os.rmdir(log.folder)
            os.rename(log.folder + ".away", log.folder)
            daemon.sync()
        assert daemon.generation == name
        assert held(store) == log.files()
        daemon.close()
        if not faulty.injected:
            break
    assert lost >= len(("final", "final", "WAL segment"))


@pytest.mark.slow
@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
def test_it_ends_well_if_any_request_fails(log: LogBuilder, state: str, clock: ManualClock, fault: Fault) -> None:
    for operation in ("put", "open", "list"):
        for at in range(9):
            store, place = MemoryStore("test"), f"{state}.{operation}.{at}"
            fresh = make_log(f"{log.folder}.{operation}.{at}")
            fresh.roll(3)
            fresh.roll(2)
            name = leave(fresh, store, place, clock)
            go_on_alone(fresh, 1, 4, 2)
            daemon = start_sealing(fresh, FaultyStore(store, {operation: [*[Fault.NONE] * at, fault]}), place, clock)
            for _ in range(3):
                try:
                    daemon.sync()
                except StoreError:
                    clock.advance(31)
            assert held(store) == fresh.files()
            assert daemon.generation == name
            assert sorted(finals(store)) == [2, 3]
            daemon.close()


def test_an_owner_that_is_overtaken_while_it_seals_ships_nothing_more(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock
) -> None:
    class Interrupting(CountingStore):
        """A rival takes over when the first sealed segment goes up."""

        def put(self, key: str, body: Iterable[bytes], *, create_only: bool = True) -> None:  # type: ignore[override]
            super().put(key, body, create_only=create_only)  # type: ignore[arg-type]
            if parse_sealed(key) is not None and rival.replica.position is None:
                rival.sync()

    leave(log, store, state, clock)
    go_on_alone(log, 1, 4, 2)
    rival = start_sealing(log, store, state + ".rival", clock, seed=1, takeover=True)
    daemon = start_sealing(log, Interrupting(store), state, clock)
    with pytest.raises(FencedError):
        daemon.sync()
    assert len(daemon.acknowledged) == 1  # the rest of the log segment that had begun
    assert held(store) == log.files()
    assert list(read_replica(store))[-1] == rival.generation


@ALL_FORMATS
@pytest.mark.parametrize("behind", [False, True])
def test_a_successor_continues_a_generation_that_ends_with_a_sealed_log_segment(
    log: LogBuilder, state: str, clock: ManualClock, behind: bool, tmp_path: Path
) -> None:
    """``behind``: the log has since lost its oldest log segment, so that indexes have to be mapped."""
    store = MemoryStore("test")
    leave(log, store, state, clock)
    go_on_alone(log, 1, 4, 2)
    daemon = start_sealing(log, store, state, clock)
    daemon.replica.sync(upto(daemon, lambda: 3 in finals(store)))
    daemon.crash()
    assert list(headers(store))[-1] == finals(store)[3]
    everything = log.files()
    if behind and log.format.self_numbered:
        log.delete(sorted(everything)[0])
    other = start_sealing(log, store, state + ".other", clock, seed=1, takeover=True)
    other.sync()
    assert other.claims[0].relation == "continues"
    assert held(store) | log.files() == held(store)
    client = ObjectReplicaClient(store)
    restore(client, find_plan(client, Target(), log.format), str(tmp_path / "out"), log_format=log.format)
    restored = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert {name: restored[name] for name in log.files()} == log.files()
    assert found(verified(store, log.format)) == []


@pytest.mark.slow
def test_a_successor_does_not_continue_data_that_its_log_does_not_hold(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock
) -> None:
    leave(log, store, state, clock)
    names = set(log.files())
    go_on_alone(log, 1, 4, 2)
    daemon = start_sealing(log, store, state, clock)
    daemon.replica.sync(upto(daemon, lambda: 3 in finals(store)))
    daemon.crash()
    rewrite(log, set(log.files()) - names)
    other = start_sealing(log, store, state + ".other", clock, seed=1, takeover=True)
    other.sync()
    assert other.claims[0].relation == "diverged"
    assert held(store) == log.files()


def upto(daemon: Daemon, holds: Callable[[], bool]) -> Callable[[], bool]:
    """A condition for a sync to continue: until ``holds``, for at most 100 steps."""
    steps = itertools.count()
    return lambda: next(steps) < 100 and not holds()


@pytest.mark.slow
def test_log_segments_finished_while_the_daemon_runs_go_up_as_wal_segments(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock
) -> None:
    leave(log, store, state, clock)
    daemon = start_sealing(log, store, state, clock)
    daemon.sync()
    for _ in range(3):
        log.roll(2)
        log.roll(1)
        daemon.sync()
    assert finals(store) == {}
    assert held(store) == log.files()


@pytest.mark.parametrize("name", ["litelog", "spacetimedb"])
def test_a_damaged_first_log_segment_is_not_left_out_after_a_restart(tmp_path: Path, name: str) -> None:
    log = make_log(tmp_path / "log", name)
    for _ in range(3):
        log.roll(3)
    log.overwrite(80 if name == "litelog" else 20, b"\xff" * 4, next(iter(log.texts)))
    daemon = Daemon(log, MemoryStore("test"), str(tmp_path / "state"), backlog_sealer=True)
    for _ in range(3):
        with pytest.raises(CorruptionError):
            daemon.sync()
        daemon.restart()
    assert daemon.acknowledged == []
