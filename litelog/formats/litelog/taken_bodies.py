"""TakenBodies: the columns of a run of commits, checked and decoded by the compiled library in one pass.

``Bodies`` does the same with NumPy, and reports which column of which commit is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.formats.columns import Columns
from litelog.native import commit_rows

if TYPE_CHECKING:
    from litelog.native.commit_rows import CommitBodies


@dataclass(frozen=True, slots=True)
class TakenBodies:
    """The records of a run of commits. Places are in the buffer."""

    data: memoryview
    found: CommitBodies

    @classmethod
    def read(cls, data: memoryview, positions: list[int], records: int) -> TakenBodies | None:
        """Read the commits at ``positions``, whose headers and checksums are right. None without the library, and if
        the columns of a commit do not fill its body exactly."""
        found = commit_rows.take_bodies(data, positions, records)
        return None if found is None else cls(data, found)

    def time_range(self) -> tuple[int, int]:
        """The lowest and the highest record timestamp of all commits, microseconds since 1970."""
        return self.found.lowest, self.found.highest

    def columns(self, first: int) -> Columns:  # noqa: ARG002  # commits state their sequences
        """All records; the first one has sequence ``first``."""
        sequences, times, value_starts, value_lengths, *keys = self.found.columns
        return Columns(
            data=self.data,
            sequences=sequences,
            timestamps=times,
            key_starts=keys[0] if keys else None,
            key_lengths=keys[1] if keys else None,
            value_starts=value_starts,
            value_lengths=value_lengths,
            runs=self.found.firsts,
        )
