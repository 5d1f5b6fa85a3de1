"""NetLog's index files: where each message of a log segment lies, without which its server does not open a topic.

row, 16 bytes, big-endian
 0  4  u32 number of the first record in the log segment, from 1 on   4  4  u32 time, seconds since 1970
 8  8  u64 place of its message in the log segment

One more row holds the next number and the end of the last message. Zeros follow: the server maps the file, and fills it
row by row.
Specified in litelog/formats/README.md#netlog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from litelog.formats.netlog.messages import SEGMENT_HEADER_BYTES, created

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litelog.formats.log_format import Commit

ROW = np.dtype([("number", ">u4"), ("time", ">u4"), ("place", ">u8")])

ROWS = 102_400
"""How many rows the server gives a log segment."""


def first_number(content: bytes, seconds: int) -> int | None:
    """The number, from 0 on, of the first record that was written at ``seconds`` since 1970 or later, by an index file.

    None if there is none. The server may be writing the file.
    """
    rows = np.frombuffer(content[: len(content) // ROW.itemsize * ROW.itemsize], ROW)
    found = np.flatnonzero((rows["number"] > 0) & (rows["time"] > 0) & (rows["time"] >= seconds))
    return int(rows["number"][found[0]]) - 1 if len(found) else None


def index_rows(first: int, head: bytes, commits: Iterable[Commit]) -> bytes:
    """The index file of a log segment.

    Args:
        first: The first record's offset in the topic, which the name of the log segment states.
        head: The first bytes of the log segment. Its header has the time that the rows get.
        commits: The messages of the log segment.
    """
    numbers, places = [1], [SEGMENT_HEADER_BYTES]
    for commit in commits:
        numbers.append(commit.next - first + 1)
        places.append(commit.end)
    rows = np.zeros(max(ROWS, len(places)), ROW)
    written = rows[: len(places)]
    written["number"], written["place"] = numbers, places
    written["time"][:-1] = created(head) or 0
    return rows.tobytes()
