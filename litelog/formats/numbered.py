"""Formats whose log segments are named after their first sequence: their names, order and identity.

Specified in litelog/formats/README.md#file-names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from litelog.dataclass import dataclass
from litelog.errors import WrongFormatError
from litelog.formats.log_format import MAX_SEQUENCE
from litelog.formats.signatures import refuse_others

if TYPE_CHECKING:
    import re
    from uuid import UUID


@dataclass(frozen=True, slots=True)
class NumberedNames:
    """How a format names its log segments."""

    format: str
    """The format's name."""
    pattern: re.Pattern[str]
    """Matches a file name. The first group is the sequence, in decimal digits."""
    description: str
    """Describes a name, for errors: "an offset of 20 digits and .data"."""

    def sequence_of(self, name: str) -> int | None:
        """Return the sequence that a file name states; None for a name that is not a log segment's."""
        match = self.pattern.fullmatch(name)
        return int(match[1]) if match and int(match[1]) <= MAX_SEQUENCE else None

    def require_sequence(self, path: str) -> int:
        """Return the sequence that the name of the log segment at ``path`` states. Raises WrongFormatError."""
        sequence = self.sequence_of(path.rpartition("/")[2])
        if sequence is None:
            raise WrongFormatError(path, self.format, f"its name is not {self.description}")
        return sequence


class NumberedFormat:
    """The members of a format whose names state sequences. Its bytes do not identify the log, unless a subclass reads
    an identity in them."""

    names: ClassVar[NumberedNames]
    self_numbered = True
    has_log_id = False

    def segment_order(self, name: str) -> tuple[object, ...] | None:
        sequence = self.names.sequence_of(name)
        return None if sequence is None else (sequence,)

    def check_names(self, names: list[str]) -> None:
        """Refuse nothing: a name states its first sequence, and no sequence occurs twice."""

    def log_id(self, name: str, head: memoryview) -> UUID | None:  # noqa: ARG002  # most such logs have none
        return None

    def first_sequence(self, name: str) -> int | None:
        return self.names.sequence_of(name)

    def check_head(self, path: str, head: bytes) -> None:
        refuse_others(path, head, self.names.format)
