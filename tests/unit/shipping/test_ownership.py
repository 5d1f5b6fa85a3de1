"""How an owner gets its generation: resuming, claiming, closing, taking over, and identifying its log."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.errors import (
    CorruptObjectError,
    FencedError,
    ForeignClaimError,
    NotFoundError,
    OtherLogError,
    ReplicaLockedError,
    SourceMissingError,
    StoreError,
)
from litelog.formats.lines import LinesFormat
from litelog.formats.raw import RawFormat
from litelog.log.replica_registry import read_replicated
from litelog.log.source_position import SourcePosition
from litelog.objects import claim as claims
from litelog.shipping.claiming import (
    LostRaceError,
    NotCreateOnlyError,
    ReplicaUnavailableError,
    SucceededError,
    require_newest,
)
from litelog.shipping.context import LogSource
from litelog.shipping.state import StateError, StateFolder, Unclaimed
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon
from tests.builders.independent_reader import objects, read_replica
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.stores import CountingStore, Fault, FaultyStore
from tests.sampling import at_night

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.stores.object_store import ByteRange, ObjectInfo, ObjectStore

ALL_FORMATS = pytest.mark.parametrize("log", ["litelog", *at_night("lines"), "raw"], indirect=True)


def copy_state(state: str, to: str) -> None:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(state, to)


def test_a_first_claim_names_its_owner_and_its_log(log: LogBuilder, store: MemoryStore, state: str) -> None:
    daemon = Daemon(log, store, state, host="a.example")
    daemon.sync()
    (generation,) = read_replica(store).values()
    claim = generation.claim
    assert (claim["relation"], claim["first"], claim["host"], claim["format"]) == ("first", 0, "a.example", "litelog")
    assert claim["generation"].startswith("00000001")
    assert "predecessor" not in claim


def test_a_claim_is_put_twice_and_the_second_must_be_refused(log: LogBuilder, state: str) -> None:
    class Careless(CountingStore):
        """Accepts the header and ignores it, as some stores do."""

        def put(self, key: str, body: object, *, create_only: bool = True) -> None:
            assert create_only
            super().put(key, body, create_only=False)  # type: ignore[arg-type]

    store = Careless(MemoryStore("test"))
    with pytest.raises(NotCreateOnlyError):
        Daemon(log, store, state).sync()
    assert [key for key in store.put_keys if not key.startswith("epochs/")] == []


def test_a_foreign_claim_on_top_is_not_taken_over_without_permission(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    Daemon(log, store, state, host="a.example").sync()
    before = objects(store)
    with pytest.raises(ForeignClaimError, match=r"a\.example.*--takeover"):
        Daemon(log, store, state + ".other", seed=1).sync()
    assert objects(store) == before


@ALL_FORMATS
def test_a_takeover_continues_where_the_log_holds_all_that_was_shipped(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    first = Daemon(log, store, state)
    first.sync()
    other = Daemon(log, store, state + ".other", seed=1, takeover=True)
    log.append(1)
    other.sync()
    old, new = read_replica(store).values()
    assert old.terminal is not None
    assert (new.claim["relation"], new.claim["shift"]) == ("continues", 0)
    assert new.claim["predecessor"] == old.claim["generation"]
    assert new.files() == log.files()


def test_a_takeover_of_a_log_whose_first_segments_are_gone_maps_indexes(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    first = min(log.files())
    log.roll(2)
    log.roll(2)
    Daemon(log, store, state).sync()
    log.delete(first)
    Daemon(log, store, state + ".other", seed=1, takeover=True).sync()
    _, new = read_replica(store).values()
    assert (new.claim["relation"], new.claim["shift"]) == ("continues", 0)
    assert new.claim["first"] == 1


def test_a_generation_holds_one_format_even_if_the_configuration_changes(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    daemon = Daemon(log, store, state)
    daemon.sync()
    daemon.close()
    before = objects(store)
    log.append(1)
    for other in (LinesFormat(), RawFormat()):
        changed = Daemon(log, store, state, source=LogSource(log.folder, other))
        with pytest.raises(OtherLogError, match=f"of format litelog, not one of format {other.name}"):
            changed.sync()
        changed.close()
    assert objects(store) == before
    Daemon(log, store, state).sync()
    assert list(read_replica(store).values())[-1].files() == log.files()


@pytest.mark.parametrize("at", ["a log segment", "a log segment's end"])
def test_a_pattern_that_means_other_files_begins_a_generation_of_these(
    tmp_path: Path, store: MemoryStore, state: str, at: str
) -> None:
    log = make_log(tmp_path / "log", "lines")
    log.roll(3)
    log.write(b"another log's\n", "sys.000000")
    apps = LogSource(log.folder, LinesFormat("app.*"))
    daemon = Daemon(log, store, state, source=apps)
    daemon.sync()
    daemon.close()
    if at == "a log segment's end":
        kept = StateFolder(state, "test")
        known = kept.load()
        assert known is not None
        place = known.place
        kept.save(replace(known, place=SourcePosition(place.index + 1, "", place.file, place.offset)))
        kept.close()
    daemon = Daemon(log, store, state, source=LogSource(log.folder, LinesFormat("sys.*")))
    daemon.sync()
    old, new = read_replica(store).values()
    assert old.terminal is not None
    assert new.claim["relation"] == "diverged"
    assert "app.000000 is no longer a log segment" in new.claim["reason"]
    assert new.files() == {"sys.000000": b"another log's\n"}


def test_a_lost_state_folder_is_a_foreign_claim(log: LogBuilder, store: MemoryStore, state: str) -> None:
    daemon = Daemon(log, store, state)
    daemon.sync()
    daemon.lose_state()
    with pytest.raises(ForeignClaimError):
        Daemon(log, store, state, seed=1).sync()
    daemon = Daemon(log, store, state + ".new", seed=1, takeover=True)
    daemon.sync()
    old, new = read_replica(store).values()
    assert new.claim["relation"] == "continues"
    assert old.terminal is not None


def test_a_rolled_back_state_folder_costs_a_claim_and_fences_no_owner(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    daemon = Daemon(log, store, state)
    daemon.sync()
    daemon.close()
    copy_state(state, state + ".old")
    daemon = Daemon(log, store, state)
    log.next -= 3
    log.overwrite(0, log.header() + b"".join(log.commit(tag=b"R") for _ in range(3)))
    daemon.sync()
    daemon.close()
    copy_state(state + ".old", state)
    daemon = Daemon(log, store, state)
    daemon.sync()
    generations = list(read_replica(store).values())
    assert [bool(generation.terminal) for generation in generations] == [True, True, False]
    assert generations[2].claim["relation"] == "continues"
    assert generations[2].files() == log.files()


def test_a_log_restored_to_a_new_folder_begins_a_generation_with_a_predecessor(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    daemon = Daemon(log, store, state)
    daemon.sync()
    daemon.close()
    shutil.copytree(log.folder, log.folder + ".restored")
    shutil.rmtree(log.folder)
    Path(log.folder + ".placeholder").mkdir()
    os.rename(log.folder + ".restored", log.folder)
    daemon = Daemon(log, store, state)
    daemon.sync()
    old, new = read_replica(store).values()
    assert new.claim["predecessor"] == old.claim["generation"]
    assert new.claim["relation"] == "continues"
    assert new.files() == log.files()


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("first", [True, False])
def test_a_restart_begins_a_generation_whose_start_failed_without_another_claim(
    log: LogBuilder, store: MemoryStore, state: str, at: int, fault: Fault, first: bool
) -> None:
    if not first:
        Daemon(log, store, state + ".other", seed=1).sync()
    faulty = FaultyStore(store, {"put": [Fault.NONE] * at + [fault]})
    daemon = Daemon(log, faulty, state, takeover=not first)
    try:
        daemon.sync()
    except StoreError:
        daemon.restart()
        daemon.sync()
    faulty.enabled = False
    log.append(1)
    daemon.sync()
    generations = list(read_replica(store).values())
    assert len(generations) == (1 if first else 2)
    assert generations[-1].files() == log.files()
    assert first or generations[0].terminal is not None


def test_a_log_rewound_between_a_claim_and_its_closing_does_not_continue(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    Daemon(log, store, state + ".other", seed=1).sync()
    faulty = FaultyStore(store, {"put": [Fault.NONE, Fault.NONE, Fault.BEFORE]})  # the terminal fails
    daemon = Daemon(log, faulty, state, takeover=True)
    with pytest.raises(StoreError):
        daemon.sync()
    log.next = 0
    log.overwrite(0, log.header() + b"".join(log.commit(tag=b"R") for _ in range(3)))
    daemon.restart(takeover=True)
    daemon.sync()
    generations = list(read_replica(store).values())
    assert generations[-1].claim["relation"] == "diverged"
    assert generations[-1].files() == log.files()


def test_a_takeover_during_a_truncation_continues_all_that_the_replica_holds(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    """The log still holds the predecessor's end. Only the log's first index has changed since the claim was made."""
    truncated = min(log.files())
    log.roll(2)
    log.roll(2)
    whole = log.files()
    Daemon(log, store, state, backlog_sealer=True).sync()

    class Truncating(CountingStore):
        def put(self, key: str, body: object, *, create_only: bool = True) -> None:
            if key == "epochs/00000002.json" and not self.requests["put"]:
                log.delete(truncated)
            super().put(key, body, create_only=create_only)  # type: ignore[arg-type]

    Daemon(log, Truncating(store), state + ".other", seed=1, takeover=True, backlog_sealer=True).sync()
    *_, new = read_replica(store).values()
    assert new.claim["relation"] == "continues"
    assert new.files() == whole


def test_a_log_truncated_while_it_is_shipped_again_continues_its_predecessor(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    truncated = min(log.files())
    log.roll(2)
    whole = log.files()
    Daemon(log, store, state).sync()

    class Truncating(CountingStore):
        def put(self, key: str, body: object, *, create_only: bool = True) -> None:
            super().put(key, body, create_only=create_only)  # type: ignore[arg-type]
            if "/00000002" in key and key.endswith("/wal/0000000000000000/0000000000000000.wal.lz4"):
                log.delete(truncated)

    new = Daemon(log, Truncating(store), state + ".other", seed=1, takeover=True)
    new.sync()
    assert truncated not in log.files()
    *_, last = read_replica(store).values()
    assert last.claim["relation"] == "continues"
    assert last.files() == whole


def test_the_predecessor_may_continue_until_it_is_closed(log: LogBuilder, store: MemoryStore, state: str) -> None:
    """The old owner's puts after the claim lie before the terminal, so the new generation must hold them, too."""
    old = Daemon(log, store, state)
    old.sync()

    class GoesOn(CountingStore):
        def put(self, key: str, body: object, *, create_only: bool = True) -> None:
            super().put(key, body, create_only=create_only)  # type: ignore[arg-type]
            if key == "epochs/00000002.json" and self.requests["put"] == 1:
                log.append(1)
                old.sync()

    new = Daemon(log, GoesOn(store), state + ".other", seed=1, takeover=True)
    new.sync()
    log.append(1)
    with pytest.raises(FencedError):
        old.sync()
    first, second = read_replica(store).values()
    assert len(first.segments) == 2
    assert second.claim["relation"] == "continues"
    assert second.holds(0, first.segments[-1][0]["offset"] + first.segments[-1][0]["length"])


def test_every_open_generation_below_is_closed(log: LogBuilder, store: MemoryStore, state: str) -> None:
    """Owners that died right after their claims left their own generations and the one before open."""
    first = Daemon(log, store, state)
    first.sync()
    for number in range(2):
        faulty = FaultyStore(store, {"put": [Fault.NONE, Fault.NONE, Fault.BEFORE]})
        dead = Daemon(log, faulty, f"{state}.{number}", seed=number + 1, takeover=True)
        with pytest.raises(StoreError):
            dead.sync()
    last = Daemon(log, store, state + ".last", seed=9, takeover=True)
    last.sync()
    generations = list(read_replica(store).values())
    assert [bool(generation.terminal) for generation in generations] == [True, True, True, False]
    log.append(1)
    with pytest.raises(FencedError):
        first.sync()


def test_an_owner_that_was_overtaken_after_its_claim_writes_nothing_more(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    faulty = FaultyStore(store, {"put": [Fault.NONE, Fault.NONE, Fault.BEFORE]})
    daemon = Daemon(log, faulty, state)
    with pytest.raises(StoreError):
        daemon.sync()
    Daemon(log, store, state + ".other", seed=1, takeover=True).sync()
    before = objects(store)
    daemon.restart()
    with pytest.raises(SucceededError):
        daemon.sync()
    assert objects(store) == before
    daemon.restart(takeover=True)
    daemon.sync()
    assert list(read_replica(store).values())[-1].files() == log.files()


@pytest.mark.parametrize("late", ["/segments/", "/snapshots/"])
def test_an_owner_that_is_overtaken_before_it_begins_has_replicated_nothing(
    log: LogBuilder, store: MemoryStore, state: str, late: str
) -> None:
    """Otherwise its log is truncated, although readers skip a generation that ended before it began."""
    overtaking = OvertakenStore(store, late, Daemon(log, store, state + ".other", seed=1, takeover=True).sync)
    for _ in range(3):
        log.roll(2)
    daemon = Daemon(log, overtaking, state, backlog_sealer=True)
    with pytest.raises(SucceededError):
        daemon.sync()
    late_one, newest = read_replica(store)
    puts = [key for key in overtaking.put_keys if late_one in key]
    assert any("/snapshots/" in key for key in puts) == (late == "/snapshots/"), "it looks again before it puts"
    assert read_replicated(state) == {}
    assert read_replica(store)[newest].files() == log.files()


class OvertakenStore(CountingStore):
    """Has another owner take over before the first put of a key with ``part`` in it."""

    def __init__(self, inner: ObjectStore, part: str, overtake: Callable[[], object]) -> None:
        super().__init__(inner)
        self._part, self._overtake = part, overtake

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        if self._part and self._part in key:
            self._part = ""
            self._overtake()
        super().put(key, body, create_only=create_only)


def test_an_owner_that_loses_the_race_for_an_epoch_stops(log: LogBuilder, store: MemoryStore, state: str) -> None:
    faulty = FaultyStore(store, {"put": [Fault.BEFORE]})
    daemon = Daemon(log, faulty, state)
    with pytest.raises(StoreError):
        daemon.sync()
    Daemon(log, store, state + ".other", seed=1).sync()
    with pytest.raises(LostRaceError):
        daemon.sync()
    with pytest.raises(LostRaceError):
        daemon.sync()
    daemon.restart()
    with pytest.raises(ForeignClaimError):
        daemon.sync()


class LateMount(CountingStore):
    """A folder before its file system is mounted: empty and read-only. ``mounts_in``: how many requests fail before the
    mount; ``hides``: listings show nothing even after it."""

    mounts_in = 10**9
    hides = False

    def put(self, key: str, body: object, *, create_only: bool = True) -> None:
        if not self._is_mounted():
            raise StoreError("put", key, "read-only")
        super().put(key, body, create_only=create_only)  # type: ignore[arg-type]

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        if not self._is_mounted():
            raise NotFoundError(key)
        return super().open(key, byte_range)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return super().list(prefix, start_after) if self._is_mounted() and not self.hides else iter(())

    def _is_mounted(self) -> bool:
        self.mounts_in -= 1
        return self.mounts_in < 0


def late(log: LogBuilder, store: MemoryStore, state: str, *, forgotten: bool = False) -> tuple[Daemon, LateMount]:
    """A daemon that has shipped to the folder and was started again before the mount. ``forgotten``: a person had the
    daemon forget the replica."""
    mount = LateMount(store)
    daemon = Daemon(log, store, state)
    daemon.sync()
    daemon.close()
    log.append(1)
    daemon = Daemon(log, mount, state)
    if forgotten:
        kept = daemon.folder.load()
        assert kept is not None
        daemon.folder.save(Unclaimed(kept.owner, kept.log))
    return daemon, mount


@pytest.mark.parametrize("restarted", [False, True])
def test_a_replica_without_our_claim_is_unavailable_and_nothing_is_put_there(
    log: LogBuilder, store: MemoryStore, state: str, restarted: bool
) -> None:
    daemon, mount = late(log, store, state)
    for _ in range(2):
        with pytest.raises(
            ReplicaUnavailableError, match=r"epochs/00000001\.json: is not there.*litelog forget"
        ) as held:
            daemon.sync()
        assert held.value.retryable
    assert mount.requests["put"] == 0
    if restarted:
        daemon.restart()
    mount.mounts_in = 0
    daemon.sync()
    (only,) = read_replica(store).values()
    assert only.files() == log.files()


def test_another_replica_in_its_place_is_unavailable_too(
    log: LogBuilder, store: MemoryStore, state: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    daemon = Daemon(log, store, state)
    daemon.sync()
    daemon.close()
    other = MemoryStore("test")
    Daemon(log, other, str(tmp_path / "state.other"), seed=1, host="b.example").sync()
    before = objects(other)
    log.append(1)
    with pytest.raises(ReplicaUnavailableError, match=r"is of generation \w+ of owner \w+ on b\.example, not"):
        Daemon(log, other, state).sync()
    assert objects(other) == before
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []  # nothing was lost


def test_the_newer_claims_of_another_replica_fence_no_owner(
    log: LogBuilder, store: MemoryStore, state: str, tmp_path: Path
) -> None:
    daemon = Daemon(log, store, state)
    daemon.sync()
    other = MemoryStore("test")
    for number in range(3):
        Daemon(log, other, str(tmp_path / f"state.{number}"), seed=1 + number, takeover=True).sync()
    (mine,) = daemon.claims
    with pytest.raises(ReplicaUnavailableError, match="is of generation"):
        require_newest(ObjectReplicaClient(other), mine)
    require_newest(ObjectReplicaClient(store), mine)


def test_a_replica_that_is_forgotten_begins_again_where_it_is_empty(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    late(log, store, state, forgotten=True)[0].close()
    empty = MemoryStore("test")
    Daemon(log, empty, state).sync()
    (only,) = read_replica(empty).values()
    assert only.claim["relation"] == "first"
    assert only.files() == log.files()


@pytest.mark.parametrize("restarted", [False, True])
def test_an_owner_whose_mount_comes_late_is_not_fenced_by_its_own_claim(
    log: LogBuilder, store: MemoryStore, state: str, restarted: bool
) -> None:
    daemon, mount = late(log, store, state, forgotten=True)
    for _ in range(2):
        with pytest.raises(StoreError, match="read-only"):
            daemon.sync()
    if restarted:
        daemon.restart()
    mount.mounts_in = 0
    daemon.sync()
    old, new = read_replica(store).values()
    assert old.terminal is not None
    assert (new.claim["relation"], new.claim["predecessor"]) == ("continues", old.claim["generation"])
    assert new.files() == log.files()


@pytest.mark.slow
def test_a_mount_that_comes_at_any_moment_fences_no_owner(log: LogBuilder, store: MemoryStore, state: str) -> None:
    daemon, _ = late(log, store, state)
    daemon.close()
    for requests in range(8):
        copied = MemoryStore("test")
        for key, body in objects(store).items():
            copied.put(key, [body])
        copy_state(state, f"{state}.{requests}")
        mount = LateMount(copied)
        daemon = Daemon(log, mount, f"{state}.{requests}")
        mount.mounts_in = requests
        for _ in range(requests):  # each try is at least one request
            with suppress(StoreError):
                daemon.sync()
        daemon.sync()
        (only,) = read_replica(copied).values()
        assert only.files() == log.files()


def test_another_owner_that_claimed_while_the_mount_was_away_still_fences(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    daemon, mount = late(log, store, state)
    with pytest.raises(StoreError):
        daemon.sync()
    Daemon(log, store, state + ".other", seed=1, takeover=True).sync()
    before = objects(store)
    mount.mounts_in = 0
    for _ in range(2):
        with pytest.raises(SucceededError):
            daemon.sync()
        daemon.restart()
    kept = daemon.folder.load()
    assert kept is not None
    with pytest.raises(ForeignClaimError):
        daemon.owner.begin(Unclaimed(kept.owner, kept.log, kept.epoch, kept.tried), None)
    assert objects(store) == before
    daemon.restart(takeover=True)
    daemon.sync()
    assert list(read_replica(store).values())[-1].files() == log.files()


def test_an_owners_claim_missing_from_the_listing_is_looked_for_again(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    daemon, mount = late(log, store, state, forgotten=True)
    with pytest.raises(StoreError):
        daemon.sync()
    mount.mounts_in, mount.hides = 0, True
    for _ in range(2):
        with pytest.raises(ReplicaUnavailableError, match=r"epochs/00000001\.json: is not there"):
            daemon.sync()
    mount.hides = False
    daemon.sync()
    assert len(read_replica(store)) == 2


def test_a_first_snapshot_that_is_another_one_is_corruption(log: LogBuilder, store: MemoryStore, state: str) -> None:
    faulty = FaultyStore(store, {"put": [Fault.NONE, Fault.NONE, Fault.BEFORE]})
    daemon = Daemon(log, faulty, state)
    with pytest.raises(StoreError):
        daemon.sync()
    (body,) = objects(store).values()
    claim = claims.decode("epochs/00000001.json", body)
    store.put(f"generations/{claim.generation}/snapshots/{0:016x}.snapshot.lz4", [b"\x04\x22\x4d\x18junk"])
    with pytest.raises(CorruptObjectError):
        daemon.sync()


@pytest.mark.parametrize("log", ["lines", "raw"], indirect=True)
def test_the_id_of_a_foreign_format_is_adopted_once_its_bytes_match(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    Daemon(log, store, state).sync()
    log.append(1)
    Daemon(log, store, state + ".other", seed=1, takeover=True).sync()
    old, new = read_replica(store).values()
    assert old.claim["log"] == new.claim["log"]


@pytest.mark.parametrize("log", ["lines", "raw"], indirect=True)
def test_a_foreign_log_whose_bytes_do_not_match_is_refused(
    log: LogBuilder, store: MemoryStore, state: str, tmp_path: Path
) -> None:
    Daemon(log, store, state).sync()
    before = objects(store)
    other = make_log(tmp_path / "other", log.format.name)
    other.write(b"something else, and of the same name\n", log.name)
    with pytest.raises(OtherLogError):
        Daemon(other, store, state + ".other", seed=1, takeover=True).sync()
    assert objects(store) == before


def test_a_replica_of_another_log_or_format_is_refused(
    log: LogBuilder, store: MemoryStore, state: str, tmp_path: Path
) -> None:
    from uuid import UUID

    Daemon(log, store, state).sync()
    before = objects(store)
    other = make_log(tmp_path / "other")
    other.name = log.name
    other.write(other.header(UUID(int=7)) + other.commit())
    lines = make_log(tmp_path / "lines", "lines")
    lines.roll(1)
    for wrong in (other, lines):
        with pytest.raises(OtherLogError):
            Daemon(wrong, store, f"{state}.{wrong.format.name}", seed=1, takeover=True).sync()
    assert objects(store) == before


def test_a_log_without_a_header_yet_is_waited_for(tmp_path: Path, store: MemoryStore, state: str) -> None:
    log = make_log(tmp_path / "log")
    daemon = Daemon(log, store, state)
    for _ in range(2):
        with pytest.raises(SourceMissingError):
            daemon.sync()
    assert objects(store) == {}
    log.roll(1)
    daemon.sync()
    assert len(read_replica(store)) == 1


def test_state_is_kept_whole(state: str) -> None:
    with StateFolder(state, "test") as folder:
        assert folder.load() is None
        kept = Unclaimed("a" * 32, "b" * 32, epoch=1 << 31, tried="required", lost="a log segment")
        folder.save(kept)
        assert folder.load() == kept
        folder.save(replace(kept, owner="c" * 32))
        assert folder.load() == replace(kept, owner="c" * 32)
        assert sorted(os.listdir(state)) == ["lock", "state.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"version": 1}', b"\xff" * 10, b'{"version": 99}'])
def test_state_that_cannot_be_read_is_lost(state: str, content: bytes) -> None:
    with StateFolder(state, "test") as folder:
        Path(state, "state.json").write_bytes(content)
        assert folder.load() is None


@pytest.mark.slow
def test_every_changed_character_of_a_state_makes_it_lost(log: LogBuilder, store: MemoryStore, state: str) -> None:
    daemon = Daemon(log, store, state)
    daemon.sync()
    daemon.close()
    path = Path(state, "state.json")
    whole = path.read_text()
    with StateFolder(state, "test") as folder:
        assert folder.load() is not None
        for at, character in enumerate(whole):
            if character.isdigit():
                path.write_text(whole[:at] + str((int(character) + 1) % 10) + whole[at + 1 :])
                assert folder.load() is None
    assert json.loads(whole)["place"]["offset"] == len(log.texts[log.name])


def test_a_locked_state_folder_is_refused(state: str) -> None:
    with StateFolder(state, "one"), pytest.raises(ReplicaLockedError, match="two is in use"):
        StateFolder(state, "two")
    StateFolder(state, "two").close()


@pytest.mark.slow
def test_a_removed_state_folder_is_reported_with_what_to_do(state: str) -> None:
    with StateFolder(state, "test") as folder:
        shutil.rmtree(state)
        with pytest.raises(StateError, match=r"is gone.* start it once with --takeover"):
            folder.save(Unclaimed("a" * 32, "b" * 32))
