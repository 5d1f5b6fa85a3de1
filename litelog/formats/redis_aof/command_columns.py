"""The columns of commands besides key and value: what Redis calls the command, its arguments, and the time noted at it.

They are found in the commands' bytes on request.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from litelog.dataclass import dataclass
from litelog.formats.extra_columns import ColumnType, NumberColumn

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow

    from litelog.formats.extra_columns import ExtraColumn

    Int64s = npt.NDArray[np.int64]

EXTRA_COLUMNS = {"command": ColumnType.TEXT, "arguments": ColumnType.BYTES_LIST, "ts": ColumnType.INT64}
"""The command's name in upper case; the words after it; and the seconds since 1970 in the annotation before it. Only
the first command of a second has one, and only if Redis is set to write them."""

_MARK_BYTES = 1
_LINE_END_BYTES = 2
_CARRIAGE_RETURN, _ZERO = 13, 48
_LOWER_A, _LOWER_Z, _CASE, _LAST_ASCII, _UNKNOWN = 97, 122, 32, 127, 63
_LENGTH = re.compile(rb"\$([0-9]+)\r\n")


def command_columns(data: memoryview, starts: Int64s, ends: Int64s, notes: dict[int, int]) -> dict[str, ExtraColumn]:
    """The columns of whole commands at [starts, ends) of ``data``. ``notes``: the seconds noted at a command, by its
    number."""
    seconds, missing = np.zeros(len(starts), np.int64), np.ones(len(starts), np.bool_)
    numbers = np.fromiter(notes, np.int64, len(notes))
    seconds[numbers], missing[numbers] = np.fromiter(notes.values(), np.int64, len(notes)), False
    return {
        "command": NamesColumn(data, starts),
        "arguments": ArgumentsColumn(data, starts, ends),
        "ts": NumberColumn(seconds, missing),
    }


@dataclass(frozen=True, slots=True)
class NamesColumn:
    """The names of commands, in upper case, and with a question mark for each byte that is not ASCII."""

    data: memoryview
    starts: Int64s

    def slice(self, start: int, stop: int) -> NamesColumn:
        return replace(self, starts=self.starts[start:stop])

    def take(self, chosen: Int64s) -> NamesColumn:
        return replace(self, starts=self.starts[chosen])

    def to_list(self) -> list[Any]:
        letters, ends = self._letters()
        text, starts = letters.tobytes().decode("ascii"), [0, *ends.tolist()]
        return [text[start:end] for start, end in pairwise(starts)]

    def to_arrow(self) -> pyarrow.Array:
        import pyarrow  # noqa: PLC0415  # an extra

        letters, ends = self._letters()
        offsets = np.concatenate([np.zeros(1, np.int64), ends]).astype(np.int32)
        buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(letters)]
        return pyarrow.Array.from_buffers(pyarrow.string(), len(self.starts), buffers)

    def _letters(self) -> tuple[npt.NDArray[np.uint8], Int64s]:
        """All names back to back, and where each ends."""
        array = np.frombuffer(self.data, np.uint8)
        at = _find_line_end(array, self.starts) + _LINE_END_BYTES
        end = _find_line_end(array, at)
        lengths = _read_number(array, at + _MARK_BYTES, end)
        ends = np.cumsum(lengths)
        places = np.repeat(end + _LINE_END_BYTES - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)
        letters = array[places]
        is_lower = (letters >= _LOWER_A) & (letters <= _LOWER_Z)
        letters = np.where(is_lower, letters - _CASE, np.where(letters > _LAST_ASCII, _UNKNOWN, letters))
        return letters.astype(np.uint8), ends


def _find_line_end(array: npt.NDArray[np.uint8], starts: Int64s) -> Int64s:
    """Where the lines at ``starts``, which each hold a number, end."""
    at = starts.copy()
    while (going := array[at] != _CARRIAGE_RETURN).any():
        at += going
    return at


def _read_number(array: npt.NDArray[np.uint8], start: Int64s, stop: Int64s) -> Int64s:
    number, at = np.zeros(len(start), np.int64), start.copy()
    while (going := at < stop).any():
        number = np.where(going, number * 10 + array[at] - _ZERO, number)
        at += going
    return number


@dataclass(frozen=True, slots=True)
class ArgumentsColumn:
    """The words of commands after their names. Each command is parsed separately."""

    data: memoryview
    starts: Int64s
    ends: Int64s

    def slice(self, start: int, stop: int) -> ArgumentsColumn:
        return replace(self, starts=self.starts[start:stop], ends=self.ends[start:stop])

    def take(self, chosen: Int64s) -> ArgumentsColumn:
        return replace(self, starts=self.starts[chosen], ends=self.ends[chosen])

    def to_list(self) -> list[Any]:
        return [self._words(start, end) for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True)]

    def to_arrow(self) -> pyarrow.Array:
        import pyarrow  # noqa: PLC0415  # an extra

        return pyarrow.array(self.to_list(), ColumnType.BYTES_LIST.arrow())

    def _words(self, start: int, end: int) -> list[bytes]:
        found: list[bytes] = []
        match = _LENGTH.search(self.data, start)
        while match is not None and match.start() < end:
            word = match.end(), match.end() + int(match[1])
            found.append(bytes(self.data[slice(*word)]))
            match = _LENGTH.match(self.data, word[1] + _LINE_END_BYTES)
        return found[1:]
