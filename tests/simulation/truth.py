"""The content that the log has held, and the acknowledged part of it."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from litelog.codec.checksum import crc32c
from litelog.formats import Expectation
from litelog.formats.litelog import LitelogFormat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from litelog.objects.wal_segment import WalHeader

FORMAT = LitelogFormat()


class Truth:
    """The content that one log has held. A rewound log has more than one history. The earlier content is kept, since
    readers may return it until the owner has begun another generation."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.files: dict[str, bytes] = {}
        """Everything that the log held, by log segment, including truncated ones."""
        self.gone: list[dict[str, bytes]] = []
        """Its content before it was rewound, or before data came back to it."""
        self.shipped: list[Shipped] = []
        """The acknowledged part, for each replica."""

    def read(self, name: str) -> None:
        """Look at one log segment."""
        with suppress(FileNotFoundError), open(os.path.join(self.folder, name), "rb") as file:
            self.files[name] = file.read()

    def read_all(self) -> None:
        """Look at the log's folder."""
        for name in self.names():
            self.read(name)

    def here(self) -> dict[str, bytes]:
        """The current content of the log."""
        names = self.names()
        return {name: body for name, body in self.files.items() if name in names}

    def change_history(self) -> None:
        """The log was rewound, or data came back to it. Data that was truncated before is a part of both histories."""
        before = dict(self.files)
        self.gone.append(before)
        names = self.names()
        oldest = min(names, default="")
        for name in [name for name in self.files if name >= oldest and name not in names]:
            del self.files[name]
        self.read_all()
        for shipped in self.shipped:
            shipped.change_history(before)

    def names(self) -> set[str]:
        """The log segments that exist."""
        there = os.listdir(self.folder) if os.path.isdir(self.folder) else []
        return {name for name in there if FORMAT.segment_order(name) is not None}


class Shipped:
    """The part of a log that one replica has acknowledged."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        truth.shipped.append(self)
        self.promised: dict[str, int] = {}
        """By log segment, the end of the acknowledged part."""

    def acknowledge(self, header: WalHeader) -> str:
        """Note that a WAL segment is durable. Returns what is wrong with it, or an empty text."""
        name = header.file
        self._truth.read(name)
        body = self._truth.files.get(name, b"")
        if not _holds(body, header):
            if any(_holds(history.get(name, b""), header) for history in self._truth.gone):
                return ""  # it was in transit when the log was rewound
            return f"{name} up to {header.end}, which are not the bytes that were written ({len(body)})"
        end = len(body) if header.sealed is not None else header.end
        self.promised[name] = max(end, self.promised.get(name, 0))
        return ""

    def next(self) -> int:
        """The record after the last acknowledged one."""
        newest = max(self.promised, default=None)
        if newest is None:
            return 0
        held = memoryview(self._truth.files[newest])[: self.promised[newest]]
        return FORMAT.scan(newest, held, 0, Expectation()).next or 0

    def change_history(self, before: Mapping[str, bytes]) -> None:
        """Forget the data that only the earlier content of the log had. It is not promised any more."""
        for name in list(self.promised):
            if name in self._truth.files:
                same = count_common(before.get(name, b""), self._truth.files[name])
                self.promised[name] = min(self.promised[name], same)
            else:
                del self.promised[name]


def find_flaw(copy: Mapping[str, bytes], history: Mapping[str, bytes], what: str) -> str:
    """Why a copy is not a run of a log that held ``history``: a different byte, or a hole. Empty if it is one."""
    names, known = sorted(copy), sorted(history)
    for name in names:
        written = history.get(name, b"")
        if not written.startswith(copy[name]):
            lengths = f"{len(copy[name])} bytes, and {len(written)} were written"
            return f"{name} was {what} with other bytes than were written: {lengths}"
        if name != names[-1] and len(copy[name]) < len(written.rstrip(b"\0")):
            return f"{name} was {what} up to {len(copy[name])}, and a later log segment, too"
    if names and (names[0] not in history or names != known[known.index(names[0]) :][: len(names)]):
        return f"a hole between {names[0]} and {names[-1]}: {len(names)} log segments were {what}"
    return ""


def read_log(folder: str) -> dict[str, bytes]:
    """The log segments in a folder."""
    found = {}
    for name in os.listdir(folder):
        if FORMAT.segment_order(name) is not None:
            with open(os.path.join(folder, name), "rb") as file:
                found[name] = file.read()
    return found


def end_of_commits(name: str, body: bytes) -> int:
    """The offset at which the last whole commit of a log segment ends."""
    return FORMAT.scan(name, memoryview(body), 0, Expectation()).end


def count_common(one: bytes, other: bytes) -> int:
    """The length of the common beginning, in bytes."""
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:
        return shorter
    return next(at for at in range(shorter) if one[at] != other[at])


def _holds(body: bytes, header: WalHeader) -> bool:
    if header.sealed is not None:
        whole = {body, body[: end_of_commits(header.file, body)]}
        return header.sealed in {hashlib.sha256(each).hexdigest() for each in whole}
    return header.end <= len(body) and crc32c(body[: header.end]) == header.crc_total
