"""Decompresses the records of Kafka's batches, when records are read. Shipping leaves them compressed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.codec.compression import decompress_gzip, decompress_lz4, decompress_snappy, decompress_zstd
from litelog.errors import CorruptCommitError

if TYPE_CHECKING:
    from collections.abc import Callable

EXTRA = "kafka"

MAX_BATCH_BYTES = 128 << 20
"""The most bytes of one batch's records, decompressed."""

MAX_RUN_BYTES = 1 << 30
"""The most bytes of all records that are decoded at once."""

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

_DECOMPRESS: dict[int, Callable[[memoryview, int], bytes]] = {
    GZIP: decompress_gzip,
    SNAPPY: lambda data, limit: decompress_snappy(data, limit, EXTRA),
    LZ4: decompress_lz4,
    ZSTD: lambda data, limit: decompress_zstd(data, limit, EXTRA),
}


def decompress(name: str, offset: int, codec: int, data: memoryview, limit: int) -> bytes:
    """Decompress the records of one batch.

    Args:
        name: The log segment, for errors.
        offset: The batch's place in it, in bytes.
        codec: As the batch's attributes state it.
        data: The compressed records.
        limit: The most bytes that they may hold.

    Raises:
        CorruptCommitError: They are damaged, hold more, or have an unknown codec.
        ConfigError: The codec's package is not installed.
    """
    if codec not in _DECOMPRESS:
        raise CorruptCommitError(name, offset, "codec of the records", "0 to 4", codec)
    try:
        return _DECOMPRESS[codec](data, limit)
    except ValueError as error:
        raise CorruptCommitError(name, offset, "compressed records", f"up to {limit} bytes", str(error)) from None
