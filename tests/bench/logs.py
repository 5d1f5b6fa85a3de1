"""Logs for the benchmarks: records like those of services, which LZ4 compresses to about 1 / 2.4 of their size."""

from __future__ import annotations

import json
import random
import string
from hashlib import sha256
from typing import TYPE_CHECKING
from zlib import crc32

from litelog.log.writer import LogWriter

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT_BYTES = 64 << 20
BATCH = 1000
POOL = 100 * BATCH
"""The number of different records. They are far larger than LZ4's window of 64 KiB: repeats do not compress better."""


def make_values(count: int, seed: int = 1) -> list[bytes]:
    """Return JSON records of about 190 bytes."""
    draw = random.Random(seed)
    return [json.dumps(_event(draw), separators=(",", ":")).encode() for _ in range(count)]


def make_rows(count: int, seed: int = 2) -> list[bytes]:
    """Return rows of 1,000 bytes: half random, half words. LZ4 makes them a fifth smaller at best."""
    draw = random.Random(seed)
    words = ["".join(draw.choices(string.ascii_lowercase, k=draw.randrange(3, 10))) for _ in range(2000)]
    return [draw.randbytes(500) + " ".join(draw.choices(words, k=125))[:500].encode() for _ in range(count)]


def make_readings(count: int) -> list[bytes]:
    """Return JSON records of about 100 bytes, as ``bench_spark`` writes them."""
    return [
        b'{"device":%d,"at":%d,"reading":%d,"text":"%s"}'
        % (number % 5000, number, crc32(b"%d" % number), sha256(b"%d" % number).hexdigest()[:40].encode())
        for number in range(count)
    ]


def make_log(folder: Path, size: int, *, segment_bytes: int = SEGMENT_BYTES) -> int:
    """Write a log of about ``size`` bytes, and return its exact size."""
    pool = make_values(min(POOL, 2 * BATCH + size // 150))
    batches = [pool[at : at + BATCH] for at in range(0, len(pool), BATCH)]
    with LogWriter(str(folder), fsync="never", segment_bytes=segment_bytes) as writer:
        room = size
        while room > 0:
            for batch in batches:
                writer.append(batch)
                room -= sum(map(len, batch)) + 4 * len(batch)
                if room <= 0:
                    break
    return sum(path.stat().st_size for path in folder.glob("*.log"))


def make_block(size: int, seed: int) -> list[bytes]:
    """Return records that take about ``size`` bytes of a log."""
    values, room = [], size
    for value in make_values(1 + size // 150, seed):
        values.append(value)
        room -= len(value) + 4
        if room <= 0:
            break
    return values


def _event(draw: random.Random) -> dict[str, object]:
    return {
        "time": f"2026-03-{draw.randrange(1, 29):02d}T{draw.randrange(24):02d}:{draw.randrange(60):02d}"
        f":{draw.randrange(60):02d}.{draw.randrange(1000):03d}Z",
        "service": draw.choice(("checkout", "catalogue", "payments", "search")),
        "level": draw.choice(("info", "info", "info", "warning")),
        "trace": f"{draw.getrandbits(96):024x}",
        "user": draw.randrange(1_000_000),
        "path": f"/v1/{draw.choice(('orders', 'carts', 'items'))}/{draw.randrange(100_000)}",
        "status": draw.choice((200, 200, 200, 201, 404, 500)),
        "micros": int(draw.expovariate(1 / 20000)),
    }
