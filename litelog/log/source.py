"""The files of a log that another program writes: one descriptor per log segment, and the folder's list. Read-only."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from bisect import bisect_left, bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING

from litelog.codec.checksum import crc32c
from litelog.errors import CorruptCommitError, SourceError, SourceMissingError, SourceSyncError
from litelog.events import fields
from litelog.formats.capabilities import (
    check_head,
    ignores,
    manifest_name,
    max_commit_bytes,
    open_logical,
    side_files,
)
from litelog.formats.log_format import HEAD_BYTES
from litelog.formats.signatures import RECOGNISED_FILES, find_fragment, recognise, recognise_below
from litelog.log.failed_syncs import FailedSyncs
from litelog.log.manifest import listed_segments, require_whole
from litelog.system.files import OPEN_FOLDER, find_other_kind, open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litelog.formats import Expectation, LogFormat, Scan
    from litelog.formats.capabilities import LogicalBytes
    from litelog.system.clock import Clock

_logger = logging.getLogger(__name__)

READ_BYTES = 4 << 20
"""How many bytes are read at a time for a checksum, or to scan a whole log segment."""

_HEAD_BYTES = 64 << 10
"""How many bytes of a log segment are read for its first commit; more if that commit is larger."""

SMALLEST_COMMIT_BYTES = 8
"""No commit of a format whose writers preallocate is smaller."""

GROWTH_BYTES = 1 << 20
"""How many bytes after a finished log segment's end are read, to distinguish growth from preallocation."""

SETTLED_MICROSECONDS = 100_000
"""A file that changed more recently may change again within the same tick of its time stamp."""


class OpenSegment:
    """A log segment's one descriptor, and the inode that its file had when it was opened."""

    def __init__(self, name: str, descriptor: int, failed_syncs: FailedSyncs) -> None:
        self.name = name
        self._descriptor = descriptor
        self.inode = os.fstat(descriptor).st_ino
        self._finished = (0, 0, "")
        self._may_grow = False
        self._checked: tuple[int, int] | None = None
        self._fault = ""
        self._failed_syncs = failed_syncs
        self._logical: LogicalBytes | None = None

    def __enter__(self) -> OpenSegment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def is_logical(self) -> bool:
        """Whether its file holds the log segment's bytes in another form."""
        return self._logical is not None

    def duplicate(self) -> OpenSegment:
        """Return the same file with a descriptor of its own. Raises OSError."""
        return OpenSegment(self.name, os.dup(self._descriptor), self._failed_syncs)

    def use_logical(self, log_format: LogFormat, path: str) -> None:
        """Read the log segment's logical bytes from now on, if its file holds them in another form."""
        self._logical = open_logical(log_format, path, self._read_file, self.size())

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size if self._logical is None else self._logical.size()

    def signature(self) -> tuple[int, int]:
        """Return a value that changes when the file does."""
        status = os.fstat(self._descriptor)
        return (status.st_size, status.st_mtime_ns)

    def finish(self, end: int, check_start: int, check_digest: str, *, may_grow: bool = False) -> None:
        """Record that it is finished at ``end``: only zeros may follow, and its bytes may not change.

        ``check_digest``: SHA-256, hex, of [check_start, end); empty: do not compare it. ``may_grow``: anything may
        follow, as its writer leaves garbage.
        """
        self._finished = (end, check_start, check_digest)
        self._may_grow = may_grow

    def fault(self) -> str:
        """Return what changed since it was finished, as a message; empty if nothing did."""
        signature = self.signature()
        if signature != self._checked:
            self._checked = signature
            self._fault = self._find_fault()
        return self._fault

    def _find_fault(self) -> str:
        end, start, digest = self._finished
        if digest and self.sha256(start, end) != digest:
            return "was changed after it was finished"
        return "grew after it was finished" if not self._may_grow and self.has_grown(end) else ""

    def has_grown(self, end: int) -> bool:
        """Whether anything follows ``end``, except for zeros, which are preallocation."""
        return bool(self.read(end, GROWTH_BYTES).strip(b"\0"))

    def ends_with_zeros(self, file_size: int | None = None) -> bool:
        """Whether its file ends with zeros, over which its writer may write a commit: the file is preallocated.
        ``file_size``: the file's size, if it was just looked up."""
        size = os.fstat(self._descriptor).st_size if file_size is None else file_size
        return not self._read_file(max(0, size - SMALLEST_COMMIT_BYTES), SMALLEST_COMMIT_BYTES).strip(b"\0")

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset`` on; fewer at the end."""
        return self._read_file(offset, length) if self._logical is None else self._logical.read(offset, length)

    def _read_file(self, offset: int, length: int) -> bytes:
        pieces: list[bytes] = []
        while length > 0:
            piece = os.pread(self._descriptor, length, offset)
            if not piece:
                break
            pieces.append(piece)
            offset += len(piece)
            length -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def checksum(self, length: int) -> int:
        """Return the CRC-32C of the first ``length`` bytes, or of all bytes if there are fewer."""
        value = offset = 0
        while offset < length and (piece := self.read(offset, min(READ_BYTES, length - offset))):
            value = crc32c(piece, value)
            offset += len(piece)
        return value

    def sha256(self, start: int, end: int, before_read: Callable[[], None] = lambda: None) -> str:
        """Return the SHA-256, hex, of the bytes [start, end), or of those that exist.

        ``before_read`` is called before each piece is read, and may raise.
        """
        sha = hashlib.sha256()
        while start < end:
            before_read()
            piece = self.read(start, min(READ_BYTES, end - start))
            if not piece:
                break
            sha.update(piece)
            start += len(piece)
        return sha.hexdigest()

    def scan_head(self, log_format: LogFormat, path: str, expect: Expectation) -> Scan:
        """Scan the beginning: at least one commit, if it begins with a whole one. Raises as ``LogFormat.scan``."""
        length = _HEAD_BYTES
        while True:
            data = memoryview(self.read(0, length))
            scan = log_format.scan(path, data, 0, expect)
            if scan.commits or len(data) < length:
                return scan
            length = max(2 * length, scan.wanted)

    def scan_runs(
        self, log_format: LogFormat, path: str, expect: Expectation, end: int | None = None
    ) -> Iterator[Scan]:
        """Yield the scans of all commits up to ``end`` (None: the end of the file), run by run. Raises as
        ``LogFormat.scan``."""
        offset, length = 0, READ_BYTES
        while data := memoryview(self.read(offset, length if end is None else min(length, end - offset))):
            scan = log_format.scan(path, data, offset, expect)
            if scan.end > offset:
                yield scan
                offset, expect, length = scan.end, scan.expectation, READ_BYTES
            elif len(data) < length or length > max_commit_bytes(log_format):
                return
            else:
                length = max(2 * length, scan.wanted)

    def sync(self, path: str) -> None:
        """Make its bytes durable. Raises SourceSyncError if that fails, or if any sync of the log has failed before."""
        self._failed_syncs.require_none()
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise self._failed_syncs.keep(path, self.inode, error) from error

    def prepare_sync(self) -> int:
        """Return the descriptor to sync in another way. Raises SourceSyncError if any sync of the log has failed."""
        self._failed_syncs.require_none()
        return self._descriptor

    def fail_sync(self, path: str, error: OSError) -> SourceSyncError:
        """Remember that such a sync failed. Return the error to raise."""
        return self._failed_syncs.keep(path, self.inode, error)


def open_segment(folder: str, name: str, log_format: LogFormat, failed_syncs: FailedSyncs) -> OpenSegment:
    """Open the log segment ``name`` to read its logical bytes.

    Raises FileNotFoundError; SourceError if it cannot be opened; CorruptCommitError if its file does not hold the form
    of logical bytes that it begins with.
    """
    segment = _open_file(folder, name, failed_syncs)
    try:
        segment.use_logical(log_format, os.path.join(folder, name))
    except BaseException:
        segment.close()
        raise
    return segment


def _open_file(folder: str, name: str, failed_syncs: FailedSyncs) -> OpenSegment:
    """Open a file to read the bytes that it holds. Raises FileNotFoundError; SourceError if it cannot be opened."""
    path = os.path.join(folder, name)
    flags = os.O_RDONLY | os.O_NOFOLLOW
    try:
        try:
            descriptor = open_regular(path, flags | getattr(os, "O_NOATIME", 0))
        except PermissionError:
            descriptor = open_regular(path, flags)  # another user's file: its access time changes
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SourceError(f"{path}: cannot be opened: {error.strerror}") from error
    return OpenSegment(name, descriptor, failed_syncs)


class SegmentFolder:
    """The log's folder: which log segments it lists, in order."""

    def __init__(
        self,
        folder: str,
        log_format: LogFormat,
        clock: Clock,
        *,
        reports: bool = True,
        failed_syncs: FailedSyncs | None = None,
        whole: bool = False,
    ) -> None:
        """``reports``: log which files are skipped, each once. ``whole``: raise SourceError if a manifest lists a log
        segment that is not there."""
        self._folder = folder
        self._format = log_format
        self._reports = reports
        self._whole = whole
        self._failed_syncs = failed_syncs or FailedSyncs()
        self._clock = clock
        self._orders: list[tuple[object, ...]] = []
        self._listed: list[str] = []
        self._listed_at: int | None = None
        self._foreign: set[str] = set()
        self._other_kinds: dict[str, str] = {}
        self._reported: set[str] = set()
        self._arrived: set[str] = set()

    def signature(self) -> tuple[int, int]:
        """Return the inode of the folder, and its time of change in nanoseconds. Raises SourceError."""
        try:
            status = os.stat(self._folder)
        except OSError:
            status = self._status()  # raises an error that says what is wrong
        return (status.st_ino, status.st_mtime_ns)

    def signature_of(self, name: str) -> tuple[int, int]:
        """Return a value that changes when the log segment ``name`` does. It does not have to be open."""
        with suppress(FileNotFoundError):
            status = os.stat(os.path.join(self._folder, name))
            return (status.st_size, status.st_mtime_ns)
        return (-1, 0)

    def require_log(self) -> None:
        """Raise SourceMissingError if the folder does not exist or is empty: an unmounted disk is not a rewind."""
        self._status()
        if not self.all():
            raise SourceMissingError(
                self._folder, f"holds no log segment of format {self._format.name}{self._others()}"
            )

    def all(self, seen: int | None = None) -> list[str]:
        """Return the log segments, oldest first. Lists the folder again when it has changed. ``seen``: its time of
        change, as ``signature`` has returned it: what changed after that may be missing."""
        if seen is not None and seen == self._listed_at:
            return self._listed
        modified = self._status().st_mtime_ns
        if modified != self._listed_at:
            self._read()
            settled = self._clock.now() - modified // 1000 >= SETTLED_MICROSECONDS
            self._listed_at = modified if settled else None
        return self._listed

    def foreign(self) -> list[str]:
        """Return the names of the files that are not part of the log, sorted."""
        self.all()
        return sorted(self._foreign)

    def after(self, name: str, seen: int | None = None) -> list[str]:
        """Return the log segments after ``name``; all of them if it is empty. ``seen``: as for ``all``."""
        names = self.all() if seen is None else self.all(seen)
        if names and name == names[-1]:
            return []
        return names[bisect_right(self._orders, self.order_of(name)) :] if name else names

    def before(self, name: str) -> list[str]:
        """Return the log segments before ``name``."""
        names = self.all()
        return names[: bisect_left(self._orders, self.order_of(name))]

    def order_of(self, name: str) -> tuple[object, ...]:
        """Return the sort key of a log segment's name. Raises ValueError for any other name."""
        order = self._format.segment_order(name)
        if order is None:
            raise ValueError(f"{name} is not the name of a log segment of format {self._format.name}")
        return order

    def report_late(self, name: str) -> None:
        """Log which log segments have appeared since the last call and sort before ``name``, which is being shipped.
        They are not shipped, because the follower no longer looks there."""
        older = self.before(name)
        late = sorted(self._arrived.intersection(older))
        self._arrived.clear()
        for file in late:
            message = (
                "%s: %s appeared when %s was being shipped, and sorts before it: it is not shipped. Log segments are "
                "shipped in the order of their names, so each new name must sort after the existing ones"
            )
            _logger.warning(
                message, self._folder, file, name, extra=fields("file-too-late", log=self._folder, file=file)
            )

    def open(self, name: str) -> OpenSegment:
        """Open a log segment. Raises as ``open_segment``."""
        return open_segment(self._folder, name, self._format, self._failed_syncs)

    def each(self) -> Iterator[OpenSegment]:
        """Yield the log segments, oldest first. Each is open until the next one. Log segments that vanish are skipped.

        Raises SourceMissingError if the whole log vanishes.
        """
        for name in self.all():
            try:
                segment = self.open(name)
            except FileNotFoundError:
                self.require_log()
                continue
            with segment:
                yield segment

    def inode_of(self, name: str) -> int | None:
        with suppress(FileNotFoundError):
            return os.stat(os.path.join(self._folder, name)).st_ino
        return None

    def sync_folder(self) -> None:
        """Make its names durable. Raises SourceSyncError if that fails, or if any sync of the log has failed before.
        Raises another SourceError if it could not be tried."""
        self._failed_syncs.require_none()
        try:
            descriptor = os.open(self._folder, OPEN_FOLDER)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise SourceMissingError(self._folder, "no such folder") from error
        except OSError as error:
            raise SourceError(f"{self._folder}: cannot be opened: {error.strerror}") from error
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise self._failed_syncs.keep(self._folder, os.fstat(descriptor).st_ino, error) from error
        finally:
            os.close(descriptor)

    def _status(self) -> os.stat_result:
        try:
            status = os.stat(self._folder)
        except FileNotFoundError:
            raise SourceMissingError(self._folder, "no such folder") from None
        except OSError as error:
            raise SourceError(f"{self._folder}: cannot be read: {error.strerror}") from error
        if not stat.S_ISDIR(status.st_mode):
            raise SourceError(f"{self._folder}: is not a folder")
        return status

    def _read(self) -> None:
        try:
            with os.scandir(self._folder) as entries:
                found = [
                    (entry.name, _find_kind(entry)) for entry in entries if not entry.is_dir(follow_symlinks=False)
                ]
        except FileNotFoundError as error:
            raise SourceMissingError(self._folder, "no such folder") from error
        except OSError as error:
            raise SourceError(f"{self._folder}: cannot be listed: {error.strerror}") from error
        names = [name for name, kind in found if kind is None]
        self._format.check_names(names)
        known = {name: order for name in names if (order := self._format.segment_order(name)) is not None}
        ordered = sorted(
            (known[name], name) for name in listed_segments(self._folder, self._format, names) if name in known
        )
        listed = [name for _, name in ordered]
        if self._whole:
            require_whole(self._folder, self._format)
        if listed and listed[:1] != self._listed[:1]:
            self._check_head(listed[0])
        if self._listed:
            self._arrived = (self._arrived | set(listed).difference(self._listed)).intersection(listed)
        self._orders, self._listed = [order for order, _ in ordered], listed
        own = {*known, *side_files(self._format, names), manifest_name(self._format, names)}
        foreign = set(names).difference(own)
        self._foreign = {name for name in foreign if not name.startswith(".") and not ignores(self._format, name)}
        self._other_kinds = {
            name: kind for name, kind in found if kind is not None and self._format.segment_order(name) is not None
        }
        if self._reports:
            self._report_others()
        if self._reports and self._listed:
            self._report()

    def _check_head(self, name: str) -> None:
        """Raise WrongFormatError if the oldest log segment is of another format. Its readers report damage."""
        with suppress(FileNotFoundError, SourceError, CorruptCommitError), self.open(name) as segment:
            check_head(self._format, os.path.join(self._folder, name), segment.read(0, HEAD_BYTES))

    def _others(self) -> str:
        """The end of a message that the folder holds no log segment: which files it holds instead."""
        if self._other_kinds:
            name, kind = min(self._other_kinds.items())
            return f" ({name} is {kind}, not a regular file)"
        names = sorted(self._foreign)
        for name in names[:RECOGNISED_FILES]:
            with suppress(FileNotFoundError, SourceError), _open_file(self._folder, name, self._failed_syncs) as file:
                found = recognise(name, file.read(0, HEAD_BYTES))
                if found is not None:
                    return f"; {name} is a log segment of {found.written_by}: use --format {found.format}"
        if (below := recognise_below(self._folder)) is not None:
            name, found = below
            return (
                f"; its folder {name} is a log of {found.written_by}: give that one, or give {self._folder} as dir: "
                f"with format: {found.format} in a configuration, which takes all of them"
            )
        if (fragment := find_fragment(names)) is not None:
            return (
                f"; {fragment} is a fragment of a Gazette journal: litelog cat and verify read it with --format gazette"
            )
        if not names:
            return ""
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        return f" (but {names[0]}{more}; are they of another --format?)"

    def _report_others(self) -> None:
        """Warn of each entry that has a log segment's name and is not a regular file."""
        for name in sorted(self._other_kinds.keys() - self._reported):
            message = "%s: skipped %s, which is %s, not a regular file"
            extra = fields("file-skipped", log=self._folder, file=name)
            _logger.warning(message, self._folder, name, self._other_kinds[name], extra=extra)
            self._reported.add(name)

    def _report(self) -> None:
        for name in sorted(self._foreign - self._reported):
            message = "%s: not a %s log segment, skipped: %s"
            extra = fields("file-skipped", log=self._folder, file=name)
            _logger.warning(message, self._folder, self._format.name, name, extra=extra)
        self._reported |= self._foreign


def _find_kind(entry: os.DirEntry[str]) -> str | None:
    """The kind of an entry that is not a regular file; None for a regular file, and for an entry that is gone."""
    if entry.is_file(follow_symlinks=False):
        return None
    with suppress(FileNotFoundError):
        return find_other_kind(entry.stat(follow_symlinks=False).st_mode)
    return None
