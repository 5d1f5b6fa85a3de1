"""A file store that counts its requests. litelog finds it by entry point, under the scheme ``counted``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from replica_clients.file import store as file

sys.path.append(str(Path(__file__).parents[2]))

from tests.builders.stores import CountingStore

if TYPE_CHECKING:
    from collections.abc import Mapping

OPENED: list[CountingStore] = []
"""Every store of this process, to add up their requests."""


def open_store(url: str, options: Mapping[str, object]) -> CountingStore:
    store = CountingStore(file.open_store(url.replace("counted:", "file:", 1), options))
    OPENED.append(store)
    return store


def register(folder: Path) -> None:
    """Write the metadata of an installed package into ``folder``, and add it to the import path of this process."""
    metadata = folder / "counted_store-0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: counted-store\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text("[litelog.object_stores]\ncounted = counted_store:open_store\n")
    sys.path.append(str(folder))


def requests() -> int:
    return sum(store.total() for store in OPENED)
