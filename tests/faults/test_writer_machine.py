"""A daemon meets a hostile writer, a failing store, crashes and a rival, in any order, and keeps its promises.

The test keeps the writer's histories: a history grows with each commit, and forks when the log is rewound. After
each step the independent reader reads the whole replica.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from litelog.errors import DivergedError, FencedError, SourceMissingError, StoreError
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon
from tests.builders.independent_reader import Generation, objects, read_replica
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.manual_clock import ManualClock
from tests.builders.stores import Fault, FaultyStore
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.shipping.events import WalSegmentShipped

History = dict[str, bytes]
"""Every commit that a log ever held between two rewinds, with those before it, by file."""

LIMIT = 8192
HALF_GRACE_SECONDS = 1801.0


class Side:
    """One log, its histories and its daemon."""

    def __init__(self, folder: str, name: str, store: MemoryStore, seed: int) -> None:
        self.folder = folder
        self.name = name
        self.seed = seed
        self.store = FaultyStore(store)
        self.seals = False
        """Whether the daemon ships log segments that are finished when it starts sealed."""
        self.clock = ManualClock()
        self.log: LogBuilder = make_log(os.path.join(folder, name))
        self.histories: list[History] = [{}]
        self.ends: dict[str, list[int]] = {}
        self.torn = b""
        self.forked: set[str] = set()
        """The log segments that show that the log was rewound. Nothing else shows it."""
        self.daemon: Daemon | None = None
        self.fenced_at: int | None = None
        self.acknowledged: list[WalSegmentShipped] = []

    @property
    def state(self) -> str:
        return os.path.join(self.folder, f"{self.name}-state")

    def write(self, data: bytes) -> None:
        self.complete()
        self.place(data)
        name = self.log.name
        self.histories[-1][name] = self.histories[-1].get(name, b"") + data
        self.ends.setdefault(name, []).append(len(self.histories[-1][name]))

    def place(self, data: bytes) -> None:
        """Write bytes at the end of the newest log segment's commits, where zeros may be already."""
        descriptor = os.open(self.log.path(), os.O_WRONLY | os.O_CREAT)
        os.pwrite(descriptor, data, len(self.histories[-1].get(self.log.name, b"")))
        os.close(descriptor)

    def append(self, commits: int, size: int) -> None:
        if not self.ends:
            self.roll()
        self.complete()
        for _ in range(commits):
            self.write(self.log.commit(size, self.tag))

    def roll(self) -> None:
        self.complete()
        self.log.name = f"{self.log.next:020d}.log"
        first = self.log.header() + self.log.commit(10, self.tag)
        self.write(first)

    @property
    def tag(self) -> bytes:
        return b"%d-%d-" % (self.seed, len(self.histories))

    def complete(self) -> None:
        """Write the missing rest of a torn commit."""
        if self.torn:
            rest, self.torn = self.torn, b""
            self.place(rest)
            self.histories[-1][self.log.name] += rest
            self.ends[self.log.name].append(len(self.histories[-1][self.log.name]))

    def tear(self, cut: int) -> None:
        self.complete()
        self.torn = self.log.commit(40, self.tag)
        self.place(self.torn[: cut % (len(self.torn) - 1) + 1])

    def trim(self) -> None:
        """Cut a torn commit off. Another commit will get its sequence."""
        if self.torn:
            self.torn = b""
            self.log.truncate(len(self.histories[-1][self.log.name]))
            self.log.next -= 1

    def rewind(self, commits: int) -> None:
        """Delete the newest commits, with whole log segments if need be, and begin another history."""
        self.trim()
        history = dict(self.histories[-1])
        while commits and self.ends:
            name = max(self.ends)
            self.ends[name].pop()
            if not self.ends[name]:
                del self.ends[name], history[name]
                self.log.delete(name)
            else:
                history[name] = history[name][: self.ends[name][-1]]
                self.log.truncate(len(history[name]), name)
            self.log.next -= 1
            commits -= 1
        self.histories.append(history)
        if self.ends:
            self.log.name = max(self.ends)
            self.forked.add(self.log.name)

    def delete_oldest(self) -> None:
        name = min(self.ends)
        del self.ends[name]
        self.log.delete(name)

    def copy_from(self, other: Side) -> None:
        """Become a copy of another log, which then grows by itself."""
        shutil.rmtree(self.log.folder)
        shutil.copytree(other.log.folder, self.log.folder)
        self.log.name, self.log.next = other.log.name, other.log.next
        self.log.texts = dict(other.log.texts)
        self.histories.append(dict(other.histories[-1]))
        self.ends = {name: list(ends) for name, ends in other.ends.items()}
        self.torn = other.torn
        self.forked = set(other.forked)

    def start(self, *, takeover: bool = False) -> None:
        self.stop()
        self.daemon = Daemon(
            self.log,
            self.store,
            self.state,
            clock=self.clock,
            seed=self.seed,
            takeover=takeover,
            limit=LIMIT,
            backlog_sealer=self.seals,
        )
        self.seed += 2
        self.daemon.acknowledged = self.acknowledged
        self.fenced_at = None

    def stop(self) -> None:
        if self.daemon is not None:
            self.daemon.crash()
            self.daemon = None

    def sync(self, faults: list[Fault]) -> None:
        self.store._script = {"put": list(faults), "open": [], "list": []}
        try:
            if self.daemon is None:
                self.start()
            assert self.daemon is not None
            self.daemon.sync()
        except (StoreError, SourceMissingError, DivergedError):
            pass  # to be tried again
        except FencedError:
            if self.fenced_at is None:
                self.fenced_at = len(self.acknowledged)
        finally:
            self.store._script = {}


class WriterMachine(RuleBasedStateMachine):
    @initialize(seals=st.booleans())
    def begin(self, seals: bool) -> None:
        self.folder = tempfile.mkdtemp(prefix="litelog-machine-")
        self.objects: dict[str, bytes] = {}
        self.inner = MemoryStore("machine")
        self.sides = [Side(self.folder, "here", self.inner, 100), Side(self.folder, "there", self.inner, 101)]
        for side in self.sides:
            side.seals = seals
        self.sides[0].append(1, 20)
        self.generations: dict[str, Generation] = {}

    def teardown(self) -> None:
        if not hasattr(self, "folder"):
            return
        try:
            self.finish()
        finally:
            for side in self.sides:
                side.stop()
            shutil.rmtree(self.folder)

    def finish(self) -> None:
        """End all faults and start the daemon again. After two syncs the replica holds the log's end."""
        side = self.sides[0]
        side.append(1, 20)
        side.start(takeover=True)
        for _ in range(2):
            side.sync([])
        self.look()
        newest = max(self.generations)
        held = self.generations[newest].files()
        present = {name: side.histories[-1][name] for name in side.ends}
        assert {name: held.get(name) for name in present} == present

    @rule(commits=st.integers(1, 3), size=st.sampled_from([10, 10, 3000]))
    def append(self, commits: int, size: int) -> None:
        self.sides[0].append(commits, size)

    @rule()
    def roll(self) -> None:
        self.sides[0].roll()

    @rule(cut=st.integers(0, 100))
    def tear(self, cut: int) -> None:
        if self.sides[0].ends:
            self.sides[0].tear(cut)

    @rule()
    def trim(self) -> None:
        self.sides[0].trim()

    @rule(commits=st.integers(1, 3), again=st.integers(0, 3))
    def rewind(self, commits: int, again: int) -> None:
        side = self.sides[0]
        if sum(map(len, side.ends.values())) > commits:
            side.rewind(commits)
            side.append(again, 10)

    @rule()
    def replace_inode(self) -> None:
        if self.sides[0].ends:
            self.sides[0].log.replace()

    @precondition(lambda self: len(self.sides[0].ends) > 1 and not self.sides[0].forked)
    @rule()
    def delete_oldest(self) -> None:
        self.sides[0].delete_oldest()

    @rule()
    def fill_with_zeros(self) -> None:
        side = self.sides[0]
        if side.ends and not side.torn:
            side.log.preallocate(len(side.histories[-1][side.log.name]))
            side.log.preallocate(len(side.histories[-1][side.log.name]) + 4096)

    @rule()
    def move_folder(self) -> None:
        """Restore the log: the same bytes in another folder."""
        folder = self.sides[0].log.folder
        shutil.copytree(folder, folder + ".copy")
        shutil.rmtree(folder)
        os.rename(folder + ".copy", folder)

    @rule(faults=st.lists(st.sampled_from([Fault.NONE, Fault.BEFORE, Fault.AFTER]), max_size=4))
    def sync(self, faults: list[Fault]) -> None:
        self.sides[0].sync(faults)

    @rule()
    def sync_well(self) -> None:
        self.sides[0].sync([])

    @rule(which=st.integers(0, 1), how=st.sampled_from(["keep", "keep", "roll back", "lose"]), takeover=st.booleans())
    def crash(self, which: int, how: str, takeover: bool) -> None:
        side = self.sides[which]
        if side.daemon is None:
            return
        side.stop()
        if how == "lose":
            shutil.rmtree(side.state)
        elif how == "roll back" and os.path.isdir(side.state + ".old"):
            shutil.rmtree(side.state)
            shutil.copytree(side.state + ".old", side.state)
        side.start(takeover=takeover)

    @rule(which=st.integers(0, 1))
    def keep_state_for_later(self, which: int) -> None:
        side = self.sides[which]
        if os.path.isdir(side.state):
            shutil.rmtree(side.state + ".old", ignore_errors=True)
            shutil.copytree(side.state, side.state + ".old")

    @rule(which=st.integers(0, 1))
    def sleep(self, which: int) -> None:
        self.sides[which].clock.advance(HALF_GRACE_SECONDS)

    @rule(
        commits=st.integers(0, 2), faults=st.lists(st.sampled_from([Fault.NONE, Fault.BEFORE, Fault.AFTER]), max_size=6)
    )
    def take_over(self, commits: int, faults: list[Fault]) -> None:
        """A rival starts on a copy of the log."""
        rival = self.sides[1]
        rival.stop()
        rival.copy_from(self.sides[0])
        shutil.rmtree(rival.state, ignore_errors=True)
        shutil.rmtree(rival.state + ".old", ignore_errors=True)
        rival.start(takeover=True)
        rival.append(commits, 10)
        rival.sync(faults)

    @rule(commits=st.integers(0, 2))
    def rival_goes_on(self, commits: int) -> None:
        rival = self.sides[1]
        if rival.ends:
            rival.append(commits, 10)
            rival.sync([])

    @invariant()
    def nothing_is_overwritten(self) -> None:
        if not hasattr(self, "objects"):
            return
        now = objects(self.inner)
        assert {key: now.get(key) for key in self.objects} == self.objects
        self.objects = now

    @invariant()
    def look(self) -> None:
        if not hasattr(self, "objects"):
            return
        self.generations = read_replica(self.inner)
        histories = [history for side in self.sides for history in side.histories]
        for generation in self.generations.values():
            assert self.is_history(generation.files(), histories), "bytes that the log never held together"
            self.check_relation(generation)

    @invariant()
    def what_was_acknowledged_is_there(self) -> None:
        for side in getattr(self, "sides", []):
            for event in side.acknowledged:
                assert self.generations[event.header.generation].holds(event.header.index, event.header.end)
            assert side.fenced_at is None or side.fenced_at == len(side.acknowledged)

    def is_history(self, files: History, histories: list[History]) -> bool:
        holds: Callable[[History], bool] = lambda history: all(  # noqa: E731
            history.get(name, b"").startswith(text) for name, text in files.items()
        )
        return any(map(holds, histories))

    def check_relation(self, generation: Generation) -> None:
        """Check that a generation that continues holds its predecessor's bytes, up to its own end."""
        claim = generation.claim
        if claim["relation"] != "continues":
            return
        older = self.generations[claim["predecessor"]]
        texts: dict[int, bytes] = {}
        for header, data, _ in generation.segments:
            texts[header["index"]] = texts.get(header["index"], b"") + data
        last = older.segments[-1][0] if older.segments else None
        if last is None or max(texts, default=-1) < last["index"] + claim["shift"]:
            return
        held = texts.get(last["index"] + claim["shift"], b"")
        shipped = b"".join(data for header, data, _ in older.segments if header["index"] == last["index"])
        if len(held) >= len(shipped):
            assert held.startswith(shipped), "reached its predecessor's end without its bytes"


TestWriterMachine = WriterMachine.TestCase
TestWriterMachine.settings = settings(
    max_examples=examples(50), stateful_step_count=40, suppress_health_check=list(HealthCheck)
)
