"""The bytes of one commit of litelog's own format: the layout, and encoding from Python values or columns.

commit, little-endian
 0  8  u64 first sequence    8  8  u64 epoch    16  2  u16 n records    18  4  u32 body length
22  .  body                 22+len  4  u32 CRC-32C of everything before it in the commit
body
22  1  u8 layout = 1   23  1  u8 flags   24  8  u64 bytes of all values   32  8  i64 timestamp, microseconds
40  .  i64 x n timestamps (STAMPED) | u32 x n value lengths | i32 x n key lengths, -1 = null (KEYED) | keys | values
 .  .  0 to 7 zeros, so that the whole commit is a multiple of 8 bytes and every array lies aligned

Specified in litelog/formats/README.md#commit.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from litelog.codec.checksum import crc32c
from litelog.formats.log_format import MAX_COMMIT_BYTES, MAX_SEQUENCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Buffer

HEADER = struct.Struct("<QQHIBBQq")
"""The first 40 bytes: sequence, epoch, n, body length, layout, flags, bytes of all values, timestamp."""

PREFIX_BYTES = 22  # the bytes before the body
CHECKSUM_BYTES = 4
FRAME_BYTES = PREFIX_BYTES + CHECKSUM_BYTES
BLOCK_BYTES = HEADER.size - PREFIX_BYTES  # the body's own fixed part
MIN_COMMIT_BYTES = 48  # one empty record: 40 + 4 + 4

LAYOUT = 1
KEYED = 1
STAMPED = 2
FIXED_BYTES = (4, 8, 12, 16)
"""Bytes that each record takes in addition to its key and value, by the commit's flags."""

MAX_RECORDS = 0xFFFF  # n is a u16
MAX_EPOCH = (1 << 64) - 1
MAX_TIMESTAMP = (1 << 63) - 1  # the lowest is -MAX_TIMESTAMP - 1

_CHECKSUM = struct.Struct("<I")


def commit_bytes(records: int, data_bytes: int, *, keyed: bool = False, stamped: bool = False) -> int:
    """The size of a commit of ``records`` records, with ``data_bytes`` bytes of keys and values together."""
    fixed = FIXED_BYTES[(KEYED if keyed else 0) | (STAMPED if stamped else 0)]
    return -(-(HEADER.size + records * fixed + data_bytes + CHECKSUM_BYTES) // 8) * 8


def encode_commit(
    first_sequence: int,
    epoch: int,
    timestamps: int | Sequence[int],
    values: Sequence[bytes],
    keys: Sequence[bytes | None] | None = None,
) -> bytearray:
    """Encode one commit of ``values`` (1 to 65,535), ready to be written.

    Args:
        first_sequence: The sequence of the first record.
        epoch: The writer's epoch.
        timestamps: Microseconds since 1970: one for all records, or one for each.
        values: One value per record.
        keys: One key per record, or None for a record without one; None if no record has a key.

    Raises:
        ValueError: A commit cannot hold this (see ``commit_bytes``, MAX_COMMIT_BYTES and MAX_RECORDS), or the columns
            differ in length.
    """
    count = len(values)
    lengths = list(map(len, values))
    columns = [struct.pack(f"<{count}I", *lengths)]
    key_data: list[bytes] = []
    flags = 0
    if keys is not None:
        _check_column("keys", len(keys), count)
        if keys.count(None) < count:
            flags |= KEYED
            key_data = [key for key in keys if key]
            columns.append(struct.pack(f"<{count}i", *[-1 if key is None else len(key) for key in keys]))
    if not isinstance(timestamps, int):
        _check_column("timestamps", len(timestamps), count)
        flags |= STAMPED
        try:
            columns.insert(0, struct.pack(f"<{count}q", *timestamps))
        except struct.error as error:
            raise ValueError(f"timestamps are whole microseconds of 64 bits: {error}") from error
    stamp = timestamps if isinstance(timestamps, int) else timestamps[0] if count else 0
    value_bytes = sum(lengths)
    data_bytes = value_bytes + sum(map(len, key_data))
    return _frame(first_sequence, epoch, count, flags, stamp, value_bytes, data_bytes, [*columns, *key_data, *values])


def encode_columns(
    first_sequence: int,
    epoch: int,
    timestamps: int | npt.NDArray[np.int64],
    value_lengths: npt.NDArray[np.integer],
    value_data: Buffer,
    key_lengths: npt.NDArray[np.integer] | None = None,
    key_data: Buffer = b"",
) -> bytearray:
    """Encode one commit from columns, without a loop per record.

    Lengths are in bytes, -1 for a null key; data lies back to back. The lengths of a column must sum to its data.
    Raises ValueError as ``encode_commit`` does.
    """
    import numpy as np  # noqa: PLC0415 - a daemon encodes no commits

    count = len(value_lengths)
    value_bytes, key_bytes = memoryview(value_data).nbytes, memoryview(key_data).nbytes
    lowest = int(value_lengths.min()) if count else 0
    if lowest < 0 or int(value_lengths.sum(dtype=np.int64)) != value_bytes:
        raise ValueError(f"value lengths do not sum to the {value_bytes} bytes of the values")
    columns: list[Buffer] = [value_lengths.astype("<u4").data]
    flags = 0
    if key_lengths is not None:
        _check_column("keys", len(key_lengths), count)
        flags |= KEYED
        columns += [key_lengths.astype("<i4").data, key_data]
        total = int(np.maximum(key_lengths, 0).sum(dtype=np.int64)) if int(key_lengths.min(initial=0)) >= -1 else -1
        if total != key_bytes:
            raise ValueError(f"key lengths do not sum to the {key_bytes} bytes of the keys")
    elif key_bytes:
        raise ValueError(f"{key_bytes} bytes of keys without key lengths")
    if not isinstance(timestamps, int):
        _check_column("timestamps", len(timestamps), count)
        flags |= STAMPED
        columns.insert(0, timestamps.astype("<i8").data)
    stamp = timestamps if isinstance(timestamps, int) else int(timestamps[0]) if count else 0
    columns.append(value_data)
    return _frame(first_sequence, epoch, count, flags, stamp, value_bytes, value_bytes + key_bytes, columns)


def _check_column(what: str, actual: int, expected: int) -> None:
    if actual != expected:
        raise ValueError(f"{actual} {what} for {expected} values")


def _frame(
    first: int, epoch: int, count: int, flags: int, stamp: int, value_bytes: int, data_bytes: int, parts: list[Buffer]
) -> bytearray:
    """The commit: header, parts, zeros and checksum, in one buffer that is allocated once."""
    if not 1 <= count <= MAX_RECORDS:
        raise ValueError(f"a commit holds 1 to {MAX_RECORDS} records, not {count}")
    if not 0 <= first <= MAX_SEQUENCE - count or not 0 <= epoch <= MAX_EPOCH:
        raise ValueError(f"sequence {first} or epoch {epoch} out of range")
    if not -MAX_TIMESTAMP - 1 <= stamp <= MAX_TIMESTAMP:
        raise ValueError(f"timestamp {stamp} out of range: it is microseconds of 64 bits")
    used = HEADER.size + count * FIXED_BYTES[flags] + data_bytes + CHECKSUM_BYTES
    total = -(-used // 8) * 8
    if total > MAX_COMMIT_BYTES:
        raise ValueError(f"a commit of {total} bytes is larger than {MAX_COMMIT_BYTES}")
    header = HEADER.pack(first, epoch, count, total - FRAME_BYTES, LAYOUT, flags, value_bytes, stamp)
    commit = bytearray().join([header, *parts, bytes(total - used + CHECKSUM_BYTES)])
    if len(commit) != total:
        raise ValueError("a value's length is not its number of bytes: records are bytes, or views of single bytes")
    with memoryview(commit) as view:
        _CHECKSUM.pack_into(commit, total - CHECKSUM_BYTES, crc32c(view[: total - CHECKSUM_BYTES]))
    return commit
