"""The course of a soak: what happens to a daemon over many logs, and what must be so at every step and at the end."""

from __future__ import annotations

import random
import signal
from collections import Counter
from typing import TYPE_CHECKING

from tests.faults.soak_complaints import count_errors
from tests.faults.soak_gauges import GUESTS
from tests.faults.soak_processes import LATE, Daemon, Follower, Writer
from tests.faults.soak_world import FOUND, KINDS, SPECIAL, World
from tests.sampling import sampled, times
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.builders.fault_proxy import FaultProxy
    from tests.builders.servers import S3Server
    from tests.faults.soak_gauges import Gauge
    from tests.faults.soak_processes import Labels

SEGMENT_BYTES = 8 << 10
PAUSE = 0.2
"""Seconds between two appends of one writer."""

OUTAGE_EVERY = 3
"""Rounds."""

REOPENED = {"reloaded", "named"}
"""Logs that a reload opens again. Their counters begin at zero again, too."""


class Soak:
    """The processes of the soak, and its counts."""

    def __init__(self, folder: Path, server: S3Server, proxy: FaultProxy, seed: int) -> None:
        self._seed = seed
        self.random = random.Random(seed)
        self.proxy = proxy
        self.world = World(folder, server, proxy)
        (folder / "lives").mkdir()
        self.lives: list[Daemon] = []
        self.rounds = 0
        self.counts: Counter[str] = Counter()
        self.guests: list[str] = []
        self.finished: dict[str, int] = {}
        """Logs that are gone, and had all been replicated: how many records."""
        self.abandoned: list[str] = []
        """Logs that went away in mid-flight."""
        self.written: dict[str, int] = {}
        self.errors: Counter[str] = Counter()
        self.followers: dict[str, Follower] = {}
        self.writers = [self._start_writer(number) for number in range(2)]
        for name in (*SPECIAL, *FOUND):
            self.open(name)

    def close(self) -> None:
        """End what still runs."""
        for process in (*self.writers, *self.lives, *(each.process for each in self.followers.values())):
            if process.process.poll() is None:
                process.end(signal.SIGKILL)

    # --- writers

    def _start_writer(self, number: int) -> Writer:
        self.counts["writers"] += 1
        name = self.world.folder / "lives" / f"writer-{self.counts['writers']}"
        return Writer(name, self._seed * 1000 + number, SEGMENT_BYTES, PAUSE)

    def writer_of(self, name: str) -> Writer:
        return self.writers[0 if name in SPECIAL else 1]

    def open(self, name: str) -> None:
        self.writer_of(name).order(f"open {self.world.path(name)}")

    def order_all(self, command: str) -> None:
        for writer in self.writers:
            writer.order(command)

    def look(self) -> dict[str, int]:
        """The sequence after each log's last durable record, by its folder."""
        for writer in self.writers:
            self.written |= writer.written()
        return self.written

    # --- the daemon

    @property
    def daemon(self) -> Daemon:
        return self.lives[-1]

    def start(self) -> None:
        name = self.world.folder / "lives" / f"daemon-{len(self.lives)}"
        self.lives.append(Daemon(name, self.world.config, self.world.socket))

    def acknowledged(self, name: str, kind: str) -> int:
        """The sequence after the last record that any run of the daemon reported as replicated."""
        log, replica = self.world.path(name), self.world.url(kind, name)
        return max(life.acknowledged(log, replica) for life in self.lives)

    def barrier(self, log: str | None = None) -> None:
        """Have all that was written be in all replicas, whatever fails meanwhile."""

        def reached() -> bool:
            done = self.daemon.barrier(log)
            self.counts["barriers that took too long"] += not done
            return done

        wait_until(reached, f"barrier for {log}", lambda: self.daemon.status()["reasons"])

    # --- what happens

    def restart(self) -> None:
        """A life of the daemon, under load and faults, to its end."""
        self.start()
        self.daemon.wait_until_ready()
        want = len(self.daemon.events("shipped")) + self.random.randint(1, 40)
        wait_until(lambda: len(self.daemon.events("shipped")) >= want, "it ships")
        if self.random.random() < 0.7:
            assert self.daemon.end(signal.SIGKILL) == -signal.SIGKILL
            self.counts["killed"] += 1
        else:
            code = self.daemon.end(signal.SIGTERM)
            assert code in (0, 4), self.daemon.errors()
            self.counts[f"terminated, exit code {code}"] += 1
        self.restore_one()

    def restore_one(self) -> None:
        """A log that is being written to, from one replica, with all that had been acknowledged there."""
        name, kind = self.random.choice([*SPECIAL, *FOUND]), self.random.choice(KINDS)
        self.world.check_restored(kind, name, self.acknowledged(name, kind))
        self.counts["restores under load"] += 1

    def round(self) -> Gauge:
        """All that may happen while a daemon lives, and what it takes afterwards."""
        self.rounds += 1
        going = self.guests
        self._invite()
        if going:
            self._remove_unwanted(going)
        self._reload()
        self._verify()
        if self.rounds % OUTAGE_EVERY == 0:
            self._outage()
        self.restore_one()
        self.order_all("rest")
        self.barrier()
        self.compare_counters()
        self.errors |= count_errors(self.daemon)
        gauge = self.daemon.gauge()
        self.order_all("go on")
        return gauge

    def _invite(self) -> None:
        self.guests = [f"round-{self.rounds}/{number}" for number in range(GUESTS)]
        for name in self.guests:
            self.open(name)
        wait_until(lambda: {self.world.path(name) for name in self.guests} <= self.daemon.logs(), "new logs are found")

    def _remove_unwanted(self, going: Sequence[str]) -> None:
        """Half of them go when all of them is replicated, half in the midst of being written."""
        orderly = going[: len(going) // 2]
        for name in orderly:
            self.writer_of(name).order(f"close {self.world.path(name)}")
            self.barrier(self.world.path(name))
            self.finished[name] = self.look()[self.world.path(name)]
            self.world.move_away(name)
        for name in going[len(orderly) :]:
            self.abandoned.append(name)
            self.writer_of(name).order(f"move {self.world.path(name)}\t{self.world.gone(name)}")
        gone = {self.world.path(name) for name in going}
        wait_until(lambda: not gone & self.daemon.logs(), "logs whose folders are gone are closed")
        self.counts["logs that went"] += len(going)

    def _reload(self) -> None:
        """Twice: one log has other settings and one is named no longer, and then it is as before."""
        named = self.world.path("named")
        for turn, there in ((1, False), (0, True)):
            before = self._logged("reloaded")
            self.world.configure(turn)
            self.daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda before=before: self._logged("reloaded") > before, "the configuration is read again")
            wait_until(lambda there=there: (named in self.daemon.logs()) == there, "a log is named, or no longer")
            self.counts["reloads"] += 1

    def _logged(self, event: str) -> int:
        return sum(fact.get("event") == event for fact in self.daemon.logged.read())

    def _verify(self) -> None:
        name, kind = self.random.choice([*SPECIAL, *FOUND]), self.random.choice(KINDS)
        self.world.check_verified(kind, name)
        self.counts["verifications"] += 1

    def _outage(self) -> None:
        """As long as it takes to be noticed; nothing is acknowledged meanwhile that is not there."""
        self.proxy.go_down()
        wait_until(lambda: self._late("s3"), "the outage is noticed", lambda: self.daemon.status()["reasons"])
        self.daemon.wait_for("/healthz", 503)
        failing = [reason for reason in self.daemon.status()["reasons"] if reason["kind"] == "failing"]
        assert all(reason["replica"].startswith("s3:") for reason in failing), failing
        for name in ("plain", *FOUND):
            self.world.check_stored("s3", name, self.acknowledged(name, "s3"))
        self.proxy.come_back()
        self.order_all("rest")  # a busy machine may never catch up with writers that go on
        self.barrier()
        self.daemon.wait_for("/healthz", 200)
        self.order_all("go on")
        self.counts["outages"] += 1

    def _late(self, kind: str) -> bool:
        """Whether the daemon reports late replicas of that kind. On a busy machine the other kind may be late, too."""
        reasons = [reason for reason in self.daemon.status()["reasons"] if reason["kind"] in LATE]
        return any(reason["replica"].startswith(f"{kind}:") for reason in reasons)

    def compare_counters(self) -> None:
        """With the writers at rest, the metrics agree with the daemon's output."""
        daemon = self.daemon

        def differences() -> dict[Labels, tuple[float, float]]:
            told = daemon.metrics("litelog_written_objects_total", "log", "replica", "object")
            said = daemon.written()
            logs = daemon.logs() - {self.world.path(name) for name in REOPENED}
            return {
                pair: (told.get(pair, 0), said.get(pair, 0))
                for pair in told.keys() | said.keys()
                if pair[0] in logs and told.get(pair) != said.get(pair)
            }

        wait_until(lambda: not differences(), "/metrics counts what the daemon reported", differences)

    # --- the end

    def follow(self) -> None:
        """Have two replicas followed from their beginning on."""
        for name, kind in (("plain", "s3"), (FOUND[0], "file")):
            place = self.world.folder / "lives" / f"follower-{kind}"
            self.followers[name] = Follower(place, self.world.config, self.world.url(kind, name))

    def finish(self) -> None:
        """All that was written is in all replicas, with faults to the end."""
        self.order_all("rest")
        self.barrier()
        self.proxy.plan.enabled = False
        self.daemon.wait_for("/healthz", 200)
        self.daemon.wait_for("/readyz", 200)
        self.compare_counters()
        self.errors |= count_errors(self.daemon)
        self._compare_with_stores()
        self._check_followers()
        assert self.daemon.end(signal.SIGTERM) == 0, self.daemon.errors()
        for writer in self.writers:
            writer.end(signal.SIGTERM)

    def _compare_with_stores(self) -> None:
        """For logs that this daemon was the first to see, the replicas hold as many objects as it counts, after the
        last snapshot."""
        began = self.daemon.metrics("litelog_generation_changes_total", "log", "replica", "reason")
        for name in self.guests:
            for kind in KINDS:
                changes = {key[2]: value for key, value in began.items() if self._is(key, name, kind)}
                assert changes == {"first": 1}
        wait_until(lambda: not self._uncounted(), "as many objects are there as are counted", self._uncounted)

    def _uncounted(self) -> dict[str, tuple[float, int]]:
        """Objects as they are counted, and as they are there, where these differ."""
        told = self.daemon.metrics("litelog_written_objects_total", "log", "replica", "object")
        return {
            f"{name} in {kind}: {what}": (own, count)
            for name in self.guests
            for kind in KINDS
            for what, count in self.world.count_objects(kind, name).items()
            if (own := sum(told[key] for key in told if self._is(key, name, kind) and key[2] == what)) != count
        }

    def _is(self, labels: Labels, name: str, kind: str) -> bool:
        return (labels[0], labels[1].partition("?")[0]) == (self.world.path(name), self.world.url(kind, name))

    def _check_followers(self) -> None:
        for name, follower in self.followers.items():
            written = self.look()[self.world.path(name)]

            def has_all(follower: Follower = follower, written: int = written) -> bool:
                return len(follower.sequences()) >= written

            wait_until(has_all, f"{name} is followed to its end", lambda each=follower: len(each.sequences()))
            self.counts["followers that gave up"] += follower.given_up
            assert follower.sequences() == list(range(written))
            follower.process.end(signal.SIGTERM)

    def check_replicas(self) -> int:
        """Restore every log from each of its replicas, half of them in a run by day; how many restores."""
        written = {name: self.look()[self.world.path(name)] for name in (*SPECIAL, *FOUND, *self.guests)}
        whole = {**written, **self.finished}
        pairs = [(kind, name) for kind in KINDS for name in (*whole, *self.abandoned)]
        restored = sampled(pairs, times(2, at_night=1), "restores at the end of the soak")
        for kind, name in restored:
            if name in whole:
                self.world.check_whole(kind, name, whole[name])
            else:
                self.world.check_beginning(kind, name, self.acknowledged(name, kind))
        return len(restored)
