"""The few disk operations on which a writer's promises rest. Tests put a failing disk in place of the local one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from litelog.system.files import sync_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

MAX_VECTORS = 1024
"""How many buffers one write takes (IOV_MAX on Linux)."""

SEGMENT_MODE = 0o644


class Disk(Protocol):
    """Durable writing. Failures are OSError; bytes written before a failure may or may not be on the disk."""

    def create(self, path: str) -> int:
        """Create a file and return its descriptor, open for writing. Raises FileExistsError if it exists."""

    def write(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> None:
        """Write all bytes of the buffers, one after another, from ``offset`` on."""

    def truncate(self, descriptor: int, length: int) -> None:
        """Cut the file to ``length`` bytes."""

    def sync(self, descriptor: int) -> None:
        """Return when the file's bytes and size are durable."""

    def sync_folder(self, path: str) -> None:
        """Return when the names in a folder are durable."""


class LocalDisk:
    """The machine's own disk."""

    def create(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, SEGMENT_MODE)

    def write(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> None:
        for start in range(0, len(buffers), MAX_VECTORS):
            pending = [memoryview(buffer).cast("B") for buffer in buffers[start : start + MAX_VECTORS]]
            while pending:
                written = os.pwritev(descriptor, pending, offset)
                offset += written
                pending = _rest(pending, written)

    def truncate(self, descriptor: int, length: int) -> None:
        os.ftruncate(descriptor, length)

    def sync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def sync_folder(self, path: str) -> None:
        sync_folder(path)


def _rest(buffers: list[memoryview], written: int) -> list[memoryview]:
    """The part of ``buffers`` after their first ``written`` bytes: a write may stop anywhere."""
    for position, buffer in enumerate(buffers):
        if written < len(buffer):
            return [buffer[written:], *buffers[position + 1 :]]
        written -= len(buffer)
    return []
