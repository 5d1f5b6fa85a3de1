"""Remembers that a file of a log could not be synced, also when the daemon is started again.

The kernel reports lost bytes once. A descriptor that is opened after that sees success, and the page cache still
returns bytes that the disk does not hold. So nothing of the log is read until the machine is restarted or the file is
replaced: from then on, reads return what the disk holds. <state folder>/<log>/failed-syncs.json names the file until
then.

Specified in litelog/shipping/README.md#only-what-is-durable.
"""

from __future__ import annotations

import logging
import os
import threading

from litelog.dataclass import dataclass
from litelog.errors import SourceSyncError
from litelog.events import fields
from litelog.system.checked_files import NoteFile

FILE = "failed-syncs.json"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Failure:
    path: str
    """The file, or the log's folder."""
    inode: int
    boot: str
    """The boot id of the machine."""
    reason: str


@dataclass(frozen=True, slots=True)
class _Note:
    failures: tuple[_Failure, ...] = ()


class FailedSyncs:
    """The failed syncs of one log. All its replicas share them; any thread may use them."""

    def __init__(self, folder: str | None = None, boot: str = "") -> None:
        """``folder``: the log's state folder; None: failures are forgotten with this object. ``boot``: the machine's
        boot id."""
        self._file = None if folder is None else NoteFile(os.path.join(folder, FILE), _Note, "the log counts as synced")
        self._boot = boot
        self._lock = threading.Lock()
        self._note: _Note | None = None

    def require_none(self) -> None:
        """Raise SourceSyncError if a file of the log could not be synced, and may not be on the disk since."""
        with self._lock:
            failure = next(filter(self._matters, self._load().failures), None)
        if failure is None:
            return
        reason = (
            f"could not be synced ({failure.reason}), so the disk may lack bytes that reads return: the log is frozen "
            "until the machine is restarted, or until this file is replaced by a copy of itself"
        )
        if self._file is not None:
            reason += f", or until {self._file.path} is removed, after the file system was mounted again"
        raise SourceSyncError(failure.path, reason)

    def keep(self, path: str, inode: int, error: OSError) -> SourceSyncError:
        """Remember that the sync of a file failed, durably. Return the error to raise."""
        with self._lock:
            kept = tuple(old for old in self._load().failures if self._matters(old) and old.path != path)
            self._note = _Note((*kept, _Failure(path, inode, self._boot, str(error))))
            self._save(self._note)
        return SourceSyncError(path, f"cannot be synced, so its bytes may not be durable: {error}")

    def _matters(self, failure: _Failure) -> bool:
        """Whether the page cache may still return bytes that the disk does not hold."""
        try:
            return failure.boot == self._boot and os.stat(failure.path).st_ino == failure.inode
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True

    def _load(self) -> _Note:
        if self._note is None:
            self._note = (self._file.read() if self._file is not None else None) or _Note()
        return self._note

    def _save(self, note: _Note) -> None:
        if self._file is None:
            return
        try:
            self._file.write(note)
        except OSError as error:
            message = "%s: cannot be saved: %s; restart the machine before litelog is started again for this log"
            path = self._file.path
            _logger.error(message, path, error.strerror, extra=fields("state-not-kept", path=path))
