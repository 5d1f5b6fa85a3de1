"""A file store that answers each GET after some milliseconds, as an object store does: ``latent://MILLISECONDS/PATH``.

``register`` has this process know the scheme, and, by the environment, all that it starts.
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
    """Waits before each GET."""

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
    """Write into ``folder`` what an installed package would have there, and look there from now on."""
    about = folder / "slow_gets-0.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-gets\nVersion: 0\n")
    (about / "entry_points.txt").write_text("[litelog.object_stores]\nlatent = slow_gets:open_store\n")
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.append(str(folder))
    kept = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), here, *kept])
