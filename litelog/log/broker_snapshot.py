"""The snapshot stream of InfluxDB 0.9's broker: all of its topics in one file, written and read.

u32 length of the header, big-endian | header, JSON | the bytes of all log segments, in the header's order
header: {"topics": [{"id": 1, "segments": [{"index": 6, "size": 219}]}], "index": 577}

The broker's ``index`` is the highest index that it has given to a message. Specified in
etc/docs/foreign-logs.md#the-brokers-snapshot.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import ExitStack, suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, BinaryIO

from litelog.codec.decoding import JsonLimits, parse_json
from litelog.dataclass import dataclass
from litelog.errors import CorruptionError, LogError, OutputExistsError, SourceMissingError
from litelog.formats import Expectation
from litelog.formats.influxdb import InfluxdbFormat
from litelog.log.failed_syncs import FailedSyncs
from litelog.log.source import open_segment
from litelog.system.files import sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.formats import Scan
    from litelog.log.source import OpenSegment

FORMAT = InfluxdbFormat()
COPY_BYTES = 4 << 20

TOPIC_PLACE = (6, 8)
"""Where a message states its topic: offset and length."""

MAX_HEADER_BYTES = 64 << 20
HEADER_LIMITS = JsonLimits(size=MAX_HEADER_BYTES, values=4_000_000, texts=8_000_000, containers=4_000_000, depth=4)
"""The most that a header may hold: a million log segments."""


class SnapshotStreamError(CorruptionError):
    """A file is not a whole snapshot stream of a broker. Nothing was written."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        super().__init__(f"{path}: not a whole broker snapshot: {reason}")


@dataclass(frozen=True, slots=True)
class BrokerTotals:
    """The contents of a snapshot stream."""

    topics: int
    segments: int
    bytes: int
    index: int


@dataclass(frozen=True, slots=True)
class _Part:
    """A log segment in a stream. ``size`` is in bytes."""

    topic: int
    index: int
    size: int


def write_broker_snapshot(folder: str, path: str) -> BrokerTotals:
    """Write the topics in a broker's folder as a snapshot stream, durably.

    Bytes after the last whole message of a topic are left out: the broker may be writing them.

    Args:
        folder: The broker's folder. It holds a folder for each topic.
        path: The file to write, which must not exist.

    Returns:
        What was written.

    Raises:
        SourceMissingError: The folder does not exist, or holds no topic.
        OutputExistsError: The file exists.
        CorruptCommitError, SequenceGapError: A topic is damaged.
    """
    if os.path.lexists(path):
        raise OutputExistsError(path)
    with ExitStack() as opened:
        # All are open before the header is written: the broker may remove the oldest ones meanwhile.
        found = [(topic, opened.enter_context(segment)) for topic, segment in _open_topics(folder)]
        parts, highest = _measure(folder, found)
        header = _encode_header(parts, highest)
        descriptor, written = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=os.path.dirname(path) or ".")
        try:
            with open(descriptor, "wb") as output:
                os.fchmod(descriptor, 0o666 & ~_umask())
                output.write(len(header).to_bytes(4, "big") + header)
                for part, (_, segment) in zip(parts, found, strict=True):
                    _copy_segment(segment, part.size, output)
                output.flush()
                os.fsync(output.fileno())
            os.link(written, path)
        except FileExistsError:
            raise OutputExistsError(path) from None
        finally:
            with suppress(FileNotFoundError):
                os.unlink(written)
    sync_folder(os.path.dirname(os.path.abspath(path)))
    return _totals(parts, highest)


def read_broker_snapshot(path: str, folder: str) -> BrokerTotals:
    """Write the topics of a snapshot stream into a new broker's folder: all of them, checked and synced, or none.

    Args:
        path: The file with the stream.
        folder: The broker's folder, which must not exist.

    Returns:
        What was written.

    Raises:
        SnapshotStreamError: The file is not such a stream, or ends early.
        CorruptCommitError, SequenceGapError: A topic in it is damaged.
        OutputExistsError: The folder exists.
        LogError: The folder cannot be made.
    """
    if os.path.lexists(folder):
        raise OutputExistsError(folder)
    parent = os.path.dirname(os.path.abspath(folder))
    try:
        made = tempfile.mkdtemp(prefix=f".{os.path.basename(folder)}.", dir=parent)
    except OSError as error:
        raise LogError(f"{folder}: cannot be made in {parent}: {error.strerror}") from error
    try:
        with open(path, "rb") as stream:
            parts, index = _read_header(path, stream)
            for part in parts:
                os.makedirs(os.path.join(made, str(part.topic)), exist_ok=True)
                _read_segment(path, stream, part, made)
            if stream.read(1):
                raise SnapshotStreamError(path, "bytes follow the last log segment")
        highest = _check_topics(path, made, parts)
        if highest > index:
            raise SnapshotStreamError(path, f"its index is {index}, and a message has {highest}")
        for topic in {part.topic for part in parts}:
            sync_folder(os.path.join(made, str(topic)))
        sync_folder(made)
        os.chmod(made, 0o777 & ~_umask())
        os.rename(made, folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    sync_folder(parent)
    return _totals(parts, index)


def _open_topics(folder: str) -> Iterator[tuple[int, OpenSegment]]:
    """The log segments of all topics, in order, each open."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        raise SourceMissingError(folder, "no such folder") from None
    topics = [name for name in names if FORMAT.is_log_folder(name) and os.path.isdir(os.path.join(folder, name))]
    if not topics:
        raise SourceMissingError(folder, "holds no topic of InfluxDB's broker: none of its folders is a number")
    for topic in sorted(topics, key=int):
        path = os.path.join(folder, topic)
        segments = [name for name in os.listdir(path) if FORMAT.segment_order(name) is not None]
        for name in sorted(segments, key=int):
            with suppress(FileNotFoundError):  # the broker has just removed it
                yield int(topic), open_segment(path, name, FORMAT, FailedSyncs())


def _measure(folder: str, found: list[tuple[int, OpenSegment]]) -> tuple[list[_Part], int]:
    """The whole messages of each log segment, and the highest index."""
    parts: list[_Part] = []
    highest, topic, expect = 0, -1, Expectation()
    for each, segment in found:
        expect = Expectation() if each != topic else expect
        topic = each
        path = os.path.join(folder, str(topic), segment.name)
        end = 0
        for scan in segment.scan_runs(FORMAT, path, expect):
            end, expect = scan.end, scan.expectation
        parts.append(_Part(topic, int(segment.name), end))
        highest = max(highest, (expect.sequence or 1) - 1)
    for (part, following), (_, segment) in zip(pairwise(parts), found, strict=False):
        if following.topic == part.topic and part.size != segment.size():
            path = os.path.join(folder, str(part.topic), segment.name)
            raise LogError(
                f"{path}: its last message is not whole, and a newer log segment follows; see litelog verify"
            )
    return parts, highest


def _encode_header(parts: list[_Part], index: int) -> bytes:
    topics: dict[int, list[dict[str, int]]] = {}
    for part in parts:
        topics.setdefault(part.topic, []).append({"index": part.index, "size": part.size})
    listed = [{"id": topic, "segments": segments} for topic, segments in topics.items()]
    return json.dumps({"topics": listed, "index": index}, separators=(",", ":")).encode()


def _copy_segment(segment: OpenSegment, size: int, output: BinaryIO) -> None:
    for offset in range(0, size, COPY_BYTES):
        output.write(segment.read(offset, min(COPY_BYTES, size - offset)))


def _read_header(path: str, stream: BinaryIO) -> tuple[list[_Part], int]:
    length = int.from_bytes(_read_exactly(path, stream, 4), "big")
    if length > MAX_HEADER_BYTES:
        raise SnapshotStreamError(path, f"its header has {length} bytes; more than {MAX_HEADER_BYTES} are not read")
    text = _read_exactly(path, stream, length)
    try:
        header = parse_json(text, HEADER_LIMITS)
        listed = header["topics"] or []
        parts = [
            _Part(_number(topic["id"]), _number(segment["index"]), _number(segment["size"]))
            for topic in listed
            for segment in topic["segments"] or []
        ]
        index = _number(header["index"])
    except (ValueError, TypeError, KeyError) as error:
        raise SnapshotStreamError(path, f"its header is not understood ({error})") from None
    if len({(part.topic, part.index) for part in parts}) != len(parts):
        raise SnapshotStreamError(path, "its header names a log segment twice")
    return parts, index


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r} is not a number from 0 on")
    return value


def _read_exactly(path: str, stream: BinaryIO, length: int) -> bytes:
    data = stream.read(length)
    if len(data) < length:
        raise SnapshotStreamError(path, f"it ends {length - len(data)} bytes early")
    return data


def _read_segment(path: str, stream: BinaryIO, part: _Part, folder: str) -> None:
    with open(os.path.join(folder, str(part.topic), str(part.index)), "xb") as output:
        left = part.size
        while left:
            data = _read_exactly(path, stream, min(left, COPY_BYTES))
            output.write(data)
            left -= len(data)
        output.flush()
        os.fsync(output.fileno())


def _check_topics(stream: str, folder: str, parts: list[_Part]) -> int:
    """Check every message of what was read into ``folder``. Returns the highest index. Errors name the file ``stream``,
    and the topic and log segment in it."""
    highest, topic, expect = 0, -1, Expectation()
    for part in sorted(parts, key=lambda each: (each.topic, each.index)):
        expect = Expectation() if part.topic != topic else expect
        topic = part.topic
        place = os.path.join(folder, str(topic))
        path, end = f"{stream}: {topic}/{part.index}", 0
        with open_segment(place, str(part.index), FORMAT, FailedSyncs()) as segment:
            scan: Scan
            for scan in segment.scan_runs(FORMAT, path, expect):
                end, expect = scan.end, scan.expectation
            stated = int.from_bytes(segment.read(*TOPIC_PLACE), "big")
        if end and stated != topic:
            raise SnapshotStreamError(path, f"its messages are of topic {stated}")
        if end != part.size:
            raise SnapshotStreamError(path, f"its last whole message ends at {end}, of {part.size} bytes")
        highest = max(highest, (expect.sequence or 1) - 1)
    return highest


def _totals(parts: list[_Part], index: int) -> BrokerTotals:
    topics = {part.topic for part in parts}
    return BrokerTotals(len(topics), len(parts), sum(part.size for part in parts), index)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
