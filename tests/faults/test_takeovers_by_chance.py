"""Several daemons take over from each other, on one log that is truncated where it is acknowledged.

Each is paused at any request, crashed and started again. Every default restore holds all records that any daemon
acknowledged.
"""

from __future__ import annotations

import shutil
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest

from litelog.errors import DivergedError, FencedError, NothingToRestoreError, StoreError
from litelog.formats.litelog import LitelogFormat
from litelog.log.replica_registry import read_replicated
from litelog.objects.layout import parse_sealed, parse_snapshot
from litelog.reading.latest import find_extent, read_claims
from litelog.reading.replica_reader import ReplicaReader
from litelog.restore.execution import restore
from litelog.restore.history_plan import Target, find_plan
from litelog.shipping.context import Settings
from litelog.stores.object_store import ObjectReplicaClient
from litelog.verify.execution import verify
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon
from tests.builders.independent_reader import objects
from tests.builders.log_builder import make_log
from tests.builders.stores import Fault, FaultyStore
from tests.faults.turns import Turns, TurnStore
from tests.sampling import NIGHTLY, sampled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FORMAT = LitelogFormat()
SEEDS, ONE_IN = 100, 30
"""The number of runs, and the share of them that is made by day."""

HOSTS = 3

CHECKS = 0.03
"""The probability that everything is restored between two requests."""

KEEPS_GOING = 0.8
"""The probability that the next request is of the same host. The pauses of the others are long."""


class World:
    """One log, one replica, and hosts that each have a daemon with a state folder."""

    def __init__(self, folder: Path, seed: int, *, faults: bool) -> None:
        self.folder = folder
        self.random = Random(seed)
        self.store = MemoryStore("world")
        self.log = make_log(folder / "log")
        self.log.roll(2)
        self.turns = Turns(self._choose)
        rates = {"put": ([Fault.BEFORE, Fault.AFTER], 0.1)} if faults else None
        self.faulty = FaultyStore(self.store, rates=rates, seed=seed)
        self.daemons: list[Daemon | None] = [None] * HOSTS
        self.acknowledged: dict[str, int] = {}
        """The highest acknowledged end of each log segment, by any daemon."""
        self.fenced = self.checks = self.dropped = 0
        self.notes: list[str] = []
        self._runs = 0

    def live(self, host: int) -> Callable[[], None]:
        """The acts of a host: it starts, syncs, crashes and starts again, with or without ``--takeover``."""

        def run() -> None:
            for _ in range(6):
                self._start(host)
                self._sync(host)

        return run

    def _start(self, host: int) -> None:
        daemon, flag = self.daemons[host], self.random.random() < 0.6
        self.notes.append(f"{host}: start{' with the flag' if flag else ''}")
        if daemon is None:
            store = TurnStore(self.faulty, self.turns)
            state = str(self.folder / f"state{host}")
            settings = Settings(snapshot_segments=1)
            daemon = Daemon(self.log, store, state, seed=host, takeover=flag, backlog_sealer=True, settings=settings)
            daemon.on_shipped = lambda event: self._note(event.header.file, event.header.end)
            self.daemons[host] = daemon
        else:
            daemon.restart(takeover=flag)

    def _sync(self, host: int) -> None:
        daemon = self.daemons[host]
        assert daemon is not None
        for _ in range(self.random.randint(1, 6)):
            try:
                daemon.sync()
            except FencedError as error:
                self.fenced += 1
                self.notes.append(f"{host}: fenced: {error}")
                with pytest.raises(FencedError):
                    daemon.sync()
                return
            except (StoreError, DivergedError) as error:
                self.notes.append(f"{host}: {error}")
            self._write()

    def _note(self, file: str, end: int) -> None:
        self.acknowledged[file] = max(end, self.acknowledged.get(file, 0))

    def _write(self) -> None:
        """Write to the log, and sometimes truncate it."""
        if self.random.random() < 0.5:
            self.log.roll(1)
        else:
            self.log.append(self.random.randint(1, 2))
        if self.random.random() < 0.3:  # by the state of any host, even one that is paused
            held = read_replicated(str(self.folder / f"state{self.random.randrange(HOSTS)}"))
            for name, after in pairwise(list(self.log.files())[:-1]):
                if name not in held or after not in held:
                    break
                assert held[name].length == len(self.log.texts[name])
                self.log.delete(name)
                self.dropped += 1
                self.notes.append(f"truncated {name}")

    def _choose(self, alive: list[int]) -> int:
        if self.random.random() < CHECKS:
            self.check()
        if self.random.random() >= KEEPS_GOING or self._runs not in alive:
            self._runs = self.random.choice(alive)
        return self._runs

    def restored(self) -> dict[str, bytes]:
        output = self.folder / "restored"
        shutil.rmtree(output, ignore_errors=True)
        client = ObjectReplicaClient(self.store)
        try:
            plan = find_plan(client, Target(), FORMAT)
        except NothingToRestoreError:
            return {}
        restore(client, plan, str(output), log_format=FORMAT)
        return {path.name: path.read_bytes() for path in output.iterdir()}

    def generations(self) -> list[str]:
        """A description of each claim, for the person who looks for the cause of a failure."""
        return [
            f"{claim.generation} of {claim.owner[:4]}: {claim.relation} {claim.predecessor}, first {claim.first}, "
            f"shift {claim.shift}, {claim.reason}; {find_extent(ObjectReplicaClient(self.store), claim)}"
            for claim in read_claims(ObjectReplicaClient(self.store)).values()
        ]

    def check(self) -> None:
        self.checks += 1
        held = self.restored()
        for name, data in held.items():
            assert self.log.texts[name].startswith(data)
        for name, end in self.acknowledged.items():
            assert len(held.get(name, b"")) >= end, f"{name} up to {end} was acknowledged"

    def finish(self) -> None:
        """Take over a last time. After that every reader finds the whole log, and no other daemon writes."""
        self.faulty.enabled = False
        self.check()
        last = Daemon(self.log, self.store, str(self.folder / "last"), seed=99, takeover=True, backlog_sealer=True)
        last.on_shipped = lambda event: self._note(event.header.file, event.header.end)
        while last.sync():
            pass
        self.check()
        assert self.restored() == self.log.texts
        self.log.append(1)
        before = objects(self.store)
        for daemon in self.daemons:
            if daemon is not None and daemon.replica.started:
                with pytest.raises(FencedError):
                    daemon.sync()
        after = objects(self.store)
        added = after.keys() - before.keys()  # sealed before its owner noticed the fence
        assert all(parse_sealed(key) or parse_snapshot(key) for key in added)
        assert {key: after[key] for key in before} == before
        client = ObjectReplicaClient(self.store)
        report = verify(self.store, formats=lambda _: FORMAT)
        assert report.harmful == 0, [str(anomaly) for anomaly in report.anomalies]
        reader = ReplicaReader(client, formats=lambda _: FORMAT, generation=client.generations()[0])
        read = [number for batch in reader.batches() for number in batch.sequences.tolist()]
        assert read == list(range(self.log.next - 1))
        for daemon in (*self.daemons, last):
            if daemon is not None:
                daemon.crash()


def play(folder: Path, seed: int, *, faults: bool) -> World:
    world = World(folder, seed, faults=faults)
    try:
        world.turns.run(*(world.live(host) for host in range(HOSTS)))
        world.finish()
    except BaseException as error:
        error.add_note("\n".join([f"seed {seed}:", *world.notes, *world.generations()]))
        raise
    shutil.rmtree(folder)
    return world


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("faults", [False, True])
def test_acknowledged_records_are_in_every_default_restore(tmp_path: Path, faults: bool) -> None:
    worlds = [
        play(tmp_path / str(seed), seed, faults=faults)
        for seed in sampled(range(SEEDS), ONE_IN, f"takeovers, {'faults' if faults else 'no faults'}")
    ]
    assert sum(world.fenced for world in worlds) > len(worlds)
    assert sum(world.checks for world in worlds) > len(worlds)
    assert not NIGHTLY or sum(world.dropped for world in worlds) > len(worlds)
