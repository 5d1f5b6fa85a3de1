"""The watermark of a log: the sequence below which its writer takes no record back, as a file of the writer states it.

Later records may be taken back, for example by a broker that elects another leader. They are not shipped.

Specified in litelog/formats/README.md#watermark.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING

from litelog.errors import SourceError
from litelog.events import fields
from litelog.formats.capabilities import read_watermark, watermark_file
from litelog.system.files import read_regular

if TYPE_CHECKING:
    from litelog.formats import LogFormat

_logger = logging.getLogger(__name__)

MAX_BYTES = 16 << 20
"""The most bytes of the file: about a line for each log of a writer."""


class WatermarkUse(StrEnum):
    """The use of a log's watermark by its daemon."""

    CHECKPOINT = "checkpoint"
    """Records after the watermark that the log's writer has written to disk are not shipped."""
    NONE = "none"
    """They are shipped: if the writer takes them back, a new generation begins."""


class Watermark:
    """Reads the watermark of one log. Any thread may use it."""

    def __init__(self, folder: str, path: str, log_format: LogFormat) -> None:
        self._folder = folder
        self.path = path
        """The file that states it."""
        self._format = log_format
        self._read: tuple[tuple[int, int], int | None] | None = None

    def signature(self) -> tuple[int, int]:
        """Return a value that changes when the file does: its inode, and its time of change in nanoseconds."""
        with suppress(OSError):
            status = os.stat(self.path)
            return (status.st_ino, status.st_mtime_ns)
        return (-1, 0)

    def read(self) -> int | None:
        """Return the sequence below which the writer takes no record back; None if it takes none back at all.

        Raises:
            SourceError: The file cannot be read, or does not state a watermark.
        """
        signature, before = self.signature(), self._read
        if before is not None and before[0] == signature:
            return before[1]
        try:
            found = read_watermark(self._format, self._folder, read_regular(self.path, MAX_BYTES))
        except FileNotFoundError:
            found = read_watermark(self._format, self._folder, None)
            if found == 0:
                said = "%s: not there: nothing is shipped before the log's writer states its watermark in it"
                _logger.warning(said, self.path, extra=fields("watermark-missing", log=self._folder))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise SourceError(f"{self.path}: cannot be read as a watermark: {reason or error}") from error
        self._read = (signature, found)
        return found


def find_watermark(folder: str, log_format: LogFormat) -> Watermark | None:
    """Return the watermark of the log in ``folder``; None if writers of the format state none."""
    path = watermark_file(log_format, folder)
    return None if path is None else Watermark(folder, path, log_format)
