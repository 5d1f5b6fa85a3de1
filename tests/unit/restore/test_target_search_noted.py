"""A restore to a time of a log whose writer notes times at some commits: Redis, with ``aof-timestamp-enabled``.

A restore has what was written by that time: as the notes say, and by the times of shipping where notes are missing.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from litelog.restore.history_plan import Target
from litelog.restore.target_search import MOST_QUIET
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon
from tests.builders.redis_log import RedisLog, make_redis_log
from tests.builders.restoring import files_in, restore_to
from tests.sampling import sampled

if TYPE_CHECKING:
    from pathlib import Path

SECOND = 1_000_000


class Written(NamedTuple):
    """A command: when it was written, and how many bytes the log had after it."""

    time: int
    end: int


class Scene:
    """Commands that a Redis writes, and a daemon that ships them when it gets to it. Times in microseconds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log: RedisLog = make_redis_log(folder / "log")
        self.store = MemoryStore()
        self.daemon = Daemon(self.log, self.store, str(folder / "state"), backlog_sealer=True)
        self.clock = self.daemon.clock
        self.noting = False
        self.written: list[Written] = []
        self.shipped: list[tuple[int, int]] = []
        """When the daemon shipped, and how many commands there were."""
        self._bytes = self._noted = self._restores = 0

    def write(self) -> None:
        note, second = b"", self.clock.now() // SECOND
        if self.noting and second > self._noted:
            note, self._noted = b"#TS:%d\r\n" % second, second
        command = note + self.log.commit()
        self.log.write(command)
        self._bytes += len(command)
        self.written.append(Written(self.clock.now(), self._bytes))

    def ship(self) -> None:
        self.clock.advance(0.01)
        self.daemon.sync()
        self.shipped.append((self.clock.now(), len(self.written)))
        self.clock.advance(0.01)

    def restored(self, time: int) -> int:
        """How many commands a restore to ``time`` has."""
        self._restores += 1
        out = self.folder / f"out-{self._restores}"
        restore_to(ObjectReplicaClient(self.store), out, Target(timestamp=time), log_format=self.log.format)
        size = sum(len(data) for name, data in files_in(out).items() if name.endswith("incr.aof"))
        ends = [0, *(command.end for command in self.written)]
        return ends.index(size)  # a whole number of commands

    def by_shipping(self, time: int) -> int:
        return max((count for when, count in self.shipped if when <= time), default=0)

    def by_notes(self, time: int) -> int:
        return sum(command.time // SECOND <= time // SECOND for command in self.written)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path)
    made.ship()  # the base file
    return made


@pytest.mark.parametrize("delay", [0, 2, 600])
def test_a_command_that_was_shipped_late_counts_when_it_was_written(scene: Scene, delay: int) -> None:
    scene.noting = True
    for _ in range(4):
        scene.write()
        scene.clock.advance(1)
    scene.clock.advance(delay)
    scene.ship()
    for number, command in enumerate(scene.written[:-1], 1):
        assert scene.restored(command.time) == number


def test_without_notes_the_times_of_shipping_count(scene: Scene) -> None:
    for _ in range(3):
        scene.write()
        scene.clock.advance(2)
        scene.ship()
    for command, (when, count) in zip(scene.written, scene.shipped[1:], strict=True):
        assert scene.restored(command.time) == count - 1
        assert scene.restored(when) == count


def test_the_last_second_is_restored_as_far_as_its_note_was_shipped_with_it(scene: Scene) -> None:
    """No later note shows when the commands that were shipped after it were written."""
    scene.noting = True
    scene.write()
    scene.write()
    scene.ship()
    scene.write()
    scene.clock.advance(60)
    scene.ship()
    assert scene.restored(scene.written[0].time) == 2
    assert scene.restored(scene.clock.now()) == 3


def test_commands_before_the_first_note_have_no_time_but_that_of_shipping(scene: Scene) -> None:
    scene.write()
    scene.clock.advance(5)
    scene.noting = True
    scene.write()
    scene.ship()
    assert scene.restored(scene.written[1].time - SECOND) == 0
    assert scene.restored(scene.written[1].time) == 2


def test_a_search_for_a_note_ends(scene: Scene) -> None:
    """A log whose writer notes no more times is not read to its end."""
    scene.noting = True
    scene.write()
    scene.ship()
    scene.noting = False
    for _ in range(4 * MOST_QUIET):
        scene.write()
        scene.ship()
    reads = len(scene.shipped)
    scene.clock.advance(5)
    assert scene.restored(scene.shipped[2][0]) == 2
    assert reads > 4 * MOST_QUIET


@pytest.mark.slow
@pytest.mark.parametrize("seed", sampled(range(120), 6, "histories of noted times"))
def test_any_history_is_restored_to_any_time(tmp_path: Path, seed: int) -> None:
    random, scene = Random(seed), Scene(tmp_path)
    scene.noting = from_start = random.random() < 0.7
    scene.ship()
    for _ in range(random.randrange(5, 40)):
        scene.clock.advance(random.choice([0, 0.1, 0.4, 1.1, 3]))
        if random.random() < 0.8:
            scene.write()
        if random.random() < 0.3:
            scene.clock.advance(random.choice([0, 0.2, 30]))
            scene.ship()
        if random.random() < 0.05:
            scene.noting = True
        if random.random() < 0.05 and scene.log.texts[scene.log.name]:
            scene.log.increment(len(scene.log.listed) + 1)
    scene.ship()
    last = max((command.time // SECOND for command in scene.written), default=0)
    first = scene.shipped[0][0]
    for time in {command.time for command in scene.written} | {when for when, _ in scene.shipped}:
        if time < first:
            continue
        found = scene.restored(time)
        assert found >= scene.by_shipping(time)
        assert found <= max(scene.by_notes(time), scene.by_shipping(time))
        if from_start and time // SECOND < last:
            assert found == scene.by_notes(time)
