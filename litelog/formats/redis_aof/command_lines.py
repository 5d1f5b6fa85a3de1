"""Finds the whole commands of an append-only file by its lines, for a whole window of bytes at once.

The lines of commands whose words hold no line end alternate: a count, then for each word its length and the word. Where
the lengths of lines contradict that, and at an annotation, the rest is left to ``command_walk``, command by command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from litelog.native import walks

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

WINDOW_BYTES, COMPILED_WINDOW_BYTES = 256 << 10, 4 << 20
"""How many bytes are looked at at a time: temporary arrays stay small, whatever the bytes are."""

MIN_COMMAND_BYTES = len(b"*1\r\n$0\r\n\r\n")

_LINE_END, _NEWLINE = 13, 10
_COUNT, _LENGTH = 0x2A, 0x24
_MOST_DIGITS = 9
_NAME_BYTES = 8
_UPPER = 0xDF


class CommandLines(NamedTuple):
    """Whole commands at the front of a window, by their places in it."""

    starts: Int64s
    ends: Int64s
    key_starts: Int64s
    key_lengths: Int64s
    """-1 for a command without a key."""
    names: Int64s
    """The first bytes of each command's name in upper case, as ``name_number`` gives them; 0 for a longer name."""
    words: Int64s


def name_number(name: bytes) -> int:
    """A command's name of up to 8 letters, as a number."""
    return int.from_bytes(name, "little")


def find_commands(data: memoryview, no_key: Int64s, second_key: Int64s) -> CommandLines:
    """Find the whole commands at the front of ``data``, up to the first annotation.

    Args:
        data: The bytes from the start of a commit on, at most WINDOW_BYTES.
        no_key: The numbers of the names of commands without a key.
        second_key: The same numbers for commands whose key is the second word after the name.

    Returns:
        The commands. Without the compiled library only those before the first word with a line end in it.
    """
    found = walks.find_commands(data, no_key, second_key, MIN_COMMAND_BYTES)
    return _find_commands(data, no_key, second_key) if found is None else CommandLines(*found)


def _find_commands(data: memoryview, no_key: Int64s, second_key: Int64s) -> CommandLines:
    """As ``find_commands``, without the library."""
    array = np.frombuffer(data, np.uint8)
    line_ends = np.flatnonzero((array[:-1] == _LINE_END) & (array[1:] == _NEWLINE))
    starts = np.concatenate([np.zeros(1, np.int64), line_ends + 2])[:-1]
    lengths = line_ends - starts
    marks = np.where(lengths > 0, array[np.minimum(starts, len(array) - 1)], 0)
    numbers = _numbers(array, starts, lengths, marks)
    heads = _find_heads(marks, numbers, len(starts))
    heads = heads[: _count_good(heads, marks, numbers, lengths)]
    words = numbers[heads]
    lasts = heads + 2 * words
    names = _names(array, starts[heads + 2], lengths[heads + 2])
    key_line = heads + np.where(np.isin(names, second_key), 6, 4)
    has_key = (key_line <= lasts) & ~np.isin(names, no_key)
    key_line = np.where(has_key, key_line, heads)
    return CommandLines(
        starts[heads],
        line_ends[lasts] + 2,
        np.where(has_key, starts[key_line], 0),
        np.where(has_key, lengths[key_line], -1),
        names,
        words,
    )


def _numbers(array: npt.NDArray[np.uint8], starts: Int64s, lengths: Int64s, marks: npt.NDArray[np.uint8]) -> Int64s:
    """The number in each line that is a count or a length; -1 for any other line."""
    numbers = np.full(len(starts), -1, np.int64)
    stated = (marks == _COUNT) | (marks == _LENGTH)
    lines = np.flatnonzero(stated & (lengths > 1) & (lengths <= 1 + _MOST_DIGITS))
    if not len(lines):
        return numbers
    digits, first = lengths[lines] - 1, starts[lines] + 1
    values, good = np.zeros(len(lines), np.int64), np.ones(len(lines), np.bool_)
    for place in range(int(digits.max())):
        there = digits > place
        digit = array[np.where(there, first + place, first)].astype(np.int64) - 48
        good &= ~there | ((digit >= 0) & (digit <= 9))
        values = np.where(there, values * 10 + digit, values)
    numbers[lines] = np.where(good, values, -1)
    return numbers


def _find_heads(marks: npt.NDArray[np.uint8], numbers: Int64s, count: int) -> Int64s:
    """The lines at which commands begin that end in the window, provided that the counts before them are right."""
    words = np.where((marks == _COUNT) & (numbers > 0), numbers, -1).tolist()
    heads, line = [], 0
    while line < count:
        number = words[line]
        following = line + 1 + 2 * number
        if number < 0 or following > count:
            break
        heads.append(line)
        line = following
    return np.array(heads, np.int64)


def _count_good(heads: Int64s, marks: npt.NDArray[np.uint8], numbers: Int64s, lengths: Int64s) -> int:
    """How many commands come before the first one with a word whose length is not that of its line."""
    words = numbers[heads]
    before = np.cumsum(words) - words
    total = int(words.sum())
    lines = np.repeat(heads + 1, words) + 2 * (np.arange(total) - np.repeat(before, words))
    bad = np.flatnonzero((marks[lines] != _LENGTH) | (numbers[lines] != lengths[lines + 1]))
    return int(np.searchsorted(before, bad[0], "right")) - 1 if len(bad) else len(heads)


def _names(array: npt.NDArray[np.uint8], starts: Int64s, lengths: Int64s) -> Int64s:
    names, short = np.zeros(len(starts), np.int64), lengths <= _NAME_BYTES
    for place in range(_NAME_BYTES):
        there = short & (lengths > place)
        letter = array[np.where(there, starts + place, 0)].astype(np.int64) & _UPPER
        names |= np.where(there, letter << (8 * place), 0)
    return names
