"""Kafka's partitions for tests: the recorded ones, and batches that are written and read slowly, record by record."""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from litelog.codec.checksum import crc32c
from litelog.formats.columns import Record
from tests.builders.recorded_logs import recorded_segments, unpack, what_was_read

if TYPE_CHECKING:
    from pathlib import Path

HEADER = struct.Struct(">qiibIhiqqqhii")
TRANSACTIONAL, CONTROL = 0x10, 0x30

PLAIN_SCENES = ["plain_none", "append_time", "before_compaction", "after_compaction", "killed", "retained", "rolled"]
COMPRESSED_SCENES = ["plain_gzip", "plain_snappy", "plain_lz4", "plain_zstd"]
SERVED_SCENES = [*PLAIN_SCENES, *COMPRESSED_SCENES, "transactions"]

Header = tuple[str, bytes | None]
Entry = tuple[int, int, bytes | None, bytes | None, list[Header]]
"""A record: offset delta, time delta, key, value, headers."""


@dataclass(frozen=True)
class Recording:
    """The folder of a partition that a broker wrote, and what the broker served of it."""

    scene: str
    files: dict[str, bytes]
    served: dict[str, list[dict[str, Any]]]
    """By isolation level: the records."""
    bounds: dict[str, dict[str, int]]
    """By isolation level: the first offset, and the one after the last."""

    @property
    def segments(self) -> list[tuple[str, bytes]]:
        return [(name, body) for name, body in self.files.items() if name.endswith(".log")]

    def write(self, parent: Path) -> Path:
        """Write the folder below ``parent``."""
        return unpack("kafka", self.scene, parent)


@cache
def recording(scene: str) -> Recording:
    """A recorded folder of ``tests/fixtures/kafka``."""
    served, bounds = {}, {}
    if scene in SERVED_SCENES:
        read = what_was_read("kafka", scene)
        for way in ("read_uncommitted", "read_committed"):
            *served[way], bounds[way] = read[way]
    return Recording(scene, dict(recorded_segments("kafka", scene, suffix="")), served, bounds)


def as_served(record: Record) -> dict[str, Any]:
    """A record as the recordings state it."""
    assert record.extra is not None
    assert record.timestamp is not None
    headers: Any = record.extra["headers"] or []
    return {
        "offset": record.sequence,
        "timestamp": record.timestamp // 1000,
        "timestampType": record.extra["timestampType"],
        "key": _base64(record.key),
        "value": None if record.is_null else _base64(record.value),
        "headers": [[_base64(key.encode()), _base64(value)] for key, value in headers],
    }


def write_batch(base: int, entries: list[Entry], **fields: int) -> bytes:
    """A batch of uncompressed records; ``fields`` take the place of the header's usual ones."""
    records = b"".join(write_record(entry) for entry in entries)
    time = fields.get("time", 1_700_000_000_000)
    last = fields.get("last", entries[-1][0] if entries else 0)
    count = fields.get("count", len(entries))
    attributes, epoch, producer = fields.get("attributes", 0), fields.get("epoch", 0), fields.get("producer", -1)
    highest = max([time + entry[1] for entry in entries], default=time)
    head = (base, 49 + len(records), epoch, 2, 0, attributes, last, time, highest, producer, -1, -1, count)
    batch = bytearray(HEADER.pack(*head) + records)
    return seal(batch)


def write_marker(base: int, producer: int, kind: int) -> bytes:
    entry: Entry = (0, 0, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0), [])
    return write_batch(base, [entry], attributes=CONTROL, producer=producer)


def write_transactions(steps: list[tuple[str, int]]) -> tuple[bytes, list[int]]:
    """A log of these steps (``plain``, ``write``, ``commit`` or ``abort``, and the producer), one batch each.

    Returns its bytes, and the offsets that are committed, computed from the whole log."""
    data, fates, stands = b"", dict[int, tuple[int, bool]](), dict[int, int]()
    owners: list[tuple[int, int | None]] = []
    for offset, (what, producer) in enumerate(steps):
        if what == "plain":
            data += write_batch(offset, [(0, 0, None, b"plain", [])])
            owners.append((offset, None))
        elif what == "write":
            data += write_batch(offset, [(0, 0, None, b"x", [])], attributes=TRANSACTIONAL, producer=producer)
            owners.append((offset, stands.setdefault(producer, offset)))
        else:
            data += write_marker(offset, producer, int(what == "commit"))
            if producer in stands:
                fates[stands.pop(producer)] = (offset, what == "commit")
    stable = min(stands.values(), default=len(steps))
    decided = [(offset, owner) for offset, owner in owners if offset < stable]
    return data, [offset for offset, owner in decided if owner is None or fates[owner][1]]


def find_stable(data: bytes) -> list[tuple[int, int]]:
    """For each batch of a log segment: where it ends, and the last stable offset after it."""
    at, found, stands = 0, [], dict[int, int]()
    while at < len(data):
        base, length, _, _, _, attributes, last, _, _, producer, _, _, _ = HEADER.unpack_from(data, at)
        at += 12 + length
        if attributes & CONTROL == CONTROL:
            stands.pop(producer, None)
        elif attributes & TRANSACTIONAL:
            stands.setdefault(producer, base)
        found.append((at, min(stands.values(), default=base + last + 1)))
    return found


def seal(batch: bytes | bytearray) -> bytes:
    """The batch with the checksum that fits its bytes."""
    return bytes(batch[:17]) + struct.pack(">I", crc32c(bytes(batch[21:]))) + bytes(batch[21:])


def write_record(entry: Entry) -> bytes:
    offset, time, key, value, headers = entry
    parts = [b"\0", varint(time), varint(offset), _sized(key), _sized(value), varint(len(headers))]
    parts += [_sized(name.encode()) + _sized(content) for name, content in headers]
    body = b"".join(parts)
    return varint(len(body)) + body


def varint(number: int) -> bytes:
    raw = (number << 1) ^ (number >> 63)
    raw &= (1 << 64) - 1
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def decode_slowly(data: bytes) -> list[Record]:
    """The records of a log segment without compressed batches, from the format's description alone."""
    at, records = 0, []
    while at < len(data):
        base, length, _, magic, checksum, attributes, _, time, highest, producer, _, _, count = HEADER.unpack_from(
            data, at
        )
        end = at + 12 + length
        assert magic == 2
        assert attributes & 7 == 0
        assert checksum == crc32c(data[at + 21 : end])
        reader = _Reader(data, at + HEADER.size)
        for _ in range(0 if attributes & 0x20 else count):
            size = reader.number()
            stop = reader.at + size
            reader.at += 1
            stamp, offset = time + reader.number(), base + reader.number()
            key, value = reader.sized(), reader.sized()
            headers = [((reader.sized() or b"").decode(), reader.sized()) for _ in range(reader.number())]
            assert reader.at == stop
            extra = {
                "headers": headers or None,
                "timestampType": attributes >> 3 & 1,
                "producerId": producer,
            }
            time_of_it = (highest if attributes & 8 else stamp) * 1000
            records.append(Record(offset, time_of_it, key, value or b"", extra, value is None))
        at = end
    return records


class _Reader:
    """Reads the parts of records."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def number(self) -> int:
        raw = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            raw |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1)

    def sized(self) -> bytes | None:
        length = self.number()
        if length < 0:
            return None
        self.at += length
        return self.data[self.at - length : self.at]


def _sized(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def _base64(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()
