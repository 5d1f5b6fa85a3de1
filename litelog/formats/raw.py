"""The format of any file that is only appended to: the bytes read at once are a commit, and a record's sequence is the
number of the log's bytes before it.

Specified in litelog/formats/README.md#raw.
"""

from __future__ import annotations

import numpy as np

from litelog.formats.columns import Columns
from litelog.formats.log_format import MAX_COMMIT_BYTES, Commit, Expectation, Scan, Tail
from litelog.formats.pattern import PatternFormat


class RawFormat(PatternFormat):
    """Bytes appended to files that match ``pattern``, a glob. More than MAX_COMMIT_BYTES are several commits."""

    name = "raw"
    divisible = True

    def scan(
        self,
        name: str,
        data: memoryview,
        offset: int,
        expect: Expectation,
        *,
        known: bool = False,  # noqa: ARG002  # every byte is checked anyway
    ) -> Scan:
        found = self.commits(name, data, offset, expect)
        return Scan(
            start=offset,
            end=offset + len(data),
            commits=len(found),
            records=len(found),
            first=found[0].first if found else None,
            next=found[-1].next if found else expect.sequence,
            epoch=expect.epoch,
            lowest=None,
            highest=None,
            last_commit=found[-1].start if found else offset,
            tail=Tail.NOTHING,
            damage=None,
            wanted=0,
        )

    def commits(self, name: str, data: memoryview, offset: int, expect: Expectation) -> list[Commit]:  # noqa: ARG002
        first, size = expect.sequence or 0, len(data)
        spans = [(at, min(at + MAX_COMMIT_BYTES, size)) for at in range(0, size, MAX_COMMIT_BYTES)]
        return [Commit(offset + at, offset + end, first + at, first + end, None, None) for at, end in spans]

    def decode(self, name: str, data: memoryview, offset: int, expect: Expectation) -> Columns:
        found = self.commits(name, data, offset, expect)
        starts = np.array([commit.start - offset for commit in found], np.int64)
        ends = np.array([commit.end - offset for commit in found], np.int64)
        sequences = np.array([commit.first for commit in found], np.int64)
        return Columns(data, sequences, None, None, None, starts, ends - starts)
