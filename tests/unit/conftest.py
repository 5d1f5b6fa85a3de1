"""The fixtures of unit tests: a log, a store, a clock, a state folder, and replicators over them.

A module that needs another of these defines a fixture of the same name, or passes the log's format as an indirect
parameter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litelog.config import Config, LogConfig, ReplicaConfig
from litelog.replicator import Replicator
from replica_clients.memory import MemoryStore
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.manual_clock import ManualClock
from tests.builders.replicator_builder import LowestRandom, Progress, install_stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from litelog.stores.object_store import ObjectStore


@pytest.fixture
def log(request: pytest.FixtureRequest, tmp_path: Path) -> LogBuilder:
    """A log segment of three commits."""
    made = make_log(tmp_path / "log", getattr(request, "param", "litelog"))
    made.roll(3)
    return made


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("test")


@pytest.fixture
def state(tmp_path: Path) -> str:
    """A state folder that does not exist yet."""
    return str(tmp_path / "state")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ObjectStore]]:
    """The stores of ``testing://`` by URL."""
    found = install_stores(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    yield found
    found.clear()


@pytest.fixture
def progress() -> Progress:
    return Progress()


@pytest.fixture
def make(tmp_path: Path, progress: Progress) -> Callable[..., Replicator]:
    def make_replicator(
        *pairs: tuple[LogBuilder, list[str]],
        poll: float = 0.02,
        interval: float = 0.01,
        timeout: float = 20.0,
        takeover: bool = False,
        **more: object,
    ) -> Replicator:
        logs = tuple(
            LogConfig(
                path=log.folder,
                format=log.format.name,
                poll_interval=poll,
                takeover=takeover,
                replicas=tuple(ReplicaConfig(url=url, sync_interval=interval, max_segment_bytes=4096) for url in urls),
            )
            for log, urls in pairs
        )
        config = Config(logs=logs, shutdown_timeout=timeout)
        arguments: dict[str, object] = {"listener": progress, "random": LowestRandom(0), **more}
        return Replicator(config, state_dir=str(tmp_path / "state"), host="test", **arguments)  # type: ignore[arg-type]

    return make_replicator
