"""Rounds of a folder replica that goes away at a random call and comes back later, of stores that lose objects, and of
daemons that crash meanwhile. After each round, a default restore has all acknowledged data."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import pytest

from litelog.errors import StoreError
from litelog.shipping.context import Settings
from litelog.shipping.standing_check import check_replica
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.file import FileStore
from tests.builders.daemon_builder import Daemon, restored
from tests.builders.log_builder import make_log
from tests.builders.manual_clock import ManualClock
from tests.sampling import sampled_cases

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.stores.object_store import ByteRange, ObjectInfo

ROUNDS = 24
SEEDS = 40
"""A run takes one seed of each kind; a night takes all."""


class Mounted:
    """A store whose root goes away after ``leaves_in`` requests. Until ``come_back``, its place has no folder, an empty
    one, or another replica."""

    enforces_create_only = True

    def __init__(self, root: Path, random: Random) -> None:
        self.root, self.random = root, random
        self.inner = FileStore(str(root))
        self.url = self.inner.url
        self.leaves_in = -1
        self.away = False

    def restart(self) -> None:
        """Begin a new process, which knows nothing of the one before."""
        self.inner = FileStore(str(self.root))

    def leave(self) -> None:
        """Move the root away, and put something or nothing in its place."""
        self.away = True
        self.root.rename(f"{self.root}.away")
        place = self.random.choice(["gone", "empty", "claimed"])
        if place != "gone":
            self.root.mkdir()
        if place == "claimed":  # another log's first claim has the same name
            shutil.copytree(self.root.parent / "other" / "epochs", self.root / "epochs")

    def come_back(self) -> None:
        """Bring it back, sometimes as a copy with new inode numbers. Meanwhile, the daemon has put nothing there."""
        self.away = False
        self.leaves_in = -1
        if self.root.exists():
            made = sorted(path.name for path in self.root.rglob("*"))
            assert made in ([], ["00000001.json", "00000002.json", "00000003.json", "epochs"])
            shutil.rmtree(self.root)
        if self.random.random() < 0.5:
            shutil.copytree(f"{self.root}.away", self.root)
            shutil.rmtree(f"{self.root}.away")
        else:
            os.rename(f"{self.root}.away", self.root)

    def _step(self) -> None:
        if self.leaves_in == 0:
            self.leave()
        self.leaves_in -= 1

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        self._step()
        self.inner.put(key, body, create_only=create_only)

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        self._step()
        return self.inner.open(key, byte_range)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._step()
        return self.inner.list(prefix, start_after)

    def delete(self, keys: Iterable[str]) -> None:
        self._step()
        self.inner.delete(keys)

    def close(self) -> None: ...


def lose(root: Path, random: Random) -> str:
    """Have the store lose one object: a WAL segment, a sealed segment or a snapshot, each as often."""
    objects: dict[str, list[Path]] = {}
    for path in sorted((root / "generations").rglob("*.lz4")):
        objects.setdefault(path.name.split(".")[1], []).append(path)
    kind = random.choice(sorted(objects))
    random.choice(objects[kind]).unlink()
    return kind


def check(daemon: Daemon, store: FileStore) -> None:
    """What the daemon does once a day."""
    client = ObjectReplicaClient(store)
    log_format = daemon.log.format
    found = check_replica(
        store, client, lambda: daemon.replica.known, 0, formats=lambda _: log_format, should_continue=lambda: True
    )
    if found is not None:
        daemon.replica.repair([anomaly.key for anomaly in found.anomalies])


class Rounds:
    """A log, its daemon and its folder replica."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, Random(seed)
        self.log = make_log(folder / "log")
        self.log.roll(2)
        self.store, self.clock = Mounted(folder / "replica", self.random), ManualClock()
        settings = Settings(
            snapshot_segments=self.random.choice([1, 3]), wal_retention=self.random.choice([1.0, 3600.0])
        )
        state = str(folder / "state")
        self.daemon = Daemon(
            self.log, self.store, state, clock=self.clock, backlog_sealer=True, settings=settings, seed=seed
        )
        self.daemon.sync()
        self.met: Counter[str] = Counter()

    def make_foreign(self) -> None:
        """Another log's replica, whose claims have the same names."""
        foreign = make_log(self.folder / "foreign")
        foreign.roll(1)
        other = FileStore(str(self.folder / "other"))
        for number in range(3):
            Daemon(foreign, other, str(self.folder / f"state.{number}"), seed=99 + number, takeover=True).sync()

    def work(self) -> None:
        """Append and sync, while the replica goes away at some request and the daemon may crash."""
        random = self.random
        self.store.leaves_in = random.randrange(12)
        for _ in range(random.randint(1, 6)):
            self.log.roll(random.randint(1, 3)) if random.random() < 0.3 else self.log.append(random.randint(1, 3))
            self.clock.advance(random.choice([1, 5, 60]))
            with suppress(StoreError):
                self.daemon.sync()
            if random.random() < 0.2:
                self.met["crash"] += 1
                self.daemon.crash()
                self.store.restart()
                self.daemon.start()

    def repair(self, *, loses: bool) -> None:
        """Bring the replica back, without some object if it ``loses`` any, and let the daemon continue."""
        if self.store.away:
            self.met["away"] += 1
            self.store.come_back()
        self.store.leaves_in = -1
        if loses:
            self.met[lose(self.store.root, self.random)] += 1
        for _ in range(8):  # each sync takes one step: a proof, a new generation, the rest
            self.clock.advance(31)
            with suppress(StoreError):
                self.daemon.sync()
            if loses:
                check(self.daemon, self.store.inner)
                self.log.append(1)
        self.daemon.sync()


@pytest.mark.slow
@pytest.mark.parametrize("seed", sampled_cases(range(SEEDS), SEEDS, "rounds of a replica that goes away"))
@pytest.mark.parametrize("loses", [False, True])
def test_acknowledged_data_is_restored_after_each_round(tmp_path: Path, seed: int, loses: bool) -> None:
    rounds = Rounds(tmp_path, seed)
    rounds.make_foreign()
    generations = {rounds.daemon.generation}
    for _ in range(ROUNDS):
        rounds.work()
        rounds.repair(loses=loses)
        held = b"".join(data for _, data in sorted(rounds.log.files().items()))
        assert b"".join(restored(rounds.store.inner, tmp_path / "out").values()) == held, rounds.met
        generations.add(rounds.daemon.generation)
    assert rounds.met["away"] > ROUNDS / 6
    assert (len(generations) > 1) is loses
    assert rounds.met["crash"] > 0
