"""A hostile writer: it writes log segments directly, as crashed, careless or malicious programs leave them."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from litelog.formats.influxdb import InfluxdbFormat
from litelog.formats.lines import LinesFormat
from litelog.formats.litelog import LitelogFormat, SegmentHeader, encode_commit, segment_name
from litelog.formats.netlog import NetlogFormat
from litelog.formats.raw import RawFormat
from litelog.formats.spacetimedb import SpacetimeDBFormat
from tests.builders import stdb_log
from tests.builders.old_logs import NETLOG_HEADER, influx_message, netlog_message, netlog_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.formats import Commit, Expectation, LogFormat, Scan
    from litelog.formats.columns import Columns

LOG_ID = UUID("0123456789abcdef0123456789abcdef")
SECOND = 1_000_000


@dataclass
class LogBuilder:
    """One log in a folder. ``texts`` holds the bytes that the writer meant each file to have."""

    folder: str
    format: LogFormat
    next: int = 0
    name: str = ""
    epoch: int = 1
    texts: dict[str, bytes] = field(default_factory=dict)

    def path(self, name: str = "") -> str:
        return os.path.join(self.folder, name or self.name)

    def commit(self, size: int = 10, tag: bytes = b"r") -> bytes:
        """The bytes of the next commit, which then counts as written."""
        if isinstance(self.format, LitelogFormat):
            value = (tag + b"%d" % self.next).ljust(size, b".")
            data = bytes(encode_commit(self.next, self.epoch, self.next * SECOND, [value]))
            self.next += 1
            return data
        if isinstance(self.format, SpacetimeDBFormat):
            record = (tag + b"%d" % self.next).ljust(size, b".")
            self.next += 1
            return stdb_log.encode_commit(self.next - 1, record, epoch=self.epoch)
        text = (tag + b"%d" % self.next).ljust(size, b".")
        self.next += 1
        if isinstance(self.format, NetlogFormat):
            return netlog_message(text)
        if isinstance(self.format, InfluxdbFormat):
            return influx_message(self.next - 1, text)
        return text + (b"\n" if isinstance(self.format, LinesFormat) else b"")

    def header(self, log_id: UUID = LOG_ID) -> bytes:
        """The first bytes of a log segment that starts now."""
        if isinstance(self.format, LitelogFormat):
            return SegmentHeader(log_id, self.next, 0).encode()
        if isinstance(self.format, NetlogFormat):
            return NETLOG_HEADER
        return stdb_log.HEADERS[1] if isinstance(self.format, SpacetimeDBFormat) else b""

    def roll(self, commits: int = 1, size: int = 10) -> str:
        """Begin a new log segment with this number of commits."""
        if isinstance(self.format, LitelogFormat):
            self.name = segment_name(self.next)
        elif isinstance(self.format, SpacetimeDBFormat):
            self.name = stdb_log.segment_name(self.next)
        elif isinstance(self.format, NetlogFormat):
            self.name = netlog_name(self.next)
        elif isinstance(self.format, InfluxdbFormat):
            self.name = str(self.next)
        else:
            self.name = f"app.{len(self.texts):06d}"
        self.write(self.header())
        return self.append(commits, size)

    def append(self, commits: int = 1, size: int = 10) -> str:
        """Append whole commits to the newest log segment; return its name."""
        self.write(b"".join(self.commit(size) for _ in range(commits)))
        return self.name

    def write(self, data: bytes, name: str = "") -> None:
        """Append any bytes."""
        name = name or self.name
        with open(self.path(name), "ab") as file:
            file.write(data)
        self.texts[name] = self.texts.get(name, b"") + data

    def overwrite(self, offset: int, data: bytes, name: str = "") -> None:
        """Write in place."""
        name = name or self.name
        with open(self.path(name), "r+b") as file:
            file.seek(offset)
            file.write(data)
        self.reread(name)

    def map(self, offset: int, data: bytes) -> None:
        """Write in place through mapped memory: it makes no event, and on some file systems it sets no new time."""
        with open(self.path(), "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            memory[offset : offset + len(data)] = data
        self.reread(self.name)

    def truncate(self, size: int, name: str = "") -> None:
        os.truncate(self.path(name), size)
        self.reread(name or self.name)

    def preallocate(self, size: int) -> None:
        """Extend the newest log segment with zeros to ``size`` bytes."""
        os.truncate(self.path(), size)

    def replace(self, data: bytes | None = None, name: str = "") -> None:
        """Replace a log segment by another file, with the same bytes or with ``data``."""
        name = name or self.name
        if data is None:
            with open(self.path(name), "rb") as file:
                data = file.read()
        temporary = self.path(".replacement")
        with open(temporary, "wb") as file:
            file.write(data)
        os.rename(temporary, self.path(name))
        self.texts[name] = data

    def delete(self, name: str) -> None:
        os.unlink(self.path(name))

    def reread(self, name: str) -> None:
        with open(self.path(name), "rb") as file:
            self.texts[name] = file.read()

    def names(self) -> list[str]:
        """The log segments that are in the folder now, oldest first."""
        orders = {name: self.format.segment_order(name) for name in os.listdir(self.folder)}
        return [name for _, name in sorted((order, name) for name, order in orders.items() if order is not None)]

    def files(self) -> dict[str, bytes]:
        """The bytes of each log segment that is in the folder now, oldest first."""
        found = {}
        for name in self.names():
            with open(self.path(name), "rb") as file:
                found[name] = file.read()
        return found


def make_log(folder: object, name: str = "litelog") -> LogBuilder:
    """An empty log of the format ``name`` in ``folder``, which is made if it does not exist."""
    path = str(folder)
    os.makedirs(path, exist_ok=True)
    formats: dict[str, LogFormat] = {
        "litelog": LitelogFormat(),
        "lines": LinesFormat(),
        "raw": RawFormat(),
        "spacetimedb": SpacetimeDBFormat(),
        "netlog": NetlogFormat(),
        "influxdb": InfluxdbFormat(),
    }
    return LogBuilder(path, formats[name])


class Interrupted:
    """A LogFormat that calls a function after each scan, so that the log changes between two looks of a follower."""

    def __init__(self, inner: LogFormat) -> None:
        self.inner = inner
        self.name = inner.name
        self.finished_tail = inner.finished_tail
        self.has_timestamps = inner.has_timestamps
        self.self_numbered = inner.self_numbered
        self.has_log_id = inner.has_log_id
        self.acts: list[Callable[[], object]] = []

    def check_names(self, names: list[str]) -> None:
        self.inner.check_names(names)

    def segment_order(self, name: str) -> tuple[object, ...] | None:
        return self.inner.segment_order(name)

    def log_id(self, name: str, head: memoryview) -> UUID | None:
        return self.inner.log_id(name, head)

    def scan(self, name: str, data: memoryview, offset: int, expect: Expectation, *, known: bool = False) -> Scan:
        found = self.inner.scan(name, data, offset, expect, known=known)
        if self.acts:
            self.acts.pop(0)()
        return found

    def commits(self, name: str, data: memoryview, offset: int, expect: Expectation) -> list[Commit]:
        return self.inner.commits(name, data, offset, expect)

    def decode(self, name: str, data: memoryview, offset: int, expect: Expectation) -> Columns:
        return self.inner.decode(name, data, offset, expect)
