"""Writes the repaired log segments, and puts them in place of the damaged ones, of which it keeps a backup.

All new files and backups are whole and synced before the steps are written down that put them in place
(``log/unfinished_repair.py``). From then on the repair is completed, also after a kill.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from litelog.codec.checksum import crc32c
from litelog.errors import CorruptObjectError, SourceError
from litelog.formats.capabilities import index_name, write_index
from litelog.formats.log_format import HEAD_BYTES
from litelog.log.unfinished_repair import BACKUPS, NEW, RepairSteps, complete_repair, remove_steps, write_steps
from litelog.restore.index_files import commits_in_file
from litelog.system.files import open_regular, sync_folder, write_at
from litelog.units import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.repair.local_files import LocalFiles
    from litelog.repair.plan import FilePlan

_FILE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_CANNOT_LINK = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_MODE = 0o644


class NewFiles:
    """The new files of one repair. The caller holds the log's locks."""

    def __init__(self, files: LocalFiles, plans: Sequence[FilePlan], removed: Sequence[str], stamp: str) -> None:
        """``removed``: the log segments that are moved to the backup. ``stamp``: the name of the folder with the
        replaced files."""
        self._files = files
        self._folder = files.folder
        self._plans = plans
        self._removed = removed
        self._root = os.path.join(self._folder, BACKUPS)
        self._new = os.path.join(self._root, NEW)
        self.backup = os.path.join(self._root, stamp)
        """The folder with the replaced files."""

    def write(self) -> None:
        """Write all new files. Changes nothing of the log. Raises CorruptionError and StoreError if a replica no longer
        holds what was planned, and OSError."""
        self.clear()
        self._require_space()
        os.makedirs(self._new, exist_ok=True)
        for plan in self._plans:
            self._write_one(plan)
            index = index_name(self._files.format, plan.name)
            if index is not None:
                self._write_index(plan.name, index)

    def prepare(self) -> None:
        """Back up the damaged files, and write down the steps: log segments that are removed come first, from the
        newest one on, so that the log has no hole meanwhile. Nothing of the log is changed. Raises OSError."""
        names = [name for plan in self._plans for name in self._names_of(plan)]
        os.mkdir(self.backup)
        for name in (*names, *self._removed):
            with suppress(FileNotFoundError):
                self._back_up(name)
        for folder in (self._new, self.backup, self._root, self._folder):
            sync_folder(folder)
        write_steps(self._folder, RepairSteps(tuple(reversed(self._removed)), tuple(names)))

    def publish(self) -> None:
        """Put the new files in place. Raises OSError."""
        complete_repair(self._folder)
        if not os.listdir(self.backup):
            os.rmdir(self.backup)

    def clear(self) -> None:
        """Remove the files that this repair, or a killed one, has not put in place. Steps whose writing failed are
        removed first: without their new files, no program may carry them out. If they cannot be removed, the next
        repair does that."""
        try:
            remove_steps(self._folder)
        except OSError:
            return
        shutil.rmtree(self._new, ignore_errors=True)
        with suppress(OSError):
            os.rmdir(self._root)

    def _names_of(self, plan: FilePlan) -> list[str]:
        """The files of a log segment, in the order in which they are put in place. An index of the damaged file would
        pass for that of the new file, so the new index comes first."""
        index = index_name(self._files.format, plan.name)
        return [plan.name] if index is None else [index, plan.name]

    def _write_one(self, plan: FilePlan) -> None:
        descriptor = os.open(os.path.join(self._new, plan.name), _FILE_FLAGS, _MODE)
        try:
            self._copy_owner(descriptor, plan.name if plan.exists else self._files.names[-1])
            offset, crc = 0, 0
            for span in plan.spans:
                if span.history is None:
                    for data in self._files.pieces(plan.name, span.start, span.stop):
                        crc = crc32c(data, crc)
                        offset += write_at(descriptor, data, offset)
                else:
                    for run in span.history.read(plan.name, span.start, span.stop):
                        crc = crc32c(run.data, crc)
                        offset += write_at(descriptor, run.data, offset)
                        if run.crc_total not in (None, crc):
                            what = f"CRC-32C up to {run.end}"
                            raise CorruptObjectError(f"{run.replica}: {plan.name}", what, run.crc_total, crc)
                if offset != span.stop:
                    raise SourceError(f"{os.path.join(self._folder, plan.name)}: changed while it was read")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _write_index(self, name: str, index: str) -> None:
        descriptor = open_regular(os.path.join(self._new, name), os.O_RDONLY | os.O_NOFOLLOW)
        try:
            head = os.pread(descriptor, HEAD_BYTES, 0)
            body = write_index(self._files.format, name, head, commits_in_file(descriptor, name, self._files.format))
        finally:
            os.close(descriptor)
        descriptor = os.open(os.path.join(self._new, index), _FILE_FLAGS, _MODE)
        try:
            self._copy_owner(descriptor, name if os.path.exists(os.path.join(self._folder, name)) else index)
            write_at(descriptor, body, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _copy_owner(self, descriptor: int, name: str) -> None:
        """Give a new file the mode, and as root the owner, of the log segment ``name``."""
        with suppress(FileNotFoundError):
            status = os.stat(os.path.join(self._folder, name), follow_symlinks=False)
            with suppress(PermissionError):
                os.fchown(descriptor, status.st_uid, status.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode))

    def _back_up(self, name: str) -> None:
        """Keep a file under a second name; as a copy where the file system has no such names."""
        source, target = os.path.join(self._folder, name), os.path.join(self.backup, name)
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _CANNOT_LINK:
                raise
            shutil.copy2(source, target, follow_symlinks=False)
            descriptor = open_regular(target, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _require_space(self) -> None:
        size = sum(plan.size for plan in self._plans)
        disk = os.statvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        if size > free:
            needed = f"needs {format_size(size)} for the new files, and its file system has {format_size(free)} free"
            raise SourceError(f"{self._folder}: {needed}; nothing was changed")
