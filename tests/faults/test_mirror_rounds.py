"""Random rounds of a mirror: faults of its network, its disk and its source, which is taken over, pruned, truncated and
rewound, whose clock jumps, and which revokes the mirror's token. It is a prefix of the log, or says why not."""

from __future__ import annotations

import errno
import os
from collections import Counter
from contextlib import ExitStack
from random import Random
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("urllib3")

from litelog.errors import DivergedError, LitelogError, PrunedError, StoreError
from litelog.log.mirror_note import MIRROR_NAME
from litelog.log.writer import LOCK_NAME
from litelog.restore import growing_copy
from litelog.restore.mirror import SourceRefusedError, set_aside
from litelog.restore.opened_mirror import opened_mirror
from litelog.stores import retrying_store
from litelog.stores.retrying_store import RetryPolicy
from litelog.system.clock import SystemClock
from litelog.system.files import write_at
from replica_clients import http
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.restoring import files_in
from tests.builders.server_builder import Watched
from tests.builders.tcp_faults import FAULTS, TcpFaults
from tests.faults.figures import report
from tests.sampling import NIGHTLY, SEED, times
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.restore.mirror import Mirror

ROUNDS = times(200, at_night=2000)
TORN = b"torn commit"
OPTIONS = {"read_timeout": 0.3, "connect_timeout": 2.0}
TOKEN, OTHER_TOKEN = ("the-token-of-the-mirror-0123456789", "another-token-of-somebody-0123456789")
HOUR = 3600.0


class JumpingClock(SystemClock):
    """The machine's clock, which the rounds move."""

    jumped = passed = 0.0

    def now(self) -> int:
        return super().now() + int((self.jumped + self.passed) * 1_000_000)

    def monotonic(self) -> float:
        return super().monotonic() + self.passed


class World:
    """A log, its daemon, a network with faults, and the folder of a mirror."""

    def __init__(self, tmp_path: Path, random: Random, proxy: TcpFaults, stack: ExitStack) -> None:
        self.random = random
        self.proxy = proxy
        self.out = tmp_path / "out"
        self.log: LogBuilder = make_log(tmp_path / "log")
        self.log.roll(2)
        self.forked: list[dict[str, bytes]] = []
        """The histories that the log had before it was rewound."""
        self.seen: Counter[str] = Counter()
        self.full = False
        self.clock = JumpingClock()
        self._owner = 0
        self._objects: set[str] = set()
        self._token = tmp_path / "token"
        self._folder = tmp_path
        self._mirror: Mirror | None = None
        self._opened = ExitStack()
        self._stack = stack
        self.write_token(TOKEN)
        self.start()

    @property
    def options(self) -> dict[str, object]:
        """The options of the mirror, which has always the same token."""
        return {**OPTIONS, "token": TOKEN}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.proxy.port}/logs/log"

    def write_token(self, token: str) -> None:
        """Let the daemon accept this token only."""
        self._token.write_text(f"{token}\n")
        self._token.chmod(0o600)

    def start(self, *, takeover: bool = False) -> None:
        """Begin the daemon, after the end of the one before, as its owner or as another one."""
        self._stack.close()
        self._owner += takeover
        made = Watched(
            self._folder,
            [(self.log, [f"file://{self._folder}/replica"])],
            {"serve": "all", "token_file": str(self._token)},
            log_settings={"takeover": takeover, "truncate": {"max_bytes": 0}},
            replica_settings={"snapshot_segments": 1, "wal_retention": HOUR},
            state=f"state{self._owner}",
            clock=self.clock,
        )
        watched = self._stack.enter_context(made)
        watched.wait_until_ready()
        address = watched.service.address
        assert address is not None
        self.proxy.upstream = ("127.0.0.1", address.port)

    def write_at(self, file: int, data: memoryview, offset: int) -> int:
        """As ``write_at``; the disk may be full after a part of the bytes."""
        if self.full and self.random.random() < 0.5:
            self.seen["disk full"] += 1
            write_at(file, data[: self.random.randrange(len(data))], offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_at(file, data, offset)

    def happen(self) -> None:
        """Let something happen to the log, its daemon and the mirror's folder."""
        random, log = self.random, self.log
        for _ in range(random.randrange(1, 4)):
            log.append(random.randrange(1, 4), size=random.choice((10, 10, 500, 5000)))
            if random.random() < 0.1:
                log.roll(1)
        self.full = random.random() < 0.1
        self.write_token(OTHER_TOKEN if random.random() < 0.05 else TOKEN)
        chance = random.random()
        if chance < 0.03:
            self.seen["restart"] += 1
            self.start()
        elif chance < 0.06:
            self.proxy.drop_all()
        elif chance < 0.08:
            self.rewind()
        elif chance < 0.1:
            self.take_over()
        elif chance < 0.13:
            self.jump()
        elif chance < 0.16:
            self.let_hours_pass()
        elif chance < 0.35 and self._mirror is None and self.held() == self.whole() != {}:
            self.seen["torn"] += 1
            with (self.out / max(self.held())).open("ab") as file:
                file.write(TORN)

    def take_over(self) -> None:
        """Let another owner have the replica."""
        self.seen["takeover"] += 1
        self.start(takeover=True)

    def jump(self) -> None:
        """Set the machine's clock."""
        self.seen["clock"] += 1
        self.clock.jumped = self.random.choice((-2 * HOUR, 0.0, 2 * HOUR))

    def let_hours_pass(self) -> None:
        """Let the WAL segments that a snapshot covers become old enough to be deleted."""
        self.seen["hours"] += 1
        self.clock.passed += 2 * HOUR

    def count_deleted(self) -> int:
        """How many objects of the replica that were there at an earlier call are gone."""
        folders = os.walk(self._folder / "replica")  # a folder that the daemon deletes meanwhile raises no error here
        there = {os.path.join(folder, name) for folder, _, names in folders for name in names if ".wal" in name}
        self._objects |= there
        return len(self._objects - there)

    def rewind(self) -> None:
        """Take the last records back, and write others in their place."""
        log = self.log
        size = len(log.texts[log.name])
        self.forked.append(dict(log.texts))
        first = log.next
        log.truncate(len(log.header()))
        log.next = int(log.name.partition(".")[0])
        while log.next < first or len(log.texts[log.name]) <= size:
            log.append(1, size=40)
        self.seen["rewind"] += 1

    def held(self) -> dict[str, bytes]:
        """The mirror's log segments."""
        found = files_in(self.out) if self.out.exists() else {}
        return {name: data for name, data in found.items() if name not in (MIRROR_NAME, LOCK_NAME)}

    def whole(self) -> dict[str, bytes]:
        """The mirror's log segments, without what a round tore off their ends."""
        return {name: data.removesuffix(TORN) for name, data in self.held().items()}

    def mirror(self, steps: int) -> None:
        """Take some steps of the mirror, which is opened if it is not. Begin another one if it cannot continue."""
        try:
            if self._mirror is None:
                self._mirror = self._opened.enter_context(opened_mirror(self.url, self.options, str(self.out)))
            for _ in range(steps):
                self._mirror.step(0.01)
            if self.random.random() < 0.1:
                self.leave()
        except SourceRefusedError:
            self.seen["refused"] += 1
        except (DivergedError, PrunedError) as error:
            self.leave()
            self.seen["diverged"] += 1
            if isinstance(error, PrunedError) or not is_prefix(self.whole(), self.log.texts):
                set_aside(str(self.out))
        except LitelogError as error:
            revoked = isinstance(error, StoreError) and ("401" in str(error) or "revoked" in str(error))
            self.seen["revoked" if revoked else type(error).__name__] += 1
            self.leave()

    def leave(self) -> None:
        """Close the mirror."""
        self._opened.close()
        self._mirror = None


def since(first: str, log: dict[str, bytes]) -> dict[str, bytes]:
    """The log segments from one on."""
    return {name: data for name, data in log.items() if name >= first}


def is_prefix(files: dict[str, bytes], log: dict[str, bytes]) -> bool:
    """Whether log segments are those of a log up to some byte. A mirror of a log that was truncated may begin later."""
    held = since(min(files, default=""), log)
    grown = b"".join(files.get(name, b"") for name in held)
    return files.keys() <= held.keys() and b"".join(held.values()).startswith(grown)


def is_whole(files: dict[str, bytes], log: dict[str, bytes]) -> bool:
    """Whether log segments are those of a log up to its end."""
    return files == since(min(files, default=""), log)


def test_a_mirror_is_a_prefix_in_each_of_many_random_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "READ_SECONDS", 0.3)
    monkeypatch.setattr(retrying_store, "READING", RetryPolicy(attempts=3, first_seconds=0.001, longest_seconds=0.01))
    random = Random(f"{SEED} rounds of a mirror")
    with ExitStack() as stack, TcpFaults(("127.0.0.1", 1), random) as proxy:
        world = World(tmp_path, random, proxy, stack)
        monkeypatch.setattr(growing_copy, "write_at", world.write_at)
        wait_until(lambda: [world.mirror(1), is_whole(world.held(), world.log.texts)][1])
        for number in range(ROUNDS):
            world.happen()
            world.seen["pruned"] = max(world.seen["pruned"], world.count_deleted())
            for turn, event in enumerate((world.take_over, world.jump, world.let_hours_pass), 1):
                if number == turn * ROUNDS // 4:
                    event()
            proxy.rate = random.choice((0.0, 0.2, 0.5))
            world.mirror(random.randrange(1, 5))
            histories = [world.log.texts, *world.forked]
            assert any(is_prefix(world.whole(), history) for history in histories), f"round {number}"
        proxy.rate, world.full = 0.0, False
        world.write_token(TOKEN)
        wait_until(lambda: [world.mirror(3), is_whole(world.held(), world.log.texts)][1])
        world.seen["truncated"] = len(world.log.texts) - len(world.log.names())
        world.leave()
        report(
            "mirror_rounds", rounds=ROUNDS, failures=0, **world.seen, **{name: proxy.injected[name] for name in FAULTS}
        )
    assert all(proxy.injected.values())
    by_chance = ("pruned", "truncated", "revoked") if NIGHTLY else ()  # by day they may not come in time
    for event in ("disk full", "torn", "takeover", "clock", "hours", *by_chance):
        assert world.seen[event] > 0, event
