"""What makes names outlast a power cut: the fsync of their folder."""

from __future__ import annotations

import os

OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def sync_folder(path: str) -> None:
    """Return when the names in the folder ``path`` are durable. Raises OSError."""
    descriptor = os.open(path, OPEN_FOLDER)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
