"""The jobs that ``bench_seal`` measures, each in a new process: seal a log to a file replica, and verify it."""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from litelog.formats.litelog import LitelogFormat
from litelog.objects.claim import Claim, Relation
from litelog.objects.position import Generation
from litelog.objects.sealed_decoding import decode_run
from litelog.objects.sealed_encoding import FinishedSegment, Sealing
from litelog.objects.sealed_segment import read_footer
from litelog.stores.object_store import ObjectReplicaClient
from litelog.system.memory import keep_freed_memory
from replica_clients.file import FileStore

if TYPE_CHECKING:
    from litelog.objects.sealed_segment import SealedFooter

GENERATION = Generation("0000000100000000")
PARALLELISM = 2
"""Number of log segments that are sealed, or of runs that are verified, at a time."""

PASSES = 5
"""Number of times that all is verified. The best one counts, as for ``lz4 -b``."""


def seal(log: Path, replica: Path) -> None:
    """Write a sealed segment for each log segment, durably."""
    client = ObjectReplicaClient(FileStore(str(replica)))
    files = sorted(log.glob("*.log"))
    with ThreadPoolExecutor(2) as compressing, ThreadPoolExecutor(PARALLELISM) as writing:

        def write(index: int) -> None:
            with open(files[index], "rb") as file:
                segment = describe(files[index], index)
                body = Sealing(
                    segment, lambda at, size: os.pread(file.fileno(), size, at), LitelogFormat(), compressing
                )
                client.write_sealed_segment(GENERATION, index, body)

        list(writing.map(write, range(len(files))))


def describe(file: Path, index: int) -> FinishedSegment:
    claim = Claim("0" * 32, "litelog", "bench", "host", GENERATION, 0, Relation.FIRST, 0)
    return FinishedSegment(claim, index, file.name, file.stat().st_size, shipped=1)


def verify(replica: Path) -> float:
    """Decode and verify every run of every sealed segment, from memory; return the MB/s of log of the best pass."""
    client = ObjectReplicaClient(FileStore(str(replica)))
    bodies: list[tuple[SealedFooter, bytes]] = []
    for info in client.sealed_segments(GENERATION):
        path = replica / "generations" / GENERATION / "segments" / f"{info.index:016x}.segment.lz4"
        body = path.read_bytes()
        key = path.relative_to(replica).as_posix()
        bodies.append((read_footer(key, lambda at, size, body=body: body[at : at + size], len(body)), body))  # type: ignore[misc]
    work = [(footer, body, run) for footer, body in bodies for run in footer.frames.runs()]

    def decode(job: tuple[SealedFooter, bytes, range]) -> int:
        footer, body, run = job
        start, stop = footer.frames.starts[run.start], footer.frames[run.stop - 1].stop
        return len(decode_run(footer.key, footer, run, memoryview(body)[start:stop], LitelogFormat()).data)

    bounds = [len(work) * share // PARALLELISM for share in range(PARALLELISM + 1)]
    with ThreadPoolExecutor(PARALLELISM) as pool:
        parts = [work[start:stop] for start, stop in pairwise(bounds)]
        rates = []
        for _ in range(PASSES):
            began = time.perf_counter()
            decoded = sum(pool.map(lambda part: sum(map(decode, part)), parts))
            rates.append(decoded / (time.perf_counter() - began) / 1e6)
        return max(rates)


def main() -> None:
    verb, log, replica = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    keep_freed_memory()
    if verb == "seal":
        seal(log, replica)
    else:
        sys.stdout.write(f"{verify(replica)}\n")


if __name__ == "__main__":
    main()
