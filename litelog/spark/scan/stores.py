"""Stores as tasks use them: opened once in a worker, with retries that end when a task does."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.registry import open_store, scheme_of
from litelog.stores.retrying_store import RetryingStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from litelog.stores.object_store import ObjectStore

MAX_OPEN = 32
"""Stores that a worker keeps: making a client costs more than a request."""

_open: dict[tuple[str, tuple[tuple[str, str], ...]], ObjectStore] = {}
_opening = threading.Lock()


def open_client(url: str, options: Mapping[str, str], stop: threading.Event) -> ObjectReplicaClient:
    """A client of the replica at ``url``. Its store is kept for the next one: do not close it.

    ``stop``: once it is set, failed requests are not tried again.
    """
    return ObjectReplicaClient(RetryingStore(kept_store(url, options), stop))


def kept_store(url: str, options: Mapping[str, str]) -> ObjectStore:
    """The store at ``url``, the same one as long as it is asked for."""
    if scheme_of(url) in ("file", "memory"):
        options = {}  # those of the stores that are read beside them
    key = (url, tuple(sorted(options.items())))
    with _opening:
        store = _open.pop(key, None)
        if store is None:
            store = open_store(url, options)
        _open[key] = store
        while len(_open) > MAX_OPEN:
            del _open[next(iter(_open))]
    return store
