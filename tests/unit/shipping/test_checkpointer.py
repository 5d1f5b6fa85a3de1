"""Checkpoints that the owner of a replica writes there: when, what they state, and what a crash or a thief leaves."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from litelog.copying.execution import copy
from litelog.objects import snapshot as snapshots
from litelog.objects.checkpoint import encode, fold
from litelog.objects.checkpoint_chain import join, link, newest_first
from litelog.objects.layout import checkpoint_key, parse_checkpoint, parse_sealed, parse_snapshot, parse_wal
from litelog.shipping.checkpoint_writer import FILE
from litelog.shipping.context import CheckpointPolicy, Settings
from litelog.stores.object_store import ObjectReplicaClient
from litelog.verify.execution import verify
from litelog.verify.findings import AnomalyKind
from replica_clients.memory import MemoryStore
from tests.builders.checkpoints import KEY, PRIVATE, PUBLIC, new_keys
from tests.builders.daemon_builder import Daemon
from tests.builders.independent_reader import objects
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.stores import CountingStore, KilledError, KillingStore, keys_of

pytest.importorskip("cryptography")

from litelog.checkpoints.replica_checkpoints import compare_with_own, find_trusted, read_checkpoints
from litelog.checkpoints.signing import SigningKey
from litelog.formats.registry import open_format

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.checkpoints.held_history import CheckpointComparison
    from litelog.objects.checkpoint import Checkpoint
    from litelog.objects.checkpoint_chain import StoredCheckpoint
    from litelog.stores.object_store import ByteRange, ObjectStore
    from tests.builders.manual_clock import ManualClock

HOUR = 3600.0


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    (tmp_path / "key.pem").write_text(PRIVATE)
    (tmp_path / "pub.pem").write_text(PUBLIC)
    return tmp_path


def policy(keys: Path, key: str = "key.pem", next_key: str | None = None) -> Settings:
    path = None if next_key is None else str(keys / next_key)
    return Settings(snapshot_segments=2, checkpoints=CheckpointPolicy(str(keys / key), HOUR, path))


def chain(store: ObjectStore) -> Sequence[StoredCheckpoint]:
    """All checkpoints of a replica, which must be sound and one chain."""
    stored, damaged = read_checkpoints(ObjectReplicaClient(store))
    assert not damaged
    if not stored:
        return ()
    linked = link(stored, newest_first(stored)[0])
    assert (linked.fault, len(linked.chain)) == (None, len(stored))
    return linked.chain


def compare(store: ObjectStore, *keys: str, known: StoredCheckpoint | None = None) -> CheckpointComparison:
    return compare_with_own(ObjectReplicaClient(store), open_format, keys or (KEY,), known)


def copied(store: MemoryStore) -> MemoryStore:
    copy = MemoryStore("copy")
    for key, body in objects(store).items():
        copy.put(key, [body])
    return copy


def stated(checkpoint: Checkpoint) -> dict[str, tuple[int, str]]:
    return {each.file: (each.length, each.digest) for each in checkpoint.segments}


def held(log: LogBuilder) -> dict[str, tuple[int, str]]:
    return {name: (len(body), hashlib.sha256(body).hexdigest()) for name, body in log.files().items()}


class RecordingStore(CountingStore):
    """Remembers the keys that were opened."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.opened: list[str] = []

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        self.opened.append(key)
        return super().open(key, byte_range)


class Signed:
    """A log, a daemon that signs, and their clock."""

    def __init__(self, log: LogBuilder, store: ObjectStore, state: str, clock: ManualClock, keys: Path) -> None:
        self.log, self.clock = log, clock
        self.daemon = Daemon(log, store, state, clock=clock, settings=policy(keys))
        self.daemon.sync()

    def grow(self, commits: int = 1) -> None:
        self.clock.advance(1)
        self.log.append(commits)
        self.daemon.sync()

    def roll(self) -> None:
        self.clock.advance(1)
        self.log.roll(1)
        self.daemon.sync()

    def hour(self) -> None:
        self.clock.advance(HOUR)
        self.grow()


@pytest.fixture
def signed(log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, keys: Path) -> Signed:
    return Signed(log, store, state, clock, keys)


@pytest.mark.parametrize("log", ["litelog", "lines", "raw"], indirect=True)
def test_each_snapshot_and_each_hour_of_growth_is_signed(signed: Signed, store: MemoryStore) -> None:
    assert [each.number for each in chain(store)] == [1]
    assert stated(chain(store)[0].checkpoint) == held(signed.log)
    signed.grow()
    assert len(chain(store)) == 1, "an hour has not passed"
    signed.hour()
    assert [each.number for each in chain(store)] == [1, 2]
    signed.roll()
    signed.roll()  # two sealed segments make a snapshot due
    newest = chain(store)[-1].checkpoint
    assert newest.number == 3
    assert stated(join(chain(store))) == held(signed.log)
    assert newest.position == signed.daemon.replica.position
    assert compare(store).differences == ()
    assert compare(store).compared == len(signed.log.files())


def test_an_idle_log_gets_no_checkpoint(signed: Signed, store: MemoryStore) -> None:
    for _ in range(5):
        signed.clock.advance(HOUR)
        signed.daemon.sync()
    assert len(chain(store)) == 1


def test_a_checkpoint_states_only_what_is_new_and_reads_nothing_old(
    log: LogBuilder, state: str, clock: ManualClock, keys: Path
) -> None:
    store = RecordingStore(MemoryStore("test"))
    signed = Signed(log, store, state, clock, keys)
    for _ in range(8):
        signed.roll()
    signed.grow()
    for name in sorted(log.files())[:-1]:
        os.unlink(log.path(name))  # sealed log segments are not read again
    store.opened.clear()
    signed.hour()
    contents = (parse_snapshot, parse_sealed, parse_checkpoint)
    assert [key for key in store.opened if any(parse(key) is not None for parse in contents)] == []
    newest = chain(store)[-1].checkpoint
    assert len(newest.segments) == 1
    assert newest.earlier == 8
    assert compare(store).compared == 9


class ExchangingStore(CountingStore):
    """A thief writes another digest into each snapshot, before anybody reads it."""

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        super().put(key, body, create_only=create_only)
        if parse_snapshot(key) is not None:
            made = snapshots.decode(key, self.inner.open(key).read())
            forged = tuple(replace(entry, digest="0" * 64) for entry in made.segments)
            self.inner.put(key, [snapshots.encode(replace(made, segments=forged))], create_only=False)


def test_a_digest_that_a_thief_wrote_into_a_snapshot_is_not_signed(
    log: LogBuilder, state: str, clock: ManualClock, keys: Path
) -> None:
    store = ExchangingStore(MemoryStore("test"))
    signed = Signed(log, store, state, clock, keys)
    for _ in range(8):
        signed.roll()
    signed.hour()
    assert len(chain(store)) > 4
    assert stated(join(chain(store))) == held(log)


def test_the_chain_goes_on_after_restarts_and_without_the_state_folders_file(
    signed: Signed, store: MemoryStore
) -> None:
    signed.hour()
    signed.daemon.restart()
    signed.daemon.sync()
    assert len(chain(store)) == 2, "a restart states nothing again"
    os.unlink(os.path.join(signed.daemon.state, FILE))
    signed.daemon.restart()
    signed.hour()
    assert [each.number for each in chain(store)] == [1, 2, 3]


def test_the_chain_goes_on_after_a_takeover(signed: Signed, store: MemoryStore, tmp_path: Path, keys: Path) -> None:
    signed.hour()
    signed.roll()
    signed.daemon.close()
    second = Daemon(
        signed.log, store, str(tmp_path / "second"), clock=signed.clock, takeover=True, settings=policy(keys)
    )
    second.sync()
    numbers = [each.number for each in chain(store)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert chain(store)[-1].checkpoint.position.generation == second.generation
    assert chain(store)[-1].checkpoint.reason is None
    assert stated(join(chain(store))) == held(signed.log)
    assert compare(store).differences == ()


def test_a_rewound_log_begins_its_history_again_and_says_why(signed: Signed, store: MemoryStore) -> None:
    signed.grow(3)
    signed.hour()
    signed.log.next = 0
    header = signed.log.header()
    signed.log.replace(header + signed.log.commit(20, b"other"))
    signed.daemon.sync()
    newest = chain(store)[-1].checkpoint
    assert newest.reason is not None
    assert newest.earlier == 0
    assert signed.daemon.generation in newest.reason
    assert compare(store).differences == ()


def test_a_thief_who_deletes_or_exchanges_is_named(signed: Signed, store: MemoryStore) -> None:
    for _ in range(3):
        signed.roll()
    signed.hour()
    known = chain(store)[-2]
    without_newest = copied(store)
    without_newest.delete([max(keys_of(store, parse_wal))])
    assert any("and held" in what for what in compare(without_newest).differences)
    older = copied(store)
    older.delete(keys_of(store, parse_checkpoint)[-2:])
    assert compare(older).differences == (), "by itself, an older state looks whole"
    (difference,) = compare(older, known=known).differences
    assert difference.startswith(f"lacks the checkpoint {known.number} of ")
    holed = copied(store)
    holed.delete(keys_of(store, parse_checkpoint)[1:2])
    (difference,) = compare(holed).differences
    assert "continues a checkpoint that is missing" in difference


def test_who_can_write_the_bucket_forges_no_history(
    signed: Signed, store: MemoryStore, tmp_path: Path, clock: ManualClock, keys: Path
) -> None:
    """A thief with a key of their own takes the replica over with another log, and signs that."""
    signed.hour()
    new_keys(tmp_path, "thief")
    forged = make_log(tmp_path / "forged")
    forged.roll(5, size=30)
    thief = Daemon(forged, store, str(tmp_path / "t"), clock=clock, takeover=True, settings=policy(keys, "thief.pem"))
    thief.sync()
    differences = compare(store).differences
    assert any("which no trusted key" in what for what in differences), differences
    assert any("holds other bytes" in what or "and held" in what or "lacks" in what for what in differences)


def test_keys_are_exchanged_by_a_signed_statement(signed: Signed, store: MemoryStore, keys: Path) -> None:
    new = new_keys(keys, "new")
    signed.daemon.settings = policy(keys, next_key="new.pub")
    signed.daemon.restart()
    signed.daemon.sync()
    assert chain(store)[-1].checkpoint.next_key == new, "the statement does not wait for the next hour"
    count = len(chain(store))
    signed.daemon.settings = policy(keys, "new.pem")
    signed.daemon.restart()
    signed.hour()
    assert (len(chain(store)), chain(store)[-1].checkpoint.key) == (count + 1, new)
    assert compare(store).differences == ()
    assert compare(store, new).differences == (), "the new key vouches for what its checkpoints continue"
    signed.daemon.settings = policy(keys)
    signed.daemon.restart()
    signed.hour()
    (difference,) = compare(store).differences
    assert "after another key had replaced it" in difference


def test_a_stolen_key_that_was_replaced_makes_no_history_that_counts(
    signed: Signed, store: MemoryStore, keys: Path
) -> None:
    """A thief with the old key leaves the checkpoints of the new one, and continues from before them."""
    new = new_keys(keys, "new")
    signed.daemon.settings = policy(keys, next_key="new.pub")
    signed.daemon.restart()
    signed.daemon.sync()
    fork = chain(store)[-1]
    signed.daemon.settings = policy(keys, "new.pem")
    signed.daemon.restart()
    signed.hour()
    assert compare(store).differences == ()
    last = fork.checkpoint.segments[-1]
    forged = replace(
        fork.checkpoint,
        number=1000,
        previous=fork.digest,
        earlier=fork.checkpoint.earlier + len(fork.checkpoint.segments) - 1,
        history=fold(fork.checkpoint.history, fork.checkpoint.segments[:-1]),
        segments=(last,),
    )
    body = encode(SigningKey(str(keys / "key.pem")).sign(forged))
    store.put(checkpoint_key(forged.position.generation, 1000), [body])
    for trusted in ((KEY,), (KEY, new), (new,)):
        assert compare(store, *trusted).differences, trusted


def test_a_chain_that_begins_without_the_one_before_is_named(signed: Signed, store: MemoryStore, keys: Path) -> None:
    """A daemon without its state folder was made to begin another chain, so that no reader asks for the first one."""
    signed.hour()
    begun = replace(join(chain(store)), number=1000, previous=None, earlier=0, history=None)
    body = encode(SigningKey(str(keys / "key.pem")).sign(begun))
    store.put(checkpoint_key(begun.position.generation, 1000), [body])
    (difference,) = compare(store).differences
    first = checkpoint_key(signed.daemon.generation, 1)
    assert difference == f"holds {first}, which {checkpoint_key(begun.position.generation, 1000)} does not continue"


def test_checkpoints_that_cannot_be_used_do_not_make_the_daemon_begin_again(
    signed: Signed, store: MemoryStore, state: str
) -> None:
    """A thief adds rubbish with high numbers, and waits for the next generation. Somebody removes the rubbish."""
    signed.hour()
    rubbish = [checkpoint_key(signed.daemon.generation, 1000 + number) for number in range(40)]
    for key in rubbish:
        store.put(key, [b"{}"])
    kept = os.path.join(state, FILE)
    os.rename(kept, f"{kept}.away")
    signed.daemon.restart()
    signed.hour()
    archive = signed.daemon.replica.archive
    assert archive is not None
    assert archive.checkpointer is not None
    assert "remove them" in (archive.checkpointer.status.error or "")
    os.rename(f"{kept}.away", kept)
    signed.log.next = 0
    signed.log.replace(signed.log.header() + signed.log.commit(20, b"other"))
    signed.daemon.sync()
    signed.hour()
    store.delete(rubbish)
    assert len(chain(store)) > 2
    assert compare(store).differences == ()


def test_a_key_that_no_checkpoint_names_is_not_trusted(
    signed: Signed, store: MemoryStore, keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    new = new_keys(keys, "new")
    signed.daemon.settings = policy(keys, "new.pem")
    signed.daemon.restart()
    signed.hour()
    assert f"no checkpoint names the key {new}" in caplog.text
    assert any("no trusted key" in what for what in compare(store).differences)
    assert compare(store, KEY, new).differences == ()


@pytest.mark.parametrize("after", [False, True])
def test_a_daemon_killed_at_a_checkpoint_continues_its_chain(
    log: LogBuilder, state: str, clock: ManualClock, keys: Path, after: bool
) -> None:
    store = MemoryStore("test")
    signed = Signed(log, store, state, clock, keys)
    signed.daemon.store = signed.daemon.beginning = KillingStore(store, 2, after=after)
    signed.daemon.restart()
    clock.advance(HOUR)
    log.append(1)
    with pytest.raises(KilledError):
        signed.daemon.sync()
    signed.daemon.store = signed.daemon.beginning = store
    assert len(chain(store)) == 1 + after
    signed.daemon.restart()
    signed.hour()
    assert compare(store).differences == ()
    assert stated(join(chain(store))) == held(log)


def test_failures_stop_nothing_and_are_reported(
    log: LogBuilder, state: str, clock: ManualClock, keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = (keys / "key.pem").read_text()
    (keys / "key.pem").unlink()
    store = MemoryStore("test")
    signed = Signed(log, store, state, clock, keys)
    for _ in range(3):
        signed.roll()
    archive = signed.daemon.replica.archive
    assert archive is not None
    assert archive.checkpointer is not None
    assert (archive.status.failures, archive.status.unsealed) == (0, 0)
    status = archive.checkpointer.status
    assert status.failures > 0
    assert "key.pem" in (status.error or "")
    assert (status.number, status.written) == (None, 0)
    line = next(line for line in caplog.records if getattr(line, "event", None) == "checkpoint-failed")
    assert line.name == "litelog.shipping.checkpointer"
    assert "writing a checkpoint failed 1 times in a row, trying again in" in line.getMessage()
    assert signed.daemon.replica.position is not None
    (keys / "key.pem").write_text(key)
    signed.clock.advance(60)
    signed.daemon.sync()
    assert (archive.checkpointer.status.failures, archive.checkpointer.status.number) == (0, 1)
    assert stated(join(chain(store))) == held(log)


@pytest.mark.parametrize("log", ["raw"], indirect=True)
def test_a_log_that_changed_under_the_daemon_is_not_signed(signed: Signed, store: MemoryStore) -> None:
    """The bytes are compared with those that were shipped before they are signed."""
    signed.log.append(1, size=200_000)
    signed.grow()
    signed.log.overwrite(100, b"\xff")
    signed.hour()
    archive = signed.daemon.replica.archive
    assert archive is not None
    assert archive.checkpointer is not None
    assert len(chain(store)) == 1
    assert "no longer holds the bytes that were shipped" in (archive.checkpointer.status.error or "")


def test_rubbish_in_the_way_is_stepped_over(signed: Signed, store: MemoryStore) -> None:
    name = signed.daemon.generation
    store.put(f"checkpoints/{name}/{2:016x}.json", [b"{}"])
    signed.hour()
    stored, damaged = read_checkpoints(ObjectReplicaClient(store))
    assert len(damaged) == 1
    assert [each.number for each in find_trusted(stored, [KEY]).chain] == [1, 3]


def test_an_older_state_folder_adopts_what_is_there(signed: Signed, store: MemoryStore) -> None:
    path = os.path.join(signed.daemon.state, FILE)
    with open(path, "rb") as file:
        older = file.read()
    signed.hour()
    signed.hour()
    with open(path, "wb") as file:
        file.write(older)
    signed.daemon.restart()
    signed.hour()
    assert [each.number for each in chain(store)] == [1, 2, 3, 4]
    assert compare(store).differences == ()


def test_a_long_history_takes_several_checkpoints(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litelog.shipping.checkpoint_writer.MOST_SEGMENTS", 3)
    for _ in range(9):
        log.roll(1)
    Signed(log, store, state, clock, keys)
    assert all(len(each.checkpoint.segments) <= 3 for each in chain(store))
    assert [each.checkpoint.next is None for each in chain(store)] == [True] * (len(chain(store)) - 1) + [False]
    assert stated(join(chain(store))) == held(log)
    assert compare(store).differences == ()


def test_verify_without_a_key_names_damage_and_holes_of_the_chain(signed: Signed, store: MemoryStore) -> None:
    for _ in range(3):
        signed.hour()
    report = verify(store, formats=open_format)
    assert (report.checkpoints, report.harmful) == (4, 0)
    keys = keys_of(store, parse_checkpoint)
    holed, damaged = copied(store), copied(store)
    holed.delete([keys[1]])
    (anomaly,) = verify(holed, formats=open_format).anomalies
    assert (anomaly.kind, anomaly.key, anomaly.harmful) == (AnomalyKind.CHAIN, keys[2], True)
    damaged.put(keys[3], [objects(store)[keys[3]].replace(b'"version": 2', b'"version": 3')], create_only=False)
    (anomaly,) = verify(damaged, formats=open_format).anomalies
    assert (anomaly.kind, anomaly.key, anomaly.harmful) == (AnomalyKind.CHECKSUM, keys[3], True)


def test_a_copy_has_the_checkpoints_last(signed: Signed, store: MemoryStore) -> None:
    signed.hour()
    target = CountingStore(MemoryStore("copy"))
    copy(store, target)
    assert [key for key in target.put_keys if parse_checkpoint(key)] == target.put_keys[-2:]
    assert compare(target).differences == ()
