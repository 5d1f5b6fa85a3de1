"""The format of text logs: a line that ends in \\n is a commit, and its number is its sequence.

Specified in litelog/formats/README.md#lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from litelog.errors import CorruptCommitError
from litelog.formats.columns import Columns
from litelog.formats.commit_tail import is_zero
from litelog.formats.log_format import MAX_COMMIT_BYTES, Commit, Expectation, Scan, Tail
from litelog.formats.pattern import PatternFormat
from litelog.formats.signatures import refuse_others

if TYPE_CHECKING:
    import numpy.typing as npt

COUNT_CHUNK_BYTES = 1 << 20  # searched at a time, so that the flags of a chunk stay in the processor's cache
NEWLINE = 10


class LinesFormat(PatternFormat):
    """NDJSON and text logs: lines appended to files that match ``pattern``, a glob."""

    name = "lines"

    def scan(
        self,
        name: str,
        data: memoryview,
        offset: int,
        expect: Expectation,
        *,
        known: bool = False,  # noqa: ARG002  # every byte is checked anyway
    ) -> Scan:
        ends = _find_ends(name, data, offset)
        end = int(ends[-1]) if len(ends) else 0
        first = expect.sequence or 0
        left = len(data) - end
        tail = Tail.NOTHING
        if left and is_zero(data[end:]):
            tail = Tail.ZEROS
        elif left:
            tail = Tail.INCOMPLETE
        last = int(ends[-2]) if len(ends) > 1 else 0
        return Scan(
            start=offset,
            end=offset + end,
            commits=len(ends),
            records=len(ends),
            first=first if len(ends) else None,
            next=first + len(ends) if len(ends) else expect.sequence,
            epoch=expect.epoch,
            lowest=None,
            highest=None,
            last_commit=offset + last,
            tail=tail,
            damage=None,
            wanted=0,
        )

    def check_head(self, path: str, head: bytes) -> None:
        refuse_others(path, head, self.name)

    def commits(self, name: str, data: memoryview, offset: int, expect: Expectation) -> list[Commit]:
        ends = (_find_ends(name, data, offset) + offset).tolist()
        first, starts = expect.sequence or 0, [offset, *ends]
        return [
            Commit(start, end, number, number + 1, None, None)
            for number, (start, end) in enumerate(zip(starts[:-1], ends, strict=True), first)
        ]

    def decode(self, name: str, data: memoryview, offset: int, expect: Expectation) -> Columns:
        """The lines, without their line ends."""
        ends = _find_ends(name, data, offset)
        starts = np.concatenate([np.zeros(1, np.int64), ends])[:-1]
        first = expect.sequence or 0
        return Columns(
            data=data,
            sequences=np.arange(first, first + len(ends), dtype=np.int64),
            timestamps=None,
            key_starts=None,
            key_lengths=None,
            value_starts=starts,
            value_lengths=ends - starts - 1,
        )


def _find_ends(name: str, data: memoryview, offset: int) -> npt.NDArray[np.int64]:
    """The position after each line end. Raises CorruptCommitError for a line of more than MAX_COMMIT_BYTES."""
    array = np.frombuffer(data, np.uint8)
    chunks = range(0, len(array), COUNT_CHUNK_BYTES)
    found = [np.flatnonzero(array[at : at + COUNT_CHUNK_BYTES] == NEWLINE) + (at + 1) for at in chunks]
    ends = np.concatenate([np.empty(0, np.int64), *found])
    if len(data) > MAX_COMMIT_BYTES:
        bounds = np.concatenate([np.zeros(1, np.int64), ends, np.array([len(data)], np.int64)])
        lengths = np.diff(bounds)
        longest = int(lengths.argmax())
        if lengths[longest] > MAX_COMMIT_BYTES:
            place = offset + int(bounds[longest])
            raise CorruptCommitError(
                name, place, "length of the line", f"up to {MAX_COMMIT_BYTES}", int(lengths[longest])
            )
    return ends
