"""Index files of the log's own writer. It does not open a restored log without them, so a restore writes them again.

They are not in the replica, as they follow from the log segments. Specified in litelog/restore/README.md#index-files.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from litelog.formats import Expectation
from litelog.formats.capabilities import index_name, max_commit_bytes, write_index
from litelog.formats.log_format import HEAD_BYTES
from litelog.objects.side_files import SideFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from litelog.formats import Commit, LogFormat
    from litelog.restore.output import OutputFolder

_READ_BYTES = 4 << 20


def write_index_files(folder: OutputFolder, names: Iterable[str], log_format: LogFormat) -> None:
    """Write the index file of each log segment in ``names``, synced, if the format has such files.

    Raises OSError; CorruptCommitError and SequenceGapError as ``LogFormat.commits``.
    """
    for name in names:
        index = index_name(log_format, name)
        if index is None:
            continue
        descriptor = folder.reopen(name)
        try:
            head = os.pread(descriptor, HEAD_BYTES, 0)
            body = write_index(log_format, name, head, commits_in_file(descriptor, name, log_format))
        finally:
            os.close(descriptor)
        folder.write_file(SideFile(index, body))


def commits_in_file(descriptor: int, name: str, log_format: LogFormat) -> Iterator[Commit]:
    """Yield the commits of a whole log segment. Raises as ``LogFormat.commits``."""
    offset, expect, length = 0, Expectation(), _READ_BYTES
    while data := os.pread(descriptor, length, offset):
        found = log_format.commits(name, memoryview(data), offset, expect)
        if found:
            yield from found
            offset, expect, length = found[-1].end, Expectation(found[-1].next), _READ_BYTES
        elif len(data) < length or length > max_commit_bytes(log_format):
            return
        else:
            length *= 2
