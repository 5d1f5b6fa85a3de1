r"""The walk over the commands of an append-only file: where whole commits lie in a buffer, and what follows.

command     *<number of words>\r\n, and for each word $<length>\r\n<the word>\r\n
annotation  #<text>\r\n, before a command

A commit is a command with the annotations before it, or a transaction from MULTI to EXEC. Nothing in it is a checksum.
Specified in litelog/formats/README.md#redis-aof.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from litelog.dataclass import dataclass
from litelog.errors import CorruptCommitError
from litelog.formats.commit_tail import is_zero
from litelog.formats.log_format import LARGEST_COMMIT_BYTES, Damage, Tail
from litelog.formats.redis_aof.command_lines import COMPILED_WINDOW_BYTES, WINDOW_BYTES, find_commands, name_number
from litelog.formats.redis_aof.rows import Rows
from litelog.native.library import load

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from litelog.formats.redis_aof.command_lines import CommandLines

_NUMBER = re.compile(rb"[*$]([0-9]{1,10})\r\n")
_NUMBER_BEGUN = re.compile(rb"[*$][0-9]{0,10}\r?")
_NUMBER_BYTES = 13
_ANNOTATION = re.compile(rb"#[^\r\n]{0,1024}\r\n")
_TIME = re.compile(rb"#TS:([0-9]{1,12})\r\n")
_ANNOTATIONS = re.compile(rb"(?:#[^\r\n]{0,1024}\r\n)+")
_ANNOTATION_BEGUN = re.compile(rb"#[^\r\n]{0,1024}\r?")
_COMMAND = re.compile(rb"\r\n(?=\*[1-9][0-9]{0,9}\r\n\$[0-9])")

MAX_COMMAND_BYTES = LARGEST_COMMIT_BYTES
"""The largest command or transaction. Redis takes values of up to 512 MiB, unless ``proto-max-bulk-len`` says more."""

MAX_SEARCHED = 1000
"""How many places after damage are tried. A value may hold commands, too."""

NO_KEY = -1
_KEY_WORDS: Mapping[bytes, int] = {
    **dict.fromkeys((b"SELECT", b"MULTI", b"EXEC", b"FLUSHALL", b"FLUSHDB", b"SWAPDB"), NO_KEY),
    **dict.fromkeys((b"FUNCTION", b"SCRIPT", b"PUBLISH", b"SPUBLISH"), NO_KEY),
    b"XGROUP": 2,
}
"""Which word of a command is its key, where that is not the first one after the command's name."""


_WHAT_TO_DO = (
    "run BGREWRITEAOF in Redis and start litelog again (a base file in RDB form holds values of any size), "
    "and set proto-max-bulk-len, so that Redis takes no larger values"
)

LEAST_ALONE, MOST_ALONE = 16, 4096
"""How many commits are read one by one before a window is tried again: more, if windows with line ends inside of words
follow each other."""

_NO_KEY_NAMES = np.array([name_number(name) for name, word in _KEY_WORDS.items() if word == NO_KEY], np.int64)
_SECOND_KEY_NAMES = np.array([name_number(name) for name, word in _KEY_WORDS.items() if word == 2], np.int64)
_TRANSACTION = np.array([name_number(b"MULTI"), name_number(b"EXEC")], np.int64)


@dataclass(slots=True)
class Commands:
    """Whole commands, by their places in the buffer; ``end`` is a place in the buffer, too."""

    commands: Rows = field(default_factory=lambda: Rows(4))
    """Start, end, start of the key, its length; 0 and -1 for a command without a key."""
    commits: Rows = field(default_factory=lambda: Rows(3))
    """Start, end, and how many sequences the commits up to this one take."""
    last_commit: int = 0
    """Where the last commit starts."""
    notes: dict[int, int] = field(default_factory=dict)
    """The seconds since 1970 that an annotation before a command states, by the command's number."""
    blocks: int = 0
    """How many sequences blocks take that hold no commands."""
    end: int = 0
    tail: Tail = Tail.NOTHING
    damage: Damage | None = None
    wanted: int = 0


class _IncompleteError(Exception):
    """The buffer ends in a command, which reaches at least up to ``needed``."""

    def __init__(self, needed: int) -> None:
        self.needed = needed


class _MalformedError(Exception):
    """The bytes at ``place`` are not ``expected``."""

    def __init__(self, place: int, expected: str) -> None:
        self.place, self.expected = place, expected


def walk(name: str, data: memoryview, offset: int) -> Commands:
    """Walk over ``data``, which begins at byte ``offset`` of log segment ``name``, where a commit begins.

    Raises CorruptCommitError: bytes that are not a command are followed by one, or a commit is larger than
    MAX_COMMAND_BYTES.
    """
    found, alone, most = Commands(), 0, LEAST_ALONE
    compiled = load() is not None
    window_bytes = COMPILED_WINDOW_BYTES if compiled else WINDOW_BYTES
    while found.end < len(data):
        if not alone:
            whole = _take_window(found, data[found.end : found.end + window_bytes])
            most = LEAST_ALONE if whole else min(2 * most, MOST_ALONE)
            most = 1 if compiled else most  # it stops at once where a window does not help
            alone = 0 if whole else most
            continue
        alone -= 1
        whole_commands = len(found.commands)
        try:
            _take_commit(found, data)
        except _IncompleteError as error:
            _drop_unfinished(found, whole_commands)
            _note_incomplete(found, name, data, offset, error)
            break
        except _MalformedError as error:
            _drop_unfinished(found, whole_commands)
            _note_malformed(found, name, data, offset, error)
            break
        start, size = found.last_commit, found.end - found.last_commit
        if size > MAX_COMMAND_BYTES:
            raise _too_large(name, offset + start, size)
    return found


def _take_window(found: Commands, window: memoryview) -> bool:
    """Append the commits that ``find_commands`` finds in the next window. Return whether they fill most of it."""
    lines = find_commands(window, _NO_KEY_NAMES, _SECOND_KEY_NAMES)
    ends = _commit_ends(lines)
    if not len(ends):
        return False
    base, count, before = found.end, int(ends[-1]) + 1, len(found.commands)
    commands = np.empty((4, count), np.int64)
    np.add(lines.starts[:count], base, out=commands[0])
    np.add(lines.ends[:count], base, out=commands[1])
    commands[3] = lines.key_lengths[:count]
    np.multiply(lines.key_starts[:count] + base, commands[3] >= 0, out=commands[2])
    found.commands.extend(commands)
    commits = np.empty((3, len(ends)), np.int64)
    np.add(lines.ends[ends], base, out=commits[1])
    commits[0, 0], commits[0, 1:] = base, commits[1, :-1]
    np.add(ends, before + 1, out=commits[2])
    found.commits.extend(commits)
    found.last_commit, found.end = int(commits[0, -1]), int(commits[1, -1])
    return found.end - base > len(window) // 2


def _commit_ends(lines: CommandLines) -> npt.NDArray[np.int64]:
    """The numbers of the commands that end a commit: all, except inside a transaction."""
    ends = np.ones(len(lines.starts), np.bool_)
    begun = None
    single = np.flatnonzero(lines.words == 1)
    names = lines.names[single]
    for number in single[(names == _TRANSACTION[0]) | (names == _TRANSACTION[1])].tolist():
        if lines.names[number] == _TRANSACTION[0]:
            begun = number if begun is None else begun
        elif begun is not None:
            ends[begun:number], begun = False, None
    if begun is not None:
        ends[begun:] = False
    return np.flatnonzero(ends)


def find_command(data: memoryview, start: int) -> int | None:
    """The place of a whole command after ``start``, at the beginning of a line; None if there is none."""
    for number, match in enumerate(_COMMAND.finditer(data, start)):
        if number == MAX_SEARCHED:
            return match.end()  # a person sees that error, but a tail would be cut off silently
        try:
            _take_command(Commands(), data, match.end())
        except (_IncompleteError, _MalformedError):
            continue
        return match.end()
    return None


def _take_commit(found: Commands, data: memoryview) -> None:
    """Append the commit at ``found.end``."""
    at, is_open = found.end, False
    while True:
        at, word = _take_command(found, data, at)
        if word == b"MULTI":
            is_open = True
        elif word == b"EXEC":
            is_open = False
        if not is_open:
            break
    found.commits.add((found.end, at, len(found.commands)))
    found.last_commit, found.end = found.end, at


def _drop_unfinished(found: Commands, count: int) -> None:
    """Remove the commands of a commit that is not whole: those after the first ``count``."""
    found.commands.cut(count)
    found.notes = {number: seconds for number, seconds in found.notes.items() if number < count}


def _take_command(found: Commands, data: memoryview, at: int) -> tuple[int, bytes]:
    """Append the command at ``at``, and return its end and its name, if it may begin or end a transaction."""
    size, noted = len(data), None
    while at < size and data[at] == 0x23:  # annotations
        match = _ANNOTATION.match(data, at)
        if match is None:
            if _ANNOTATION_BEGUN.fullmatch(data, at):
                raise _IncompleteError(size + 1)
            raise _MalformedError(at, "an annotation")
        noted = _TIME.match(data, at) or noted
        at = match.end()
    start = at
    words, at = _number(data, at, 0x2A)
    key, word = (0, NO_KEY), b""
    key_word = 1
    for number in range(words):
        length, at = _number(data, at, 0x24)
        end = at + length
        if size < end + 2:
            if size == end + 1 and data[end] != 0x0D:
                raise _MalformedError(end, "an end of line")
            raise _IncompleteError(end + 2)
        if data[end] != 0x0D or data[end + 1] != 0x0A:
            raise _MalformedError(end, "an end of line")
        if number == 0 and length <= 8:
            word = bytes(data[at:end]).upper()
            key_word = _KEY_WORDS.get(word, 1)
        elif number == key_word:
            key = (at, length)
        at = end + 2
    if noted is not None:
        found.notes[len(found.commands)] = int(noted[1])
    found.commands.add((start, at, *key))
    return at, word if words == 1 else b""


def _number(data: memoryview, at: int, mark: int) -> tuple[int, int]:
    """The number in the line at ``at``, which begins with ``mark``, and the place after the line."""
    size = len(data)
    if at < size and data[at] == mark and (match := _NUMBER.match(data, at)) is not None:
        number = int(match[1])
        if number or mark == 0x24:
            return number, match.end()
    elif at >= size or (data[at] == mark and size - at < _NUMBER_BYTES and _NUMBER_BEGUN.fullmatch(data, at)):
        raise _IncompleteError(size + 1)
    raise _MalformedError(at, f"{chr(mark)} and a number")


def _note_incomplete(found: Commands, name: str, data: memoryview, offset: int, error: _IncompleteError) -> None:
    needed = error.needed - found.end
    if needed > MAX_COMMAND_BYTES:
        raise _too_large(name, offset + found.end, needed)
    left = len(data) - found.end
    found.tail, found.wanted = Tail.INCOMPLETE, needed
    if _ANNOTATIONS.fullmatch(data, found.end):
        return  # nothing is cut off: a base file of an empty data set is an annotation alone
    found.damage = Damage(offset + found.end, "length of the command", f"at least {needed}", left)


def _note_malformed(found: Commands, name: str, data: memoryview, offset: int, error: _MalformedError) -> None:
    if is_zero(data[found.end :]):
        found.tail = Tail.ZEROS
        return
    actual = bytes(data[error.place : error.place + 8])
    found.damage = Damage(offset + found.end, "command", error.expected, f"{actual!r} at {offset + error.place}")
    if find_command(data, error.place) is not None:
        raise CorruptCommitError(
            name, found.damage.offset, found.damage.what, found.damage.expected, found.damage.actual
        )
    found.tail = Tail.DAMAGED


def _too_large(name: str, place: int, size: int) -> CorruptCommitError:
    expected = f"up to {MAX_COMMAND_BYTES}; {_WHAT_TO_DO}"
    return CorruptCommitError(name, place, "size of the command or transaction", expected, size)
