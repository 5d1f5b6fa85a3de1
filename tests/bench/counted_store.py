"""A file store that counts its requests, found under the scheme ``counted`` the way any package's store is."""

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
"""Every store of this process, so that its requests can be counted."""


def open_store(url: str, options: Mapping[str, object]) -> CountingStore:
    store = CountingStore(file.open_store(url.replace("counted:", "file:", 1), options))
    OPENED.append(store)
    return store


def register(folder: Path) -> None:
    """Write into ``folder`` what an installed package would have there, and look there from now on."""
    about = folder / "counted_store-0.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: counted-store\nVersion: 0\n")
    (about / "entry_points.txt").write_text("[litelog.object_stores]\ncounted = counted_store:open_store\n")
    sys.path.append(str(folder))


def requests() -> int:
    return sum(store.total() for store in OPENED)
