"""A format with what the logs of other programs need: files that are compressed in place, side files, and finished log
segments that their writer rewrites. In all else it is ``litelog``."""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING

from litelog.errors import CorruptCommitError
from litelog.formats.litelog import LitelogFormat
from tests.builders.log_builder import LogBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

PACKED = b"packed\n"
SIDE_FILES = ("leader", "table")


class Unpacked:
    """The bytes that a packed file holds."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def read(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]


class ForeignFormat(LitelogFormat):
    """Log segments of ``litelog``, whose writer may pack each finished one in place."""

    name = "foreign"

    def open_logical(self, path: str, read: Callable[[int, int], bytes], size: int) -> Unpacked | None:
        if read(0, len(PACKED)) != PACKED:
            return None
        try:
            return Unpacked(zlib.decompress(read(len(PACKED), size)))
        except zlib.error as error:
            raise CorruptCommitError(path, len(PACKED), "packed bytes", "whole", str(error)) from None

    def side_files(self, names: Sequence[str]) -> list[str]:
        return [name for name in SIDE_FILES if name in names]


class CompactedFormat(ForeignFormat):
    """The same, whose writer may also rewrite, merge and remove finished log segments."""

    name = "compacted"
    rewrites_finished = True


def make_foreign(folder: Path, log_format: LitelogFormat | None = None) -> LogBuilder:
    """An empty log of a foreign format."""
    folder.mkdir(exist_ok=True)
    return LogBuilder(str(folder), ForeignFormat() if log_format is None else log_format)


def pack(log: LogBuilder, name: str) -> None:
    """Pack a log segment in place, as its writer does: a new file takes its name."""
    plain = log.texts[name]
    log.replace(PACKED + zlib.compress(plain), name)
    log.texts[name] = plain


def write_side_file(log: LogBuilder, name: str, body: bytes) -> None:
    """Write a side file over the one before."""
    with open(os.path.join(log.folder, name), "wb") as file:
        file.write(body)


class WatermarkedFormat(ForeignFormat):
    """The same, whose writer states in a file next to the log's folder which sequences it takes no longer back."""

    name = "watermarked"

    def watermark_file(self, folder: str) -> str | None:
        return f"{folder}.watermark"

    def read_watermark(self, folder: str, content: bytes | None) -> int | None:
        return None if content == b"all" else int(content or b"0")


def write_watermark(log: LogBuilder, mark: int | str) -> None:
    """Replace the file that states the log's watermark."""
    path = f"{log.folder}.watermark"
    with open(f"{path}.new", "w") as file:
        file.write(str(mark))
    os.rename(f"{path}.new", path)
