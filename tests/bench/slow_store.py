"""A file store whose puts hang while a file ``hang`` exists next to the folder ``replicas``. Its scheme is ``slow``."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from replica_clients.file import FileStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from typing_extensions import Buffer

POLL_SECONDS = 0.1


class SlowStore(FileStore):
    """Waits before each put while the file ``hang`` exists."""

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        while self.hang.exists():
            time.sleep(POLL_SECONDS)
        super().put(key, body, create_only=create_only)


def open_store(url: str, options: Mapping[str, object]) -> SlowStore:
    path = url.removeprefix("slow://")
    store = SlowStore(path)
    store.hang = Path(path.partition("/replicas")[0]) / "hang"
    return store


def register(folder: Path) -> None:
    """Write the metadata of an installed package into ``folder``, and add it to the import path of this process."""
    metadata = folder / "slow_store-0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-store\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text("[litelog.object_stores]\nslow = slow_store:open_store\n")
    sys.path.append(str(folder))
