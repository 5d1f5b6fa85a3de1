"""ReplicaObjects: the objects of a served log's replica for other processes, which read them as their own replica.

Specified in litelog/live/README.md#the-replica.
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING

from litelog.errors import NotFoundError
from litelog.objects.layout import CHECKPOINTS, ROOTS, parse_wal
from litelog.restore.generation_bytes import GenerationBytes
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.opening import decrypting
from litelog.stores.registry import open_store
from litelog.stores.retrying_store import RetryingStore

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import BinaryIO

    from litelog.formats import LogFormat
    from litelog.objects.claim import Claim
    from litelog.stores.object_store import ByteRange, ObjectInfo

_READ = (*ROOTS, CHECKPOINTS)

CACHE_BYTES = 32 << 20
"""How many bytes of WAL segments are held for followers, which all read the newest ones."""

CACHED_BYTES = CACHE_BYTES // 2
"""The largest WAL segment that is held. Nearly all are smaller: many slow readers share them."""


class ReplicaObjects:
    """One replica, which is opened with the first request. Several threads call it at once.

    Encrypted objects stay encrypted on their way: the reader has the identity."""

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        self._url, self._options = url, options
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._client: ObjectReplicaClient | None = None
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._cached = 0

    def open(self, key: str, byte_range: ByteRange | None) -> BinaryIO:
        """Open an object, as ``ObjectStore.open``. Only the keys of a replica exist."""
        if not key.startswith(_READ):
            raise NotFoundError(key)
        if byte_range is not None or parse_wal(key) is None:
            return self._opened().store.open(key, byte_range)
        with self._lock:
            held = self._cache.get(key)
            if held is not None:
                self._cache.move_to_end(key)
        return io.BytesIO(self._read(key) if held is None else held)

    def list(self, prefix: str, start_after: str | None, limit: int) -> list[ObjectInfo]:
        """List objects, as ``ObjectStore.list``, at most ``limit``."""
        found = self._opened().store.list(prefix, start_after)
        return list(islice((info for info in found if info.key.startswith(_READ)), limit))

    def history(self, claim: Claim, log_format: LogFormat) -> GenerationBytes:
        """The bytes of one of its generations. Lists the replica's objects of now."""
        return GenerationBytes(ObjectReplicaClient(decrypting(self._opened().store, self._options)), claim, log_format)

    def close(self) -> None:
        """Close the replica. Idempotent."""
        self._stop.set()
        with self._lock:
            client, self._client = self._client, None
            self._cache.clear()
            self._cached = 0
        if client is not None:
            client.close()

    def _opened(self) -> ObjectReplicaClient:
        with self._lock:
            if self._client is None:
                self._client = ObjectReplicaClient(RetryingStore(open_store(self._url, self._options), self._stop))
            return self._client

    def _read(self, key: str) -> bytes:
        with self._opened().store.open(key) as stream:
            body = stream.read()
        if len(body) <= CACHED_BYTES:
            self._hold(key, body)
        return body

    def _hold(self, key: str, body: bytes) -> None:
        with self._lock:
            if key not in self._cache and not self._stop.is_set():
                self._cache[key] = body
                self._cached += len(body)
            while self._cached > CACHE_BYTES:
                _, dropped = self._cache.popitem(last=False)
                self._cached -= len(dropped)
