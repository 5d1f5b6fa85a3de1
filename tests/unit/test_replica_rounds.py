"""Rounds of a folder replica that goes away at a random call and comes back later, of stores that lose objects, and of
daemons that crash meanwhile. Whatever was acknowledged is restored by default, after each round."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import pytest

from litelog.errors import StoreError
from litelog.object_store import ObjectReplicaClient
from litelog.restore.execution import restore
from litelog.restore.plan import Target, find_plan
from litelog.shipping.settings import Settings
from replica_clients.file import FileStore
from tests.manual_clock import ManualClock
from tests.unit.daemon_builder import Daemon
from tests.unit.log_builder import make_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.object_store import ByteRange, ObjectInfo

ROUNDS = 24
SEEDS = 4


class Mounted:
    """A store whose root goes away before a request that is chosen by ``leaves_in``: its place is gone, empty, or
    another replica's, until ``come_back``."""

    fences = True

    def __init__(self, root: Path, random: Random) -> None:
        self.root, self.random = root, random
        self.inner = FileStore(str(root))
        self.url = self.inner.url
        self.leaves_in = -1
        self.away = False

    def restart(self) -> None:
        """What a new process has: nothing that an earlier one knew."""
        self.inner = FileStore(str(self.root))

    def leave(self) -> None:
        """Move the root away, and put something or nothing in its place."""
        self.away = True
        self.root.rename(f"{self.root}.away")
        place = self.random.choice(["gone", "empty", "claimed"])
        if place != "gone":
            self.root.mkdir()
        if place == "claimed":  # another log's first claim has the name of ours
            shutil.copytree(self.root.parent / "other" / "epochs", self.root / "epochs")

    def come_back(self) -> None:
        """Bring it back; nothing was made in its place meanwhile. Sometimes as a copy, with other numbers."""
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


def restored(store: FileStore, target: Path) -> bytes:
    """All that a default restore gives, one log segment after the other."""
    client = ObjectReplicaClient(store)
    shutil.rmtree(target, ignore_errors=True)
    log_format = make_log(target.parent / "none").format
    restore(client, find_plan(client, Target(), log_format), str(target), log_format=log_format)
    return b"".join(path.read_bytes() for path in sorted(target.iterdir()))


def lose(root: Path, random: Random) -> str:
    """Have the store lose one object of the newest generation: a WAL segment, a sealed segment or a snapshot."""
    newest = max(path.name for path in (root / "generations").iterdir())
    objects = sorted((root / "generations" / newest).rglob("*.[ws]*[lt].lz4"))
    gone = random.choice(objects)
    gone.unlink()
    return gone.parent.name if gone.parent.name in ("segments", "snapshots") else "wal"


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("loses", [False, True])
def test_whatever_was_acknowledged_is_restored_after_each_round(tmp_path: Path, seed: int, loses: bool) -> None:
    random = Random(seed)
    log = make_log(tmp_path / "log")
    log.roll(2)
    foreign = make_log(tmp_path / "foreign")
    foreign.roll(1)
    other = FileStore(str(tmp_path / "other"))
    for number in range(3):
        Daemon(foreign, other, str(tmp_path / f"state.{number}"), seed=99 + number, takeover=True).sync()

    store, clock = Mounted(tmp_path / "replica", random), ManualClock()
    settings = Settings(snapshot_segments=random.choice([1, 3]), wal_retention=random.choice([1.0, 3600.0]))
    daemon = Daemon(log, store, str(tmp_path / "state"), clock=clock, contact=True, settings=settings, seed=seed)
    daemon.sync()
    met: Counter[str] = Counter()
    for _ in range(ROUNDS):
        store.leaves_in = random.randrange(12)
        for _ in range(random.randint(1, 6)):
            log.roll(random.randint(1, 3)) if random.random() < 0.3 else log.append(random.randint(1, 3))
            clock.advance(random.choice([1, 5, 60]))
            with suppress(StoreError):
                daemon.sync()
            if random.random() < 0.2:
                met["crash"] += 1
                daemon.crash()
                store.restart()
                daemon.start()
        if store.away:
            met["away"] += 1
            store.come_back()
        if loses:
            met[lose(store.root, random)] += 1
        store.leaves_in = -1
        if random.random() < 0.3:
            daemon.replica.doubt()
        for _ in range(8):  # what is in its way is a step each: a proof, a generation, what is left
            clock.advance(31)
            with suppress(StoreError):
                daemon.sync()
            if loses:
                daemon.replica.doubt()
                log.append(1)
        daemon.sync()
        acknowledged = sum(map(len, log.files().values()))
        text = restored(store.inner, tmp_path / "out")
        assert text == b"".join(data for _, data in sorted(log.files().items())), (met, acknowledged)
    assert met["away"] > ROUNDS / 3
    assert met["crash"]
