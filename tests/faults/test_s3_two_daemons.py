"""Two daemons as processes on one S3 replica. Each is stopped and continued at any moment, with takeovers meanwhile."""

from __future__ import annotations

import json
import random
import signal
import threading
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto.server")

from litelog.errors import ExitCode
from litelog.objects.position import Position
from tests.builders.independent_reader import Generation, read_replica
from tests.builders.servers import REGION
from tests.builders.short_waits import RUN_COMMAND, SHORT_TRIAL
from tests.faults.figures import report
from tests.faults.processes import APPEND_RECORDS, Spoken, anything, shipped
from tests.sampling import sampled_cases, times

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.s3_replicas import Bench
    from tests.warm import Warm

TAKEOVERS = times(2, at_night=6)
"""The takeovers in a run. Each daemon is stopped at a random moment, taken over from, and then continued."""

MAX_PAUSE_SECONDS = 0.25
"""The longest pause before each of these moments."""

BEGINNING_REQUESTS = 9
"""The number of requests that a daemon sends before its first WAL segment."""

END_SECONDS = 240
"""Longer than any daemon takes to end, even on a busy machine."""


class Contest:
    """A log that grows all the time, and daemons that take over its replica from each other."""

    def __init__(self, warm: Warm, bench: Bench) -> None:
        self.warm = warm
        self.bench = bench
        self.daemons: list[Spoken] = []
        self.log = str(bench.folder / "contested")
        self.writer = Spoken(warm, APPEND_RECORDS, self.log, "1", "20000", "never", "0.02")
        self._running = [self.writer]
        self.writer.wait_for(anything)

    def start(self, *, takeover: bool = True) -> Spoken:
        """A daemon with a new identity, which takes over by default."""
        url = f"s3://{self.bench.bucket}/replica?endpoint={self.bench.proxy.endpoint}&region={REGION}&read-timeout=10s"
        state = str(self.bench.folder / "states" / str(len(self.daemons)))
        options = ("--takeover",) if takeover else ()
        words = ("replicate", *options, "--json", "--state-dir", state, "--sync-interval", "20ms", self.log, url)
        self.daemons.append(daemon := Spoken(self.warm, SHORT_TRIAL + RUN_COMMAND, *words))
        self._running.append(daemon)
        return daemon

    def end(self) -> None:
        """Kill the remaining processes. Idempotent."""
        while self._running:
            self._running.pop().kill()  # SIGKILL also ends a stopped process


@pytest.fixture
def contest(warm: Warm, bench: Bench) -> Iterator[Contest]:
    made = Contest(warm, bench)
    try:
        yield made
    finally:
        made.end()


def acknowledged(daemon: Spoken) -> list[Position]:
    """The positions that a daemon reported as shipped."""
    events = [json.loads(line) for line in daemon.lines]
    return [Position.parse(event["position"]) for event in events if event["event"] == "shipped"]


def assert_in_the_history(daemons: list[Spoken], history: dict[str, Generation]) -> int:
    """Assert that every acknowledged position is in its generation, to which no other daemon wrote.

    Returns the number of positions.
    """
    claimed: set[str] = set()
    count = 0
    for daemon in daemons:
        ends = acknowledged(daemon)
        mine = {end.generation for end in ends}
        assert not mine & claimed, "two daemons wrote to one generation"
        claimed |= mine
        assert len(mine) <= 1, "a daemon that was taken over from began again by itself"
        for end in ends:
            assert history[end.generation].holds(end.index, end.offset), f"{end} was acknowledged and is not there"
        count += len(ends)
    for generation in history.values():
        owners = {header["owner"] for header, _, _ in generation.segments}
        assert owners <= {generation.claim["owner"]}
    return count


def has_shipped(daemon: Spoken) -> bool:
    return shipped(daemon) > 0


@pytest.mark.parametrize("seed", sampled_cases([1, 2], 2, "seeds of daemons that are stopped"))
def test_a_daemon_that_was_stopped_and_taken_over_from_ends_fenced(contest: Contest, seed: int) -> None:
    choose = random.Random(seed)
    pause = threading.Event()
    old = contest.start()
    fenced = 0
    for _ in range(TAKEOVERS):
        old.wait_for(has_shipped)
        pause.wait(choose.uniform(0, MAX_PAUSE_SECONDS))
        old.process.send_signal(signal.SIGSTOP)
        new = contest.start()
        if choose.random() < 0.5:
            new.wait_for(has_shipped)  # continued after it was succeeded
        else:
            pause.wait(choose.uniform(0, 3 * MAX_PAUSE_SECONDS))  # or while it is succeeded
        old.process.send_signal(signal.SIGCONT)
        assert old.process.wait(END_SECONDS) == ExitCode.FENCED
        fenced += 1
        old = new
    old.wait_for(has_shipped)
    contest.end()
    history = read_replica(contest.bench.open(direct=True))
    count = assert_in_the_history(contest.daemons, history)
    shipped_to = {end.generation for daemon in contest.daemons for end in acknowledged(daemon)}
    assert len(shipped_to) == TAKEOVERS + 1, "a daemon shipped to no generation, or to two"
    report(
        f"s3_two_daemons_{seed}",
        takeovers=TAKEOVERS,
        exits_fenced=fenced,
        acknowledgements=count,
        acknowledgements_after_the_fence=0,
        false_fences=0,
    )


@pytest.mark.parametrize("number", sampled_cases(range(BEGINNING_REQUESTS + 2), 4, "requests of a daemon that begins"))
def test_a_takeover_while_the_old_daemon_is_stopped_at_each_of_its_requests(contest: Contest, number: int) -> None:
    """The ``number``-th request of the old daemon is held on its way while the new one takes over."""
    bench = contest.bench
    reached, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        go_on.wait(END_SECONDS)

    bench.proxy.plan.at_request(number, hold)
    old = contest.start(takeover=False)
    assert reached.wait(END_SECONDS)
    old.process.send_signal(signal.SIGSTOP)
    new = contest.start()
    new.wait_for(has_shipped)
    go_on.set()
    old.process.send_signal(signal.SIGCONT)
    code = old.process.wait(END_SECONDS)
    assert code == ExitCode.FENCED
    contest.end()
    assert_in_the_history(contest.daemons, read_replica(bench.open(direct=True)))
