"""What a thief with each kind of credentials can do against each promise, what shows it, and what restores it.

etc/docs/security.md has the table. Here the credentials are those of a store in memory that keeps versions. What locks
keep is in ``conformance/test_policies.py``, and what encryption and checkpoints show in ``cli/test_encryption.py`` and
``cli/test_verify_checkpoints.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litelog.errors import FencedError, LitelogError, NothingToRestoreError, StoreError
from litelog.objects.layout import parse_claim, parse_sealed, parse_snapshot, parse_wal, snapshot_key, wal_key
from litelog.objects.position import Position
from litelog.retention.policy import RetentionPolicy
from litelog.shipping.context import Settings
from litelog.shipping.pruner import PruningSession
from litelog.stores.object_store import ObjectReplicaClient
from litelog.verify.execution import verify
from tests.builders.daemon_builder import Daemon, restored
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.manual_clock import ManualClock
from tests.builders.thief import Rights, StolenStore, earlier
from tests.builders.versioned_store import VersionedStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from litelog.stores.object_store import ObjectStore
    from litelog.verify.report import VerifyReport

HOUR = 3600.0
PARSERS: dict[str, Callable[[str], object]] = {
    "claim": parse_claim,
    "snapshot": parse_snapshot,
    "sealed segment": parse_sealed,
    "WAL segment": parse_wal,
}


class World:
    """A log, a daemon that ships it, and the store that a thief reaches."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = VersionedStore()
        self.clock = ManualClock()
        self.log: LogBuilder = make_log(folder / "log")
        self.ends: set[tuple[str, int]] = set()
        """Each file with its sizes after whole commits."""
        self.settings = Settings(snapshot_segments=1)
        self.daemon = Daemon(self.log, self.store, str(folder / "state"), clock=self.clock, settings=self.settings)
        for _ in range(3):
            self.grow()
        self.acknowledged = self.log.files()
        self.objects = {info.key: self.store.open(info.key).read() for info in self.store.list("")}

    def grow(self) -> None:
        name = self.log.roll(1)
        for _ in range(2):
            for _ in range(2):
                self.ends.add((name, len(self.log.files()[name])))
                self.log.append(1)
            self.clock.advance(60)
            self.daemon.sync()

    def thief(self, rights: Rights) -> StolenStore:
        return StolenStore(self.store, rights)

    def restored(self, store: ObjectStore | None = None) -> dict[str, bytes]:
        return restored(store or self.store, self.folder / "restored")

    def verified(self) -> VerifyReport:
        return verify(self.store, formats=lambda _: self.log.format)

    def require_prefix_or_error(self) -> bool:
        """Whether a restore succeeds. Then it is a prefix of the log in whole commits; else nothing is there (P1, P3,
        P9)."""
        try:
            found = self.restored()
        except LitelogError:
            assert not (self.folder / "restored").exists()
            return False
        names = sorted(self.acknowledged)
        assert list(found) == names[: len(found)]
        for name, data in found.items():
            assert self.acknowledged[name].startswith(data)
            assert data == self.acknowledged[name] or (name, len(data)) in self.ends
        return True

    def require_earlier(self) -> None:
        """As it was before, the replica holds all that was acknowledged (P2), and the log was not touched (P11)."""
        assert self.restored(earlier(self.store)) == self.acknowledged
        now = self.log.files()
        assert all(now[name].startswith(data) for name, data in self.acknowledged.items())

    def newest(self, kind: str) -> str:
        return max(key for key in self.objects if PARSERS[kind](key) is not None)

    def oldest(self, kind: str) -> str:
        return min(key for key in self.objects if PARSERS[kind](key) is not None)

    def tampered(self) -> dict[str, str]:
        """The deleted and overwritten objects that ``verify`` reports, keyed by object."""
        kinds = {"deleted", "overwritten"}
        return {it.key: str(it.kind) for it in self.verified().anomalies if it.kind in kinds}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_who_reads_changes_nothing(world: World) -> None:
    """P1 to P11."""
    thief = world.thief(Rights.READ)
    assert {info.key: thief.open(info.key).read() for info in thief.list("")} == world.objects
    for key in world.objects:
        with pytest.raises(StoreError, match="no permission"):
            thief.put(key, [b"x"], create_only=False)
        with pytest.raises(StoreError, match="no permission"):
            thief.delete([key])
    assert world.restored() == world.acknowledged
    assert world.verified().is_sound
    world.grow()
    assert world.restored() == world.log.files()


def test_who_reads_gets_all_that_is_not_encrypted(world: World, tmp_path: Path) -> None:
    thief = world.thief(Rights.READ)
    assert restored(thief, tmp_path / "stolen") == world.acknowledged


def garbage(_: bytes) -> bytes:
    return b"what a thief writes"


def cut(content: bytes) -> bytes:
    return content[:-7]


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.slow
@pytest.mark.parametrize("kind", PARSERS)
@pytest.mark.parametrize("change", [garbage, cut, flipped])
@pytest.mark.parametrize("which", ["newest", "oldest"])
def test_who_writes_replaces_an_object_and_is_named(
    world: World, kind: str, change: Callable[[bytes], bytes], which: str
) -> None:
    """P1, P2, P3, P5, P9, P11."""
    key = world.newest(kind) if which == "newest" else world.oldest(kind)
    world.thief(Rights.WRITE).put(key, [change(world.objects[key])], create_only=False)
    assert world.tampered() == {key: "overwritten"}
    assert not world.verified().is_sound
    world.require_prefix_or_error()
    world.require_earlier()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["snapshot", "sealed segment", "WAL segment"])
def test_who_writes_exchanges_two_objects_and_is_named(world: World, kind: str) -> None:
    """P1, P3, P5."""
    keys = (world.oldest(kind), world.newest(kind))
    thief = world.thief(Rights.WRITE)
    for key, other in (keys, keys[::-1]):
        thief.put(key, [world.objects[other]], create_only=False)
    assert world.tampered() == dict.fromkeys(keys, "overwritten")
    world.require_prefix_or_error()
    world.require_earlier()


def test_who_writes_claims_the_replica_and_the_daemon_ends(world: World, tmp_path: Path) -> None:
    """P6, P10: a thief can stop the daemon, and what was acknowledged stays. A person takes the replica back."""
    thief = world.thief(Rights.READ | Rights.WRITE)
    Daemon(world.log, thief, str(tmp_path / "same"), clock=world.clock, takeover=True, seed=7).sync()
    world.log.append(1)
    with pytest.raises(FencedError):
        world.daemon.sync()
    assert world.require_prefix_or_error()
    world.require_earlier()
    world.daemon.restart(takeover=True)
    world.daemon.sync()
    assert world.restored() == world.log.files()


def test_who_writes_into_the_next_slot_makes_no_hole(world: World) -> None:
    """P2, P6, P7, P10: the daemon begins a generation that does not need the slot."""
    position = world.daemon.replica.position
    assert position is not None
    world.thief(Rights.WRITE).put(wal_key(position), [garbage(b"")])
    assert not world.verified().is_sound
    world.log.append(1)
    world.daemon.sync()
    assert world.daemon.generation != position.generation
    assert world.restored() == world.log.files()
    assert world.store.open(wal_key(position)).read() == garbage(b""), "the daemon overwrites nothing"


@pytest.mark.parametrize("body", [b"", b"what a thief writes"])
def test_who_writes_a_snapshot_makes_retention_delete_nothing_that_is_needed(world: World, body: bytes) -> None:
    """P8: a snapshot that cannot be read may name anything, so all stays."""
    generation = world.daemon.generation
    world.thief(Rights.WRITE).put(snapshot_key(generation, 99), [body])
    world.clock.advance(48 * HOUR)
    client = ObjectReplicaClient(world.store)
    policy = RetentionPolicy(max_snapshots=1)
    assert PruningSession(client, policy, world.clock, None, None, HOUR).prune() is not None
    needed = {key for key in world.objects if parse_sealed(key) is not None or parse_claim(key) is not None}
    assert needed <= {info.key for info in world.store.list("")}
    world.thief(Rights.DELETE).delete([snapshot_key(generation, 99)])
    assert world.restored() == world.acknowledged


@pytest.mark.slow
@pytest.mark.parametrize("kind", PARSERS)
def test_who_deletes_the_newest_object_of_a_kind_is_named(world: World, kind: str) -> None:
    """P1, P2, P3, P5, P9, P11."""
    key = world.newest(kind)
    world.thief(Rights.DELETE).delete([key])
    assert world.tampered()[key] == "deleted"
    assert not world.verified().is_sound
    world.require_prefix_or_error()
    world.require_earlier()


def test_who_deletes_everything_leaves_the_earlier_versions(world: World) -> None:
    """P2, P5, P6, P10, P11: the daemon ships nothing to a replica that lost its claim, and says so."""
    world.thief(Rights.DELETE).delete(list(world.objects))
    with pytest.raises(NothingToRestoreError):
        world.restored()
    assert set(world.tampered().values()) == {"deleted"}
    world.require_earlier()
    world.daemon.replica.doubt()
    world.log.append(1)
    with pytest.raises(StoreError, match="is not there"):
        world.daemon.sync()
    assert [info.key for info in world.store.list("")] == []


def test_who_deletes_what_was_acknowledged_makes_the_daemon_ship_it_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """P2, P7, P10: the log is still there, so a new generation holds all of it, with the reason."""
    key = world.newest("WAL segment")
    world.thief(Rights.DELETE).delete([key])
    world.daemon.replica.doubt()
    world.log.append(1)
    with caplog.at_level("ERROR"):
        world.daemon.sync()
    assert [record.event for record in caplog.records if hasattr(record, "event")] == ["objects-lost"]
    assert len(world.daemon.claims) == 2
    assert world.restored() == world.log.files()


@pytest.mark.slow
def test_who_deletes_one_of_many_makes_a_gap_that_has_a_position(world: World) -> None:
    """P5, P7: a reader names the place, and never reads past it."""
    world.log.append(1)
    world.daemon.sync()
    world.log.append(1)
    world.daemon.sync()
    found = sorted(info.key for info in world.store.list("") if parse_wal(info.key) is not None)
    middle = parse_wal(found[-2])
    assert isinstance(middle, Position)
    world.thief(Rights.DELETE).delete([found[-2]])
    with pytest.raises(LitelogError, match=str(middle.generation)):
        world.restored()
    assert found[-2] in " ".join(it.key for it in world.verified().anomalies)
