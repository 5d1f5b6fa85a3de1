"""A soak: one daemon over many logs that come and go, writers that roll, restarts, reloads, a store that fails all the
while, restores in between. Nothing is lost, and what the daemon takes stays flat.

LITELOG_SOAK_SECONDS=60 is a minute, 900 a quarter of an hour; without it there is none.
LITELOG_SOAK_SEED chooses what happens when.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import ExitStack, closing
from statistics import median
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto.server")
pytest.importorskip("prometheus_client")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from tests.fault_proxy import Fault, When, fault_proxy
from tests.faults.figures import report
from tests.faults.soak_processes import Daemon, Follower, Writer, wait_until
from tests.faults.soak_world import FOUND, KINDS, SPECIAL, World

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.fault_proxy import FaultProxy
    from tests.faults.soak_processes import Gauge, Labels
    from tests.servers import S3Server

SECONDS = float(os.environ.get("LITELOG_SOAK_SECONDS", "60"))
"""How long at least, but for the beginning and the end."""

SEED = int(os.environ.get("LITELOG_SOAK_SEED", "1"))

FAULT_RATE = 0.04
FAULTS = (
    (Fault.SLOW_DOWN, When.BEFORE),
    (Fault.SLOW_DOWN, When.AFTER),
    (Fault.INTERNAL_ERROR, When.BEFORE),
    (Fault.INTERNAL_ERROR, When.AFTER),
    (Fault.RESET, When.BEFORE),
    (Fault.RESET, When.AFTER),
    (Fault.HANG, When.BEFORE),
    (Fault.HANG, When.LATE),
    (Fault.TRUNCATE, When.AFTER),
    (Fault.FLIP, When.AFTER),
)

SEGMENT_BYTES = 8 << 10
PAUSE = 0.1
"""Seconds between two appends of one writer."""

LEAKED_FILES, LEAKED_SOCKETS = 0.5, 1.5
"""Descriptors that a round may leave behind, but for connections, and connections: pools keep some, and more only once
more is done at a time. A leak in what a round does shows as 1 at least."""

LEAK_BYTES = 100 << 10
NOISE_BYTES = 64 << 20
"""What a process of this size may take more at one time than at another, and never again."""

MAX_THREADS = 80

GUESTS = 4
"""Found logs that come in each round, and go in the next one."""

MIN_RESTARTS, MIN_ROUNDS = 4, 9
WARMING_ROUNDS = 4
"""After which as many logs have been there at a time as ever will be."""

OUTAGE_EVERY = 3

REOPENED = {"reloaded", "named"}
"""Logs that a reload opens anew: what they count begins anew, too."""

EXPECTED_EVENTS = {"sync-failed", "let-go"}
"""What is logged as a warning, or worse."""

EXPECTED_ERRORS = {"store", "source_missing"}
"""Kinds of errors that syncs end with here: requests fail, and logs go away."""


class Soak:
    """Who takes part, and what was counted."""

    def __init__(self, folder: Path, server: S3Server, proxy: FaultProxy) -> None:
        self.random = random.Random(SEED)
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
        return Writer(name, SEED * 1000 + number, SEGMENT_BYTES, PAUSE)

    def writer_of(self, name: str) -> Writer:
        return self.writers[0 if name in SPECIAL else 1]

    def open(self, name: str) -> None:
        self.writer_of(name).order(f"open {self.world.path(name)}")

    def order_all(self, command: str) -> None:
        for writer in self.writers:
            writer.order(command)

    def look(self) -> dict[str, int]:
        """The sequence behind each log's last durable record, by its folder."""
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
        """The sequence behind the last record that any life said to be in a replica."""
        log, replica = self.world.path(name), self.world.url(kind, name)
        return max(life.acknowledged(log, replica) for life in self.lives)

    def barrier(self, *arguments: str) -> None:
        """Have all that was written be in all replicas, whatever fails meanwhile."""

        def reached() -> bool:
            done = self.world.litelog("sync", "--wait", "60s", *arguments)
            self.counts["barriers that took too long"] += done.returncode
            return done.returncode == 0

        wait_until(reached, f"barrier {arguments}: {self.daemon.status()['reasons']}")

    # --- what happens

    def restart(self) -> None:
        """A life of the daemon, under load and faults, to its end."""
        self.start()
        self.daemon.wait_for("/readyz", 200)
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
            self._part_with(going)
        self._reload()
        self._verify()
        if self.rounds % OUTAGE_EVERY == 0:
            self._outage()
        self.restore_one()
        self.order_all("rest")
        self.barrier()
        self.compare_counters()
        self.count_errors()
        gauge = self.daemon.gauge()
        self.order_all("go on")
        return gauge

    def _invite(self) -> None:
        self.guests = [f"round-{self.rounds}/{number}" for number in range(GUESTS)]
        for name in self.guests:
            self.open(name)
        wait_until(lambda: {self.world.path(name) for name in self.guests} <= self.daemon.logs(), "new logs are found")

    def _part_with(self, going: Sequence[str]) -> None:
        """Half of them go when all of them is replicated, half while they are written."""
        orderly = going[: len(going) // 2]
        for name in orderly:
            self.writer_of(name).order(f"close {self.world.path(name)}")
            self.barrier(self.world.path(name))
            self.finished[name] = self.look()[self.world.path(name)]
        for name in going[len(orderly) :]:
            self.abandoned.append(name)
        for name in going:
            self.world.move_away(name)
            if name not in orderly:
                self.writer_of(name).order(f"close {self.world.path(name)}")
        gone = {self.world.path(name) for name in going}
        wait_until(lambda: not gone & self.daemon.logs(), "logs that are gone are let go")
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
        done = self.world.litelog("verify", self.world.url(kind, name), "--quiet")
        assert done.returncode == 0, f"{name} in {kind}: {done.stdout}{done.stderr}"
        self.counts["verifications"] += 1

    def _outage(self) -> None:
        """As long as it takes to be noticed."""
        self.proxy.go_down()
        self.daemon.wait_for("/healthz", 503)
        reasons = [reason for reason in self.daemon.status()["reasons"] if reason["kind"] in ("lag", "failing")]
        assert reasons
        assert all(reason["replica"].startswith("s3:") for reason in reasons), reasons
        self.proxy.come_back()
        self.daemon.wait_for("/healthz", 200)
        self.counts["outages"] += 1

    def compare_counters(self) -> None:
        """With the writers at rest: the metrics tell what the daemon has said."""
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

        wait_until(lambda: not differences(), "what /metrics counts is what was said", differences)

    def count_errors(self) -> None:
        """Syncs fail for the reasons that there are, and where these are."""
        now: Counter[str] = Counter()
        for (replica, kind), count in self.daemon.metrics("litelog_errors_total", "replica", "kind").items():
            assert kind in EXPECTED_ERRORS, self.daemon.errors()
            assert kind == "source_missing" or replica.startswith("s3:"), self.daemon.errors()
            now[kind] += int(count)
        self.errors |= now

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
        self.count_errors()
        self._compare_with_stores()
        self._check_followers()
        assert self.daemon.end(signal.SIGTERM) == 0, self.daemon.errors()
        for writer in self.writers:
            writer.end(signal.SIGTERM)

    def _compare_with_stores(self) -> None:
        """Of logs that this daemon was the first to see: there are as many objects as it counts."""
        told = self.daemon.metrics("litelog_written_objects_total", "log", "replica", "object")
        began = self.daemon.metrics("litelog_generation_changes_total", "log", "replica", "reason")
        for name in self.guests:
            for kind in KINDS:
                for what, count in self.world.count_objects(kind, name).items():
                    own = [told[key] for key in told if self._is(key, name, kind) and key[2] == what]
                    assert sum(own) == count, f"{name} in {kind}: {what}"
                changes = {key[2]: value for key, value in began.items() if self._is(key, name, kind)}
                assert changes == {"first": 1}

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
            follower.process.end(signal.SIGINT)

    def check_logged(self) -> None:
        """What any life complained of is of an expected kind, and counted."""
        generations: dict[tuple[str, str], set[str]] = {}
        for life in self.lives:
            facts = life.logged.read()
            assert not life.logged.others, life.logged.others[:3]
            for fact in facts:
                if fact["level"] in ("WARNING", "ERROR", "CRITICAL"):
                    assert fact.get("event") in EXPECTED_EVENTS, fact
                    self.counts[f"logged {fact['event']}"] += 1
            for event in life.events("began"):
                generations.setdefault((event["log"], event["replica"]), set()).add(event["generation"])
            for event in life.events("verified"):
                assert not event["new"], event
                self.counts["scrubs"] += 1
        many = {pair: names for pair, names in generations.items() if len(names) > 1}
        assert not many, "no restart, reload or fault begins a generation"

    def check_replicas(self) -> int:
        """Restore every log from each of its replicas; how many restores."""
        written = {name: self.look()[self.world.path(name)] for name in (*SPECIAL, *FOUND, *self.guests)}
        whole = {**written, **self.finished}
        for kind in KINDS:
            for name, records in whole.items():
                self.world.check_whole(kind, name, records)
            for name in self.abandoned:
                self.world.check_beginning(kind, name, self.acknowledged(name, kind))
        return len(KINDS) * (len(whole) + len(self.abandoned))


def growth(gauges: Sequence[Gauge], field: str) -> float:
    """How much more the last third of a life takes a round than the first one, by their medians."""
    third = len(gauges) // 3
    values = [getattr(gauge, field) for gauge in gauges]
    return (median(values[-third:]) - median(values[:third])) / (len(gauges) - third)


def assert_flat(gauges: Sequence[Gauge]) -> None:
    """A leak of one descriptor, or of LEAK_BYTES, in each log that comes and goes, or in each reload, shows."""
    assert growth(gauges, "files") <= LEAKED_FILES, [gauge.files for gauge in gauges]
    assert growth(gauges, "sockets") <= LEAKED_SOCKETS, [gauge.sockets for gauge in gauges]
    noise = NOISE_BYTES / len(gauges)
    assert growth(gauges, "resident_bytes") <= GUESTS * LEAK_BYTES / 2 + noise, [
        gauge.resident_bytes >> 10 for gauge in gauges
    ]
    assert max(gauge.threads for gauge in gauges) <= MAX_THREADS, [gauge.threads for gauge in gauges]


@pytest.mark.skipif("LITELOG_SOAK_SECONDS" not in os.environ, reason="LITELOG_SOAK_SECONDS says how long to soak")
@pytest.mark.timeout(SECONDS * 3 + 1200)
def test_nothing_is_lost_and_nothing_grows(server: S3Server, tmp_path: Path, credentials: None) -> None:
    sys.stdout.write(f"LITELOG_SOAK_SEED={SEED} LITELOG_SOAK_SECONDS={SECONDS:g}\n")
    with ExitStack() as stack:
        proxy = stack.enter_context(fault_proxy(server.endpoint))
        soak = stack.enter_context(closing(Soak(tmp_path, server, proxy)))
        proxy.plan.at_random(FAULT_RATE, SEED, FAULTS)
        began = time.monotonic()
        while len(soak.lives) < MIN_RESTARTS or time.monotonic() - began < SECONDS / 4:
            soak.restart()
        soak.start()
        soak.daemon.wait_for("/readyz", 200)
        soak.follow()
        for _ in range(WARMING_ROUNDS):
            soak.round()
        gauges = []
        while len(gauges) < MIN_ROUNDS or time.monotonic() - began < SECONDS:
            gauges.append(soak.round())
            sys.stdout.write(f"{time.monotonic() - began:.0f} s: {gauges[-1]}\n")
        soak.finish()
        seconds = time.monotonic() - began
        soak.check_logged()
        restores = soak.check_replicas()
        figures = {**soak.counts, **{f"errors of syncs: {kind}": count for kind, count in soak.errors.items()}}
        report(
            "soak",
            seed=SEED,
            seconds=round(seconds),
            rounds=len(gauges),
            lives=len(soak.lives),
            restores_of_all=restores,
            records=sum(soak.look().values()),
            faults=proxy.injected.total(),
            files_a_round=round(growth(gauges, "files"), 2),
            sockets_a_round=round(growth(gauges, "sockets"), 2),
            kilobytes_a_round=round(growth(gauges, "resident_bytes") / 1000),
            threads=max(gauge.threads for gauge in gauges),
            acknowledged_records_lost=0,
            **{name.replace(", ", " ").replace(": ", " ").replace(" ", "_"): n for name, n in sorted(figures.items())},
        )
        assert_flat(gauges)
