"""How to recognise the log segments of each format that litelog has, by their names and first bytes.

A format refuses log segments that another format's writer began, so that a wrong ``--format`` ships nothing. ``raw``
takes all bytes.
Specified in litelog/formats/README.md#recognised-formats.
"""

from __future__ import annotations

import os
import re
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import WrongFormatError
from litelog.formats.log_format import HEAD_BYTES, MAX_COMMIT_BYTES
from litelog.system.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_NUMBERED = re.compile(r"([0-9]{20})\.log")
_DATA = re.compile(r"[0-9]{20}\.data")
_INDEX = re.compile(r"0|[1-9][0-9]{0,18}")
_BATCH = struct.Struct(">qiib")  # base offset, length, leader epoch or old checksum, magic
_MESSAGE = struct.Struct(">IHQQI")  # checksum, type, topic, index, length
_REDIS = re.compile(r"[^.].*\.[1-9][0-9]{0,18}\.(base\.(rdb|aof)|incr\.aof)")
_LITELOG = b"litelog\n" + struct.pack("<HHI", 1, 0, 64)
_SPACETIMEDB = re.compile(rb"\(ds\)\^2[\0\1]\0\0\0", re.DOTALL)
_PARTITION_FILE = "partition.metadata"
_ZSTD = b"\x28\xb5\x2f\xfd"
_NETLOG = re.compile(rb"\x01\x10....\0{10}", re.DOTALL)


RECOGNISED_FILES = 16
"""How many files of a folder are read to find out the format of its log segments."""

RECOGNISED_FOLDERS = 1000
"""How many folders in a folder are looked at for logs."""

FRAGMENT_NAME = re.compile(r"([0-9a-f]{1,16})-([0-9a-f]{1,16})-([0-9a-f]{40})(\.[a-z]+)?")
"""The file name of a fragment of a Gazette journal: begin, end, SHA-1, extension. Its content is any bytes."""


@dataclass(frozen=True, slots=True)
class Signature:
    """How a format's log segments begin."""

    format: str
    """Its name, as ``--format`` takes it."""
    written_by: str
    begins: Callable[[str, bytes], bool]
    """Whether a file of that name, without a folder, with these first bytes is a log segment of the format."""


def recognise(name: str, head: bytes) -> Signature | None:
    """Return the signature of the format whose log segment has that name and those first bytes; None for others.

    Args:
        name: The file name, without a folder.
        head: The file's first HEAD_BYTES bytes, fewer if it is shorter.
    """
    return next((each for each in SIGNATURES if each.begins(name, head)), None)


def recognise_log(folder: str) -> Signature | None:
    """Return the signature of the log in ``folder``: that of the first file that is known to be a log segment, or of
    the file that Kafka puts into the folder of each partition. None if there is none.

    Args:
        folder: A local folder. Only its first RECOGNISED_FILES files are read.

    Raises:
        OSError: The folder cannot be listed.
    """
    with os.scandir(folder) as entries:
        files = sorted(entry.name for entry in entries if entry.is_file() and not entry.name.startswith("."))
    found = next(filter(None, (_recognise(folder, name) for name in files[:RECOGNISED_FILES])), None)
    return KAFKA if found is None and _PARTITION_FILE in files else found


def recognise_below(folder: str) -> tuple[str, Signature] | None:
    """Return the name of the first folder in ``folder`` that holds a log, and that log's signature; None if there is
    none, or if the folders cannot be listed."""
    with suppress(OSError):
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        for name in names[:RECOGNISED_FOLDERS]:
            with suppress(OSError):
                if (found := recognise_log(os.path.join(folder, name))) is not None:
                    return name, found
    return None


def find_fragment(names: Iterable[str]) -> str | None:
    """The first of some file names that is that of a fragment of a Gazette journal; None if none is."""
    return next((name for name in names if FRAGMENT_NAME.fullmatch(name)), None)


def _recognise(folder: str, name: str) -> Signature | None:
    with suppress(OSError), os.fdopen(open_regular(os.path.join(folder, name)), "rb") as file:
        return recognise(name, file.read(HEAD_BYTES))
    return None


def refuse_others(path: str, head: bytes, own: str) -> None:
    """Raise WrongFormatError if a log segment is of another format than ``own``, and name that one."""
    found = recognise(path.rpartition("/")[2], head)
    if found is not None and found.format != own:
        raise WrongFormatError(path, own, f"it is a log segment of {found.written_by}; use --format {found.format}")


def _is_litelog(_: str, head: bytes) -> bool:
    return head.startswith(_LITELOG)


def _is_spacetimedb(name: str, head: bytes) -> bool:
    return _SPACETIMEDB.match(head) is not None or (name.endswith(".stdb.log") and head.startswith(_ZSTD))


def _is_kafka(name: str, head: bytes) -> bool:
    match = _NUMBERED.fullmatch(name)
    if match is None or len(head) < _BATCH.size:
        return False
    base, length, _, magic = _BATCH.unpack_from(head)
    shortest = (14, 22, 49)[magic] if 0 <= magic <= 2 else MAX_COMMIT_BYTES
    return bool(0 <= base - int(match[1]) < 1 << 31 and shortest <= length < MAX_COMMIT_BYTES)


def _is_netlog(name: str, head: bytes) -> bool:
    return _DATA.fullmatch(name) is not None and _NETLOG.match(head) is not None


def _is_influxdb(name: str, head: bytes) -> bool:
    if _INDEX.fullmatch(name) is None or len(head) < _MESSAGE.size:
        return False
    _, _, _, index, length = _MESSAGE.unpack_from(head)
    return bool(0 < index == int(name) and length < MAX_COMMIT_BYTES)


def _is_redis_aof(name: str, head: bytes) -> bool:
    return _REDIS.fullmatch(name) is not None and head[:1] in {b"*", b"#", b"R"}


KAFKA = Signature("kafka", "Kafka", _is_kafka)

SIGNATURES = (
    Signature("litelog", "litelog", _is_litelog),
    Signature("spacetimedb", "SpacetimeDB", _is_spacetimedb),
    Signature("netlog", "NetLog", _is_netlog),
    KAFKA,
    Signature("influxdb", "the broker of InfluxDB 0.9", _is_influxdb),
    Signature("redis-aof", "Redis", _is_redis_aof),
)
