"""A file store that answers each GET after some milliseconds, as an object store does: ``latent://MILLISECONDS/PATH``.

``register`` makes the scheme known to this process and, through the environment, to the processes that it starts.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from replica_clients.file import FileStore

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import BinaryIO

    from litelog.stores.object_store import ByteRange


class LatentStore(FileStore):
    """A file store that waits before each GET."""

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__(path)
        self._seconds = seconds

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        time.sleep(self._seconds)
        return super().open(key, byte_range)


def open_store(url: str, options: Mapping[str, object]) -> LatentStore:
    wait, _, path = url.removeprefix("latent://").partition("/")
    return LatentStore(f"/{path}", int(wait) / 1000)


def register(folder: Path) -> None:
    """Write the metadata of an installed package into ``folder``, and add it to the import paths."""
    metadata = folder / "slow_gets-0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-gets\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text("[litelog.object_stores]\nlatent = slow_gets:open_store\n")
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.append(str(folder))
    kept = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), here, *kept])
