"""Finds where a log was at a time by the index files of its writer, for formats whose records have no timestamps."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from litelog.formats.capabilities import first_indexed, index_name
from litelog.system.files import open_regular

if TYPE_CHECKING:
    from litelog.formats import LogFormat
    from litelog.log.source import SegmentFolder

MOST_INDEX_BYTES = 16 << 20
"""How many bytes of an index file are read at most: ten times what NetLog's server makes of one."""


def sequence_at(folder: str, names: SegmentFolder, log_format: LogFormat, time: int) -> int | None:
    """The sequence of the first record that was written at ``time`` (microseconds since 1970) or later.

    None if there is none. Log segments without a readable index file are skipped. Raises SourceError if the log cannot
    be listed.
    """
    for name in names.all():
        index = index_name(log_format, name)
        found = None if index is None else first_indexed(log_format, name, _read(os.path.join(folder, index)), time)
        if found is not None:
            return found
    return None


def _read(path: str) -> bytes:
    try:
        descriptor = open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        return file.read(MOST_INDEX_BYTES)
