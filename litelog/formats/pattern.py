"""What the formats share whose log segments are the files that match a pattern, and whose bytes name no log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.formats.file_names import natural_order, refuse_rotation
from litelog.formats.log_format import FinishedTail

if TYPE_CHECKING:
    from uuid import UUID


class PatternFormat:
    """Files that match ``pattern``, a glob, in their natural order, shipped to their last byte."""

    finished_tail = FinishedTail.SHIP
    has_timestamps = False
    self_numbered = False
    has_log_id = False

    def __init__(self, pattern: str = "*") -> None:
        self.pattern = pattern

    def segment_order(self, name: str) -> tuple[object, ...] | None:
        return natural_order(name, self.pattern)

    def check_names(self, names: list[str]) -> None:
        refuse_rotation(names, self.pattern)

    def log_id(self, name: str, head: memoryview) -> UUID | None:  # noqa: ARG002  # such bytes have none
        return None
