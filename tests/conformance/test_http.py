"""The HTTP store against the suite: objects are put into the replica's folder, and read through its daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("urllib3")

from litelog.stores.object_store import ObjectInfo, require_key, require_prefix
from litelog.stores.registry import open_store
from replica_clients.conformance import ObjectStoreConformance
from tests.builders.log_builder import make_log
from tests.builders.server_builder import Watched

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.stores.object_store import ByteRange, ObjectStore

pytestmark = pytest.mark.slow

BELOW = "generations/suite/"
"""The prefix of the suite's objects: a daemon shows only what belongs to a replica."""


class ReadOverHttp:
    """Puts and deletes in the folder, and reads over HTTP."""

    enforces_create_only = True

    def __init__(self, folder: ObjectStore, http: ObjectStore) -> None:
        self.url = http.url
        self._folder, self._http = folder, http

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        require_key(key)
        self._folder.put(BELOW + key, body, create_only=create_only)

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        require_key(key)
        return self._http.open(BELOW + key, byte_range)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        require_prefix(prefix)
        after = None if start_after is None else BELOW + start_after
        return (ObjectInfo(info.key.removeprefix(BELOW), info.size) for info in self._http.list(BELOW + prefix, after))

    def delete(self, keys: Iterable[str]) -> None:
        self._folder.delete([BELOW + key for key in keys if require_key(key) is None])

    def close(self) -> None:
        self._http.close()
        self._folder.close()


class TestHttpStore(ObjectStoreConformance):
    """Everything except what its own daemon does to the replica."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[ReadOverHttp]:
        log, replica = make_log(tmp_path / "log"), f"file://{tmp_path}/replica"
        log.roll(1)
        with Watched(tmp_path, [(log, [replica])], {"serve": "all"}) as watched:
            watched.wait_until_ready()
            address = watched.service.address
            assert address is not None
            store = ReadOverHttp(open_store(replica), open_store(f"http://127.0.0.1:{address.port}/logs/log"))
            yield store
            store.close()
