"""The course of a soak: the events that a daemon over many logs meets, with checks after each step and at the end."""

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
    from tests.warm import Warm

SEGMENT_BYTES = 8 << 10
PAUSE = 0.2
"""Seconds between two appends of one writer."""

OUTAGE_EVERY = 3
"""The number of rounds from one outage to the next."""

REOPENED = {"reloaded", "named"}
"""Logs that a reload opens again. Their counters then restart at zero."""


class Soak:
    """The processes of the soak, and its counts."""

    def __init__(self, folder: Path, server: S3Server, proxy: FaultProxy, warm: Warm, seed: int) -> None:
        self._seed = seed
        self.random = random.Random(seed)
        self.proxy = proxy
        self.world = World(folder, server, proxy, warm)
        (folder / "lives").mkdir()
        self.lives: list[Daemon] = []
        self.rounds = 0
        self.counts: Counter[str] = Counter()
        self.guests: list[str] = []
        self.finished: dict[str, int] = {}
        """The number of records of each log that was removed after all of it was replicated."""
        self.abandoned: list[str] = []
        """Logs that were removed while they were written."""
        self.written: dict[str, int] = {}
        self.errors: Counter[str] = Counter()
        self.followers: dict[str, Follower] = {}
        self.writers = [self._start_writer(number) for number in range(2)]
        for name in (*SPECIAL, *FOUND):
            self.open(name)

    def close(self) -> None:
        """Kill the processes that still run."""
        for process in (*self.writers, *self.lives, *(each.process for each in self.followers.values())):
            if process.process.poll() is None:
                process.end(signal.SIGKILL)

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
        """Wait until everything that was written is in all replicas, in spite of faults."""

        def reached() -> bool:
            done = self.daemon.barrier(log)
            self.counts["barriers that took too long"] += not done
            return done

        wait_until(reached, f"barrier for {log}", lambda: self.daemon.status()["reasons"])

    def restart(self) -> None:
        """Run the daemon under load and faults, and then kill or terminate it."""
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
        """Restore a log during writes from one replica: it holds every record that was acknowledged there."""
        name, kind = self.random.choice([*SPECIAL, *FOUND]), self.random.choice(KINDS)
        self.world.check_restored(kind, name, self.acknowledged(name, kind))
        self.counts["restores under load"] += 1

    def round(self) -> Gauge:
        """Make every event happen that a living daemon may meet; return the gauge of the daemon after that."""
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
        """Remove half of the logs after all of each is replicated, and half while they are written."""
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
        """Reload twice: first one log has other settings and another is not named, then everything is as before."""
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
        """Take S3 down until the daemon reports it. The replicas hold every record that was acknowledged."""
        self.proxy.go_down()
        wait_until(lambda: self._late("s3"), "the outage is noticed", lambda: self.daemon.status()["reasons"])
        self.daemon.wait_for("/healthz", 503)
        failing = [reason for reason in self.daemon.status()["reasons"] if reason["kind"] == "failing"]
        assert all(reason["replica"].startswith("s3:") for reason in failing), failing
        for name in ("plain", *FOUND):
            self.world.check_stored("s3", name, self.acknowledged(name, "s3"))
        self.proxy.come_back()
        self.order_all("rest")  # on a busy machine the daemon may never catch up with writers that continue
        self.barrier()
        self.daemon.wait_for("/healthz", 200)
        self.order_all("go on")
        self.counts["outages"] += 1

    def _late(self, kind: str) -> bool:
        """Whether the daemon reports late replicas of that kind. On a busy machine the other kind may be late, too."""
        reasons = [reason for reason in self.daemon.status()["reasons"] if reason["kind"] in LATE]
        return any(reason["replica"].startswith(f"{kind}:") for reason in reasons)

    def compare_counters(self) -> None:
        """Wait until the metrics agree with the daemon's output, while the writers rest."""
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

    def follow(self) -> None:
        """Start followers of two replicas, from the first record on."""
        for name, kind in (("plain", "s3"), (FOUND[0], "file")):
            place = self.world.folder / "lives" / f"follower-{kind}"
            self.followers[name] = Follower(place, self.world.config, self.world.url(kind, name))

    def finish(self) -> None:
        """Wait until all replicas hold everything, with faults until then; check, and end all processes."""
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
        """Wait until the replicas hold as many objects as the daemon counts, for logs that it was the first to see.

        The last snapshot may come late."""
        began = self.daemon.metrics("litelog_generation_changes_total", "log", "replica", "reason")
        for name in self.guests:
            for kind in KINDS:
                changes = {key[2]: value for key, value in began.items() if self._is(key, name, kind)}
                assert changes == {"first": 1}
        wait_until(lambda: not self._uncounted(), "as many objects are there as are counted", self._uncounted)

    def _uncounted(self) -> dict[str, tuple[float, int]]:
        """The objects whose count in the metrics differs from the count in the replica, with both counts."""
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
        """Restore every log from each of its replicas, by day a quarter of them. Return the number of restores."""
        written = {name: self.look()[self.world.path(name)] for name in (*SPECIAL, *FOUND, *self.guests)}
        whole = {**written, **self.finished}
        pairs = [(kind, name) for kind in KINDS for name in (*whole, *self.abandoned)]
        restored = sampled(pairs, times(4, at_night=1), "restores at the end of the soak")
        for kind, name in restored:
            if name in whole:
                self.world.check_whole(kind, name, whole[name])
            else:
                self.world.check_beginning(kind, name, self.acknowledged(name, kind))
        return len(restored)
