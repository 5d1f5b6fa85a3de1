"""A daemon with its HTTP service in this process, with real threads, sockets and stores."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from litelog.config import Config, LogConfig, ReplicaConfig, make_config
from litelog.replicator import Replicator
from litelog.server.service import Service, ServiceSettings
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.stores.object_store import ByteRange, ObjectInfo, ObjectStore
    from litelog.system.clock import Clock
    from tests.builders.log_builder import LogBuilder

TOKEN = "canary-token-of-the-tests-0123456789"


class HangingStore:
    """A store whose puts hang from ``hang`` until ``release``, as puts to a dead server do."""

    def __init__(self, inner: ObjectStore, url: str) -> None:
        self.inner = inner
        self.url = url
        self.enforces_create_only = inner.enforces_create_only
        self._passes = threading.Event()
        self._passes.set()

    def hang(self) -> None:
        self._passes.clear()

    def release(self) -> None:
        self._passes.set()

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        assert self._passes.wait(2 * WAIT_SECONDS)
        self.inner.put(key, body, create_only=create_only)

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        return self.inner.open(key, byte_range)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self.inner.list(prefix, start_after)

    def delete(self, keys: Iterable[str]) -> None:
        self.inner.delete(keys)

    def close(self) -> None:
        self.release()


@dataclass
class Answer:
    """The service's answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Watched:
    """A replicator and its service, both running inside the context."""

    folder: Path
    pairs: list[tuple[LogBuilder, list[str]]]
    settings: dict[str, Any] = field(default_factory=dict)
    sync_interval: float = 0.01
    log_settings: dict[str, Any] = field(default_factory=dict)
    replica_settings: dict[str, Any] = field(default_factory=dict)
    state: str = "state"
    clock: Clock | None = None
    failure: BaseException | None = None

    def __enter__(self) -> Self:
        logs = tuple(
            LogConfig(
                path=log.folder,
                format=log.format.name,
                poll_interval=0.02,
                replicas=tuple(
                    ReplicaConfig(url=url, sync_interval=self.sync_interval, **self.replica_settings) for url in urls
                ),
                **self.log_settings,
            )
            for log, urls in self.pairs
        )
        config = Config(logs=logs, shutdown_timeout=5.0)
        self.replicator = Replicator(config, state_dir=str(self.folder / self.state), host="test", clock=self.clock)
        settings = {"max_lag": 60.0, "addr": "127.0.0.1:0", **self.settings}
        self.service = Service(self.replicator, ServiceSettings(**settings))
        self._thread = threading.Thread(target=self._run)
        self.service.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.replicator.stop()
        self._thread.join(WAIT_SECONDS)
        self.service.__exit__(None, None, None)
        assert not self._thread.is_alive()

    def ask(
        self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        """Send a request on a new connection; return the answer."""
        address = self.service.address
        assert address is not None
        connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=WAIT_SECONDS)
        if address.path is not None:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(address.path)
        try:
            connection.request(method, path, body or None, dict(headers or {}))
            response = connection.getresponse()
            content = response.read()
            return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, content)
        finally:
            connection.close()

    def replica(self, number: int = 0) -> dict[str, Any]:
        """The status of a replica of the first log."""
        found: dict[str, Any] = self.ask("/status").json["logs"][0]["replicas"][number]
        return found

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait until ``holds`` returns true; it is called again and again."""
        wait_until(holds, why=lambda: self.ask("/status").json, pause=0.02)

    def wait_until_ready(self) -> None:
        """Wait until the service answers that it is ready.

        The service is not asked before the replicator is ready, as it repeats an answer for a quarter of a second.
        """
        wait_until(lambda: self.replicator.is_ready() or self.failure is not None, pause=0.002)
        assert self.failure is None, self.failure
        self.wait_until(lambda: self.ask("/readyz").status == 200)

    def wait_until_synced(self) -> None:
        """Wait until the replicator is ready, without a request to the service."""
        wait_until(lambda: self.replicator.is_ready() or self.failure is not None, pause=0.002)

    def connect(self) -> socket.socket:
        """A connection on which nothing was sent yet."""
        address = self.service.address
        assert address is not None
        return socket.create_connection(("127.0.0.1", address.port), timeout=WAIT_SECONDS)

    def _run(self) -> None:
        try:
            self.replicator.run()
        except BaseException as error:  # noqa: BLE001
            self.failure = error


@contextmanager
def serving_folder(tmp_path: Path) -> Iterator[str]:
    """A daemon that serves each log in a folder. Yields the URL of its logs."""
    entry = {
        "dir": str(tmp_path / "logs"),
        "poll_interval": 0.05,
        "replicas": [{"url": f"file://{tmp_path}/replicas", "sync_interval": 0.01}],
    }
    replicator = Replicator(make_config("test", {"logs": [entry]}), state_dir=str(tmp_path / "state"), host="test")
    with Service(replicator, ServiceSettings(max_lag=60.0, addr="127.0.0.1:0", serve="all")) as service:
        thread = threading.Thread(target=replicator.run)
        thread.start()
        try:
            wait_until(replicator.is_ready)
            assert service.address is not None
            yield f"http://127.0.0.1:{service.address.port}/logs"
        finally:
            replicator.stop()
            thread.join(WAIT_SECONDS)
