"""Random rounds of a mirror: faults of its network, its disk and its source. It is a prefix of the log, or says why
not."""

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

from litelog.errors import DivergedError, LitelogError, PrunedError
from litelog.log.mirror_note import MIRROR_NAME
from litelog.log.writer import LOCK_NAME
from litelog.restore import growing_copy
from litelog.restore.mirror import SourceRefusedError, set_aside
from litelog.restore.opened_mirror import opened_mirror
from litelog.stores import retrying_store
from litelog.stores.retrying_store import RetryPolicy
from litelog.system.files import write_at
from replica_clients import http
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.restoring import files_in
from tests.builders.server_builder import Watched
from tests.builders.tcp_faults import FAULTS, TcpFaults
from tests.faults.figures import report
from tests.sampling import SEED, times
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.restore.mirror import Mirror

ROUNDS = times(200, at_night=2000)
TORN = b"torn commit"
OPTIONS = {"read_timeout": 0.3, "connect_timeout": 2.0}


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
        self._folder = tmp_path
        self._mirror: Mirror | None = None
        self._opened = ExitStack()
        self._stack = stack
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.proxy.port}/logs/log"

    def start(self) -> None:
        """Begin the daemon, after the end of the one before."""
        self._stack.close()
        pairs = [(self.log, [f"file://{self._folder}/replica"])]
        watched = self._stack.enter_context(Watched(self._folder, pairs, {"serve": "all"}))
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
            if random.random() < 0.05:
                log.roll(1)
        self.full = random.random() < 0.1
        chance = random.random()
        if chance < 0.03:
            self.seen["restart"] += 1
            self.start()
        elif chance < 0.06:
            self.proxy.drop_all()
        elif chance < 0.08:
            self.rewind()
        elif chance < 0.3 and self._mirror is None and self.held() == self.whole() != {}:
            self.seen["torn"] += 1
            with (self.out / max(self.held())).open("ab") as file:
                file.write(TORN)

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
                self._mirror = self._opened.enter_context(opened_mirror(self.url, OPTIONS, str(self.out)))
            for _ in range(steps):
                self._mirror.step(0.01)
            if self.random.random() < 0.1:
                self.leave()
        except SourceRefusedError:
            self.seen["refused"] += 1
        except (DivergedError, PrunedError):
            self.leave()
            self.seen["diverged"] += 1
            if not is_prefix(self.whole(), self.log.texts):
                set_aside(str(self.out))
        except LitelogError as error:
            self.seen[type(error).__name__] += 1
            self.leave()

    def leave(self) -> None:
        """Close the mirror."""
        self._opened.close()
        self._mirror = None


def is_prefix(files: dict[str, bytes], log: dict[str, bytes]) -> bool:
    """Whether log segments are those of a log up to some byte."""
    grown = b"".join(files.get(name, b"") for name in log)
    return files.keys() <= log.keys() and b"".join(log.values()).startswith(grown)


def test_a_mirror_is_a_prefix_in_each_of_many_random_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "READ_SECONDS", 0.3)
    monkeypatch.setattr(retrying_store, "READING", RetryPolicy(attempts=3, first_seconds=0.001, longest_seconds=0.01))
    random = Random(f"{SEED} rounds of a mirror")
    with ExitStack() as stack, TcpFaults(("127.0.0.1", 1), random) as proxy:
        world = World(tmp_path, random, proxy, stack)
        monkeypatch.setattr(growing_copy, "write_at", world.write_at)
        wait_until(lambda: [world.mirror(1), world.held() == world.log.texts][1])
        for number in range(ROUNDS):
            world.happen()
            proxy.rate = random.choice((0.0, 0.1, 0.3))
            world.mirror(random.randrange(1, 5))
            histories = [world.log.texts, *world.forked]
            assert any(is_prefix(world.whole(), history) for history in histories), f"round {number}"
        proxy.rate, world.full = 0.0, False
        wait_until(lambda: [world.mirror(3), world.held() == world.log.texts][1])
        world.leave()
        report(
            "mirror_rounds", rounds=ROUNDS, failures=0, **world.seen, **{name: proxy.injected[name] for name in FAULTS}
        )
    assert all(proxy.injected.values())
    assert world.seen["disk full"] > 0 < world.seen["torn"]
