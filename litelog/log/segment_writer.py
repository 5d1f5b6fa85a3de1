"""Writes the tail of one of litelog's own logs: the newest log segment, and the step to the next."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from litelog.formats.litelog import SEGMENT_HEADER_BYTES, SegmentHeader, segment_name
from litelog.log.recovery import NO_TIMESTAMP
from litelog.log.sparse_index import IndexWriter
from litelog.system.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from litelog.log.disk import Disk
    from litelog.log.group_commit import EncodedCommit
    from litelog.log.recovery import LogEnd
    from litelog.system.clock import Clock


class LogTail:
    """Writes commits in order. One thread at a time. After an OSError the log must be opened again."""

    def __init__(
        self, folder: str, disk: Disk, clock: Clock, log_id: UUID, segment_bytes: int, end: LogEnd | None
    ) -> None:
        """Continue at ``end``, which recovery found; None: begin a new log, durably. Raises OSError."""
        self._folder = folder
        self._disk = disk
        self._clock = clock
        self._log_id = log_id
        self._segment_bytes = segment_bytes
        self._descriptor = -1
        self._size = 0
        self._highest = NO_TIMESTAMP if end is None else end.highest
        self._dirty = False
        try:
            self._index = self._begin(0) if end is None else self._resume(end)
        except BaseException:
            self._close_segment()
            raise

    def _begin(self, first: int) -> IndexWriter:
        """Start the log segment whose first sequence is ``first``, durably. Return its index."""
        path = os.path.join(self._folder, segment_name(first))
        self._descriptor = self._disk.create(path)
        self._write_header(first)
        self._disk.sync_folder(self._folder)
        return IndexWriter(path, self._log_id)

    def _resume(self, end: LogEnd) -> IndexWriter:
        path = os.path.join(self._folder, end.name)
        self._descriptor = open_regular(path, os.O_RDWR | os.O_NOFOLLOW)
        self._size = end.size
        if not end.size:
            self._write_header(end.next)
        self._disk.sync(self._descriptor)  # bytes that a killed writer left in the page cache are part of the log now
        self._disk.sync_folder(self._folder)
        index = IndexWriter(path, self._log_id, end.kept_entries, end.kept_offset)
        for entry in end.entries:
            index.add(entry.sequence, entry.offset, entry.highest)
        return index

    def write(self, commits: Iterable[EncodedCommit]) -> None:
        """Write commits after the last one. Starts new log segments as they fill."""
        buffers: list[bytearray] = []
        start = size = self._size
        for commit in commits:
            if size + len(commit.data) > self._segment_bytes and size > SEGMENT_HEADER_BYTES:
                self._put(buffers, start, size)
                self.roll(commit.first)
                buffers = []
                start = size = self._size
            buffers.append(commit.data)
            self._index.add(commit.first, size, self._highest)
            size += len(commit.data)
            self._highest = max(self._highest, commit.highest)
        self._put(buffers, start, size)

    def roll(self, first: int) -> None:
        """Start a new log segment at ``first``, unless the newest one has no commit yet."""
        if self._size <= SEGMENT_HEADER_BYTES:
            return
        self.sync()  # only the newest log segment may have a torn tail
        self.close()
        self._index = self._begin(first)

    def sync(self) -> None:
        """Return when all written commits are durable."""
        if self._dirty:
            self._disk.sync(self._descriptor)
            self._dirty = False

    def close(self) -> None:
        """Close the files. Does not sync. Idempotent."""
        self._index.close()
        self._close_segment()

    def _close_segment(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            with suppress(OSError):  # callers that need its bytes durable have synced it
                os.close(descriptor)

    def _write_header(self, first: int) -> None:
        header = SegmentHeader(self._log_id, first, self._clock.now()).encode()
        self._disk.write(self._descriptor, [header], 0)
        self._disk.sync(self._descriptor)
        self._size = SEGMENT_HEADER_BYTES

    def _put(self, buffers: list[bytearray], start: int, size: int) -> None:
        if buffers:
            self._dirty = True
            self._disk.write(self._descriptor, buffers, start)
            self._size = size
