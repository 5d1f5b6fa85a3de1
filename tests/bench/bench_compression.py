"""Compares the compressions of sealed segments: bytes, sealing and decoding, against LZ4 and against Parquet with zstd.

Each kind of records is written to a log, and the log is sealed and decoded in memory, by one thread, with each
compression in turn. The times are processor times, and contain all that sealing and decoding do besides.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import click
from logs import make_readings, make_rows, make_values
from measuring import Finding, Report, bench_folder, interleave, ratios
from seal_worker import describe

from litelog.codec.frame_codecs import Compression
from litelog.formats.litelog import LitelogFormat
from litelog.log.writer import LogWriter
from litelog.objects.sealed_decoding import decode_run
from litelog.objects.sealed_encoding import Sealing
from litelog.objects.sealed_segment import read_footer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

BATCH = 1000
"""The records of a commit."""


def seal(log: Path, data: bytes, compression: Compression) -> bytes:
    """Seal the log segment ``log`` that holds ``data``."""
    sealing = Sealing(describe(log, 0), lambda at, size: data[at : at + size], LitelogFormat(), compression=compression)
    return b"".join(sealing)


def decode(key: str, body: bytes) -> None:
    """Decode all runs of a sealed segment, with all checks."""
    footer = read_footer(key, lambda at, size: body[at : at + size], len(body))
    for run in footer.frames.runs():
        stored = footer.frames.stored_range(run)
        decode_run(key, footer, run, memoryview(body)[stored.start : stored.stop], LitelogFormat())


def spent(call: Callable[[], object]) -> float:
    """Return the seconds of processor time that ``call`` takes in this thread."""
    start = time.thread_time()
    call()
    return time.thread_time() - start


def parquet_bytes(work: Path, log: Path) -> int:
    """Return the size of the log as Parquet with zstd, with its sequences, timestamps and values."""
    import pyarrow
    from pyarrow import parquet

    from litelog.log.reader import LogReader

    with LogReader(str(work)) as reader:
        table = pyarrow.Table.from_batches([batch.to_arrow() for batch in reader.batches()])
    parquet.write_table(table, work / "log.parquet", compression="zstd")
    return (work / "log.parquet").stat().st_size


def compare(report: Report, work: Path, kind: str, values: Sequence[bytes], rounds: int) -> None:
    """Add the figures of one kind of records."""
    with LogWriter(str(work), fsync="never", segment_bytes=1 << 30) as writer:
        for at in range(0, len(values), BATCH):
            writer.append(values[at : at + BATCH])
    (log,) = work.glob("*.log")
    data = log.read_bytes()
    bodies = {each: seal(log, data, each) for each in Compression}
    key = "generations/0000000100000000/segments/0000000000000000.segment.lz4"
    sealing = interleave({each: partial(spent, partial(seal, log, data, each)) for each in Compression}, rounds)
    decoding = interleave({each: partial(spent, partial(decode, key, bodies[each])) for each in Compression}, rounds)
    parquet = parquet_bytes(work, log)
    for each, body in bodies.items():
        report.figures[f"{kind}: {each}"] = f"ratio {len(data) / len(body):.2f}"
        report.findings.append(Finding(f"{kind}: bytes of {each}", "Parquet zstd", (len(body) / parquet,)))
        if each is not Compression.LZ4:
            report.findings += [
                Finding(f"{kind}: sealing, {each}", "lz4", ratios(sealing[each], sealing[Compression.LZ4])),
                Finding(f"{kind}: decoding, {each}", "lz4", ratios(decoding[each], decoding[Compression.LZ4])),
            ]


@click.command(help=__doc__)
@click.option("--folder", type=click.Path(exists=True), help="Folder to work in. It has to be on a disk.")
@click.option("--size", default=64, help="MiB of each kind of records.")
@click.option("--rounds", default=5, help="Number of interleaved rounds.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(folder: str | None, size: int, rounds: int, as_json: bool) -> None:
    report = Report(f"compressing {size} MiB of each kind of records")
    with bench_folder(folder) as work:
        compare(report, work / "events", "JSON events", make_values(size * 5200), rounds)
        compare(report, work / "readings", "short JSON", make_readings(size * 9000), rounds)
        compare(report, work / "rows", "half random", make_rows(size * 1040), rounds)
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
