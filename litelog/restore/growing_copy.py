"""GrowingCopy: the copy of a log in a local folder, which grows at its end: checked, durable and in order.

Bytes are checked when they come, and written and synced by another thread meanwhile. ``flush`` waits for that.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from litelog.codec.checksum import crc32c
from litelog.errors import CorruptCommitError, CorruptObjectError, DivergedError, LockedError
from litelog.formats import Expectation, FinishedTail, safe_segment_order
from litelog.formats.capabilities import index_name, is_counted, is_side_file
from litelog.objects.side_files import MAX_SIDE_FILE_BYTES
from litelog.restore.index_files import commits_in_file
from litelog.restore.manifest import make_manifest
from litelog.restore.output import OutputError
from litelog.restore.write_behind import WriteBehind
from litelog.system.files import TooLargeError, open_regular, read_regular, sync_folder, write_at
from litelog.system.page_appender import PageAppender
from litelog.system.private_files import temporary_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litelog.formats import LogFormat
    from litelog.log.recovery import OnTrailing
    from litelog.objects.side_files import SideFile

_FILE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK_BYTES = 1 << 20


class GrowingCopy:
    """The copy in a folder, locked against other followers. One thread.

    A kill at any moment leaves a copy whose last log segment may end inside a commit, as after a crash of a writer.
    """

    def __init__(self, folder: str, log_format: LogFormat, monotonic: Callable[[], float]) -> None:
        """Lock the copy. Raises LockedError if another follower has it. ``monotonic``: gives monotonic seconds."""
        self.path = folder
        self._format = log_format
        self.name = ""
        """The name of the log segment that grows."""
        self.size = self._crc = 0
        """Its size in bytes, and the CRC-32C of its content."""
        self.expect = Expectation()
        """The expectation for its next commit."""
        self._recovered: int | None = None
        """The sequence after the last record that ``recover`` found."""
        self.appended = 0
        """The number of appended bytes."""
        self.appended_at: float | None = None
        """When the last of them were appended; monotonic seconds."""
        self.check_stop: Callable[[], None] = lambda: None
        """Called before bytes are read or appended; may raise."""
        self._monotonic = monotonic
        self._behind = WriteBehind(self._write, self._sync)
        self._pages: PageAppender | None = None
        """Has the log segment that was written since its last sync, if it got many bytes."""
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._folder)
            raise LockedError(folder, f"{folder}: a followed copy") from error

    def close(self) -> None:
        """Release the copy. What is not durable yet may be lost."""
        self._behind.close()
        if self._pages is not None:
            self._pages.close()
        os.close(self._folder)

    @property
    def next(self) -> int | None:
        """The sequence after its last record; None if it is not known, as in formats without numbers."""
        if not self._format.self_numbered:
            return None
        return self._recovered if self.expect.sequence is None else self.expect.sequence

    def flush(self) -> None:
        """Wait until all that was appended is durable. Raises OutputError."""
        self._behind.flush()

    def names(self) -> list[str]:
        """Return the names of its log segments, oldest first. Raises OutputError."""
        self.flush()
        orders = {name: self._format.segment_order(name) for name in os.listdir(self._folder)}
        known = [(order, name) for name, order in orders.items() if order is not None]
        return [name for _, name in sorted(known)]

    def recover(self, on_trailing: OnTrailing) -> int:
        """Cut off what a kill left after the last whole commit, and make all bytes durable. Return the bytes cut off.

        Raises:
            CorruptCommitError, SequenceGapError: Bytes are damaged, not cut off; or ``on_trailing`` is "error", and
                there are bytes after the last whole commit.
            OutputError: The copy cannot be written.
        """
        names = self.names()
        if not names:
            return 0
        name = names[-1]
        try:
            file = open_regular(name, os.O_RDWR | os.O_NOFOLLOW, dir_fd=self._folder)
            try:
                size, end = os.fstat(file).st_size, 0
                for commit in commits_in_file(file, name, self._format):
                    end, self._recovered = commit.end, commit.next
                if end < size and on_trailing == "error":
                    path = os.path.join(self.path, name)
                    raise CorruptCommitError(path, end, "bytes after the last commit", 0, size - end)
                if end < size:
                    os.ftruncate(file, end)
                os.fsync(file)
            finally:
                os.close(file)
            sync_folder(self.path)
        except OSError as error:
            raise OutputError(os.path.join(self.path, name), error.strerror or str(error)) from error
        return size - end

    def read(self, name: str, start: int, length: int) -> bytes:
        """Return bytes of a log segment; fewer at its end. Raises OutputError."""
        self.check_stop()
        self.flush()
        try:
            file = open_regular(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self._folder)
            try:
                return os.pread(file, length, start)
            finally:
                os.close(file)
        except OSError as error:
            raise OutputError(os.path.join(self.path, name), error.strerror or str(error)) from error

    def digest_of(self, name: str) -> str:
        """Return the SHA-256 of a log segment, hex. Raises OutputError."""
        digest, at = hashlib.sha256(), 0
        while data := self.read(name, at, _CHUNK_BYTES):
            digest.update(data)
            at += len(data)
        return digest.hexdigest()

    def orders(self) -> list[tuple[object, ...]]:
        """Return the orders of its log segments. Raises OutputError."""
        self.flush()
        orders = [self._format.segment_order(name) for name in os.listdir(self._folder)]
        return [order for order in orders if order is not None]

    def is_before_end(self, name: str, held: Sequence[tuple[object, ...]]) -> bool:
        """Whether a log segment comes before the copy's last one. ``held``: the copy's orders. It may also have been
        merged since, so that the replica holds more under its name."""
        order = self._format.segment_order(name)
        return order is not None and bool(held) and order < max(held)

    def size_of(self, name: str) -> int | None:
        """The size of a log segment; None if the copy does not have it. Raises OutputError."""
        if self._behind.holds(name):
            self.flush()
        try:
            return os.stat(name, dir_fd=self._folder, follow_symlinks=False).st_size
        except FileNotFoundError:
            return None

    def append(self, key: str, data: memoryview, crc_total: int | None, *, is_finished: bool) -> None:
        """Check bytes, and append them. They are durable after ``flush``.

        Args:
            key: Where they come from.
            data: Whole commits.
            crc_total: CRC-32C of the log segment up to their end; None if it is not known.
            is_finished: Whether the log segment may end with them.

        Raises:
            DivergedError: The copy's bytes are not those that ``data`` continues.
            CorruptObjectError, CorruptCommitError, SequenceGapError: ``data`` is damaged.
            OutputError: The copy cannot be written. The bytes may be earlier ones.
        """
        self.check_stop()
        crc = crc32c(data, self._crc)
        if crc_total is not None and crc != crc_total:
            raise DivergedError(self.path, f"{self.name}: its bytes are not the ones that {key} continues")
        scan = self._format.scan(f"{key}/{self.name}", data, self.size, self.expect)
        may_have_tail = is_finished and self._format.finished_tail is FinishedTail.SHIP
        if scan.end != self.size + len(data) and not may_have_tail:
            raise CorruptObjectError(key, "end of the last whole commit", self.size + len(data), scan.end)
        self._behind.put(self.name, self.size, data)
        self._crc, self.expect = crc, scan.expectation
        self.size += len(data)
        self.appended += len(data)
        if data:
            self.appended_at = self._monotonic()

    def _write(self, name: str, start: int, runs: Sequence[memoryview]) -> None:
        """Append runs of bytes to a log segment that ends at ``start``, and make a new file durable. One thread."""
        try:
            self._drop_index(name)
            if self._pages is not None or sum(map(len, runs)) >= _CHUNK_BYTES:
                self._write_pages(name, start, runs)
            else:
                self._write_few(name, start, runs)
            if start == 0:
                sync_folder(self.path)
                self._list_in_manifest()
        except OSError as error:
            raise OutputError(os.path.join(self.path, name), error.strerror or str(error)) from error

    def _write_few(self, name: str, start: int, runs: Sequence[memoryview]) -> None:
        file = open_regular(name, _FILE_FLAGS, 0o666, dir_fd=self._folder)
        try:
            self._require_size(name, file, start)
            at = start
            for data in runs:
                at += write_at(file, data, at)
            if start == 0:
                os.fsync(file)
        finally:
            os.close(file)

    def _write_pages(self, name: str, start: int, runs: Sequence[memoryview]) -> None:
        """As ``_write_few``, for many bytes, of which the last ones are written by ``_sync``."""
        if self._pages is None:
            self._pages = PageAppender(open_regular(name, _FILE_FLAGS, 0o666, dir_fd=self._folder), name, self._folder)
        pages = self._pages
        self._require_size(name, pages.file, start - pages.held)
        for data in runs:
            pages.append(data)
        if start == 0:
            os.fsync(pages.file)

    def _require_size(self, name: str, file: int, size: int) -> None:
        if os.fstat(file).st_size != size:
            raise OutputError(os.path.join(self.path, name), f"was changed: it no longer has {size} bytes")

    def _sync(self, name: str) -> None:
        """Make what was written to a log segment durable. One thread at a time."""
        try:
            if self._pages is not None:
                self._pages.finish()
                os.fsync(self._pages.file)
                self._pages.close()
                self._pages = None
                return
            file = open_regular(name, os.O_RDWR | os.O_NOFOLLOW, dir_fd=self._folder)
            try:
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise OutputError(os.path.join(self.path, name), error.strerror or str(error)) from error

    def _list_in_manifest(self) -> None:
        """Replace the manifest, if the log's writer needs one: it then lists the new log segment, too."""
        manifest = make_manifest(os.listdir(self._folder), self._format)
        if manifest is not None:
            self._replace_file(manifest)

    def write_side_file(self, file: SideFile) -> None:
        """Replace a side file of the copy, unless it holds the same."""
        if not is_side_file(self._format, file.name):
            return
        self.flush()
        path = os.path.join(self.path, file.name)
        try:
            with suppress(FileNotFoundError, TooLargeError):
                if read_regular(file.name, MAX_SIDE_FILE_BYTES, dir_fd=self._folder) == file.body:
                    return
            self._replace_file(file)
        except OSError as error:
            raise OutputError(path, error.strerror or str(error)) from error

    def _replace_file(self, file: SideFile) -> None:
        """Replace a file next to the log segments in one step, durably."""
        temporary = temporary_name(file.name)
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=self._folder)
        with os.fdopen(os.open(temporary, _FILE_FLAGS | os.O_EXCL, 0o666, dir_fd=self._folder), "wb") as written:
            written.write(file.body)
            written.flush()
            os.fsync(written.fileno())
        os.rename(temporary, file.name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        sync_folder(self.path)

    def _drop_index(self, name: str) -> None:
        """Remove the writer's index file of the log segment that grows: its writer would cut what the index lacks."""
        index = index_name(self._format, name)
        if index is not None:
            with suppress(FileNotFoundError):
                os.unlink(index, dir_fd=self._folder)

    def open_segment(self, name: str, source: str) -> None:
        """Move to the end of a log segment of the copy, which may not exist yet. ``source``: the object that names it.

        Raises CorruptObjectError unless the name is that of a log segment, and OutputError.
        """
        if name == self.name:
            return
        if safe_segment_order(self._format, name) is None:
            raise CorruptObjectError(source, f"file {name!r} is not the name of a log segment")
        if self._behind.holds(name):
            self.flush()
        self.name, self.size, self._crc = name, 0, 0
        self.expect = Expectation(self.expect.sequence if self._format.self_numbered else None, 0)
        try:
            file = open_regular(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self._folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise OutputError(os.path.join(self.path, name), error.strerror or str(error)) from error
        self.expect = Expectation()
        try:
            while data := os.pread(file, _CHUNK_BYTES, self.size):
                self._crc = crc32c(data, self._crc)
                self.size += len(data)
            if is_counted(self._format):
                for commit in commits_in_file(file, name, self._format):
                    self.expect = Expectation(commit.next)
        finally:
            os.close(file)
