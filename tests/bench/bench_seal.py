"""Seals the log segments of a log on a file replica, durably, against LZ4's own command on the same files.

The yardsticks are ``cat | lz4 -1 > f; sync f``, and ``lz4 -1`` for each log segment in two processes with a sync of all
files at the end. After that, the sealed segments are decoded and verified from memory, against ``lz4 -b1`` on one core.
Each run is a new process.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from logs import make_log
from lz4_yardsticks import ONE, TWO, yardsticks
from measuring import (
    Finding,
    Report,
    bench_folder,
    empty,
    folder_bytes,
    interleave,
    measure,
    missing,
    peak_memory,
    rate,
    ratios,
    run,
    sync_tree,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_MEMORY_MIB = 150
SEAL = "seal"
DECODE, LIBRARY = "decode and verify", "lz4 -b1, one core"
WORKER = Path(__file__).with_name("seal_worker.py")
SAMPLE_BYTES = 64 << 20
"""The size of the input of ``lz4 -b1``, which is in memory."""


def worker(verb: str, log: Path, target: Path) -> list[str | Path]:
    return [sys.executable, WORKER, verb, log, target / "replica"]


def time_seal(log: Path, target: Path) -> float:
    empty(target)
    return measure(lambda: run(worker("seal", log, target)))


def decode_rate(log: Path, sealed: Path) -> float:
    """Return the MB/s that the worker measures itself: without its start, as ``lz4 -b`` does."""
    done = subprocess.run(worker("verify", log, sealed), capture_output=True, text=True, check=True)
    return float(done.stdout)


def library_rate(sample: Path) -> float:
    """Return the MB/s of ``lz4 -b1`` when it decompresses on one core."""
    command = ["lz4", "-b1", "-i2", "-B6", sample]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.findall(r"([\d.]+) MB/s", done.stdout + done.stderr)
    return float(found[-1])


def compare_sealing(report: Report, log: Path, target: Path, log_bytes: int, rounds: int, patience: float) -> None:
    calls: dict[str, Callable[[], float]] = {SEAL: partial(time_seal, log, target)}
    if (reason := missing("lz4", "xargs")) is None:
        calls |= yardsticks(log, target)
    else:
        report.skipped["lz4"] = reason
    times = interleave(calls, rounds, patience)
    for name, taken in times.items():
        report.figures[name] = rate(log_bytes, taken)
    for yardstick, at_least in ((ONE, 1.8), (TWO, None)):
        if yardstick in times:
            report.findings.append(Finding(SEAL, yardstick, ratios(times[yardstick], times[SEAL]), at_least))


def compare_decoding(report: Report, log: Path, sealed: Path, sample: Path, rounds: int, patience: float) -> None:
    if (reason := missing("lz4")) is not None:
        report.skipped["lz4 -b1"] = reason
        return
    calls = {DECODE: partial(decode_rate, log, sealed), LIBRARY: partial(library_rate, sample)}
    rates = interleave(calls, rounds, patience)
    for name, found in rates.items():
        report.figures[name] = f"{sorted(found)[len(found) // 2]:.0f} MB/s ({min(found):.0f}..{max(found):.0f})"
    cores = len(os.sched_getaffinity(0))
    whole = [cores * value for value in rates[LIBRARY]]
    report.findings.append(Finding(DECODE, f"{cores} cores x lz4 -b1", ratios(rates[DECODE], whole), 0.5))


@click.command(help=__doc__)
@click.option(
    "--folder",
    type=click.Path(exists=True),
    help="Folder to work in. It has to be on a disk, with room for 3 times --size.",
)
@click.option("--size", default=1024, help="MiB of log.")
@click.option("--segment", default=64, help="MiB in a log segment.")
@click.option("--rounds", default=5, help="Number of interleaved rounds.")
@click.option("--patience", default=0.0, help="Seconds that each run may wait until the machine is quiet.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(folder: str | None, size: int, segment: int, rounds: int, patience: float, as_json: bool) -> None:
    report = Report(f"sealing {size} MiB")
    with bench_folder(folder) as work:
        log, target = work / "log", work / "compressed"
        log_bytes = make_log(log, size << 20, segment_bytes=segment << 20)
        sync_tree(log)
        compare_sealing(report, log, target, log_bytes, rounds, patience)
        sealed = empty(work / "sealed")
        peak = peak_memory(worker("seal", log, sealed))
        report.findings.append(Finding("peak memory", "the limit", (peak / 2**20,), at_most=MAX_MEMORY_MIB, unit="MiB"))
        report.figures["log by replica, bytes"] = f"{log_bytes / folder_bytes(sealed):.2f}"
        sample = work / "sample"
        with open(next(log.glob("*.log")), "rb") as source:
            sample.write_bytes(source.read(SAMPLE_BYTES))
        compare_decoding(report, log, sealed, sample, rounds, patience)
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
