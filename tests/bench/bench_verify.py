"""Verifies a whole file replica, against decoding of the same objects by as many workers.

Decoding does what readers do: it reads each object, decompresses its frames, compares content checksums and CRC-32C,
and checks the commits. Verifying also checks the chain, footers against snapshots, all other statements of objects
about each other, and the SHA-256 of every log segment. SHA-256 alone takes as long as decoding, so the yardstick is
decoding with SHA-256. The times of decoding alone, and of decompressing LZ4 alone, are shown as well.
"""

from __future__ import annotations

import hashlib
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import click
from logs import make_log
from measuring import Finding, Report, bench_folder, interleave, measure, peak_memory, rate, ratios, run

from litelog.codec.lz4_frames import decompress_frame, walk_frames
from litelog.formats import Expectation
from litelog.formats.litelog import LitelogFormat
from litelog.objects.layout import parse_sealed, parse_wal
from litelog.objects.sealed_decoding import decode_run
from litelog.objects.sealed_segment import read_footer
from litelog.objects.wal_segment import decode
from litelog.stores.registry import open_store
from litelog.system.memory import keep_freed_memory
from litelog.verify.execution import verify

VERIFY, DIGEST, DECODE, DECOMPRESS = "verify", "decode and SHA-256", "decode", "decompress"
COMMAND = Path(sys.executable).parent / "litelog"
FORMAT = LitelogFormat()
MAX_MEMORY_MIB = 250


def decode_wal(replica: Path, key: str) -> int:
    segment = decode(key, (replica / key).read_bytes())
    header = segment.header
    if header.length:
        FORMAT.scan(header.file, memoryview(segment.data()), header.offset, Expectation(header.first))
    return header.length


def decode_sealed(replica: Path, key: str, *, digest: bool) -> int:
    path = replica / key
    size = path.stat().st_size
    with open(path, "rb") as file:

        def read(start: int, length: int) -> bytes:
            file.seek(start)
            return file.read(length)

        footer = read_footer(key, read, size)
        sha = hashlib.sha256()
        for span in footer.frames.runs():
            start = footer.frames.starts[span.start]
            found = decode_run(key, footer, span, read(start, footer.frames[span.stop - 1].stop - start), FORMAT)
            if digest:
                sha.update(found.data)
    return footer.length


def decode_one(replica: Path, digest: bool, key: str) -> int:
    if parse_sealed(key):
        return decode_sealed(replica, key, digest=digest)
    return decode_wal(replica, key) if parse_wal(key) else 0


def decompress_one(replica: Path, key: str) -> int:
    if not (parse_wal(key) or parse_sealed(key)):
        return 0
    body = (replica / key).read_bytes()
    return sum(len(decompress_frame(body, frame)) for frame in walk_frames(body) if not frame.skippable)


def time_all(one: partial[int], keys: list[str], workers: int) -> float:
    with ThreadPoolExecutor(workers) as pool:
        return measure(lambda: sum(pool.map(one, keys)))


def time_verify(replica: Path, workers: int, expected: int) -> float:
    store = open_store(str(replica))

    def check() -> None:
        report = verify(store, formats=lambda _: FORMAT, parallelism=workers)
        if report.anomalies or report.content_bytes != expected:
            raise click.ClickException(
                f"verify found {report.counts}, and read {report.content_bytes} of {expected} bytes"
            )

    return measure(check)


@click.command(help=__doc__)
@click.option(
    "--folder",
    type=click.Path(exists=True),
    help="Folder to work in. It has to be on a disk, with room for 2 times --size.",
)
@click.option("--size", default=512, help="MiB of log.")
@click.option("--segment", default=16, help="MiB in a log segment.")
@click.option("--parallelism", default=4, help="Number of workers.")
@click.option("--rounds", default=5, help="Number of interleaved rounds.")
@click.option("--patience", default=0.0, help="Seconds that each run may wait until the machine is quiet.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(
    folder: str | None, size: int, segment: int, parallelism: int, rounds: int, patience: float, as_json: bool
) -> None:
    keep_freed_memory()
    report = Report(f"verifying a replica of {size} MiB")
    with bench_folder(folder) as work:
        log, replica = work / "log", work / "replica"
        make_log(log, size << 20, segment_bytes=segment << 20)
        run([COMMAND, "replicate", "--once", "--state-dir", work / "state", log, replica])
        keys = sorted(str(path.relative_to(replica)) for path in replica.rglob("*") if path.is_file())
        log_bytes = sum(decode_one(replica, False, key) for key in keys)
        calls = {
            VERIFY: partial(time_verify, replica, parallelism, log_bytes),
            DIGEST: partial(time_all, partial(decode_one, replica, True), keys, parallelism),
            DECODE: partial(time_all, partial(decode_one, replica, False), keys, parallelism),
            DECOMPRESS: partial(time_all, partial(decompress_one, replica), keys, parallelism),
        }
        times = interleave(calls, rounds, patience)
        report.figures |= {name: rate(log_bytes, taken) for name, taken in times.items()}
        report.figures["WAL and sealed segments"] = str(sum(1 for key in keys if parse_wal(key) or parse_sealed(key)))
        for yardstick, target in ((DIGEST, 0.9), (DECODE, None), (DECOMPRESS, None)):
            report.findings.append(Finding(VERIFY, yardstick, ratios(times[yardstick], times[VERIFY]), target))
        peak = peak_memory([COMMAND, "verify", replica])
        report.findings.append(Finding("peak memory", "the limit", (peak / 2**20,), at_most=MAX_MEMORY_MIB, unit="MiB"))
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
