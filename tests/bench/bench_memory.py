"""Measures the memory of the command: a first contact, a restore and an idle daemon, with a folder and with S3.

Each job runs in its own process. The peak is the highest resident memory that the kernel counted. The memory of an
idle daemon is counted by its pages: those that it shares with other processes, such as the interpreter's code, count
too. S3 is a MinIO on the path, or the server at ``--endpoint``. Without one, S3 is left out.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click
from logs import make_log
from measuring import Finding, Report, bench_folder, empty, missing, peak_memory, status_bytes
from s3_server import KEY_ID, SECRET, make_bucket, replica_url, serving_minio

if TYPE_CHECKING:
    from collections.abc import Sequence

LITELOG = Path(sys.executable).parent / "litelog"
SETTLE_SECONDS = 10.0
"""The wait after the start: the daemon ships what there is, and frees its buffers."""

CONTACT_MIB = {"a folder": 80, "S3": 100}
RESTORE_MIB = {"a folder": 80, "S3": 100}
IDLE_MIB = 45


def replicate(work: Path, log: Path, replica: str, *more: str) -> Sequence[str | Path]:
    """The command of a daemon that knows nothing of the log yet."""
    state = ["--state-dir", empty(work / "state"), "--addr", "off"]
    return [LITELOG, "replicate", "--quiet", *state, *more, log, replica]


def idle_memory(command: Sequence[str | Path]) -> dict[str, int]:
    """The sizes in /proc/PID/smaps_rollup of an idle daemon: bytes by the name of the row."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        time.sleep(SETTLE_SECONDS)
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]
        peak = status_bytes(process.pid, "VmHWM")
        process.send_signal(signal.SIGTERM)
    sizes = {name: int(size.split()[0]) << 10 for name, _, size in (line.partition(":") for line in lines)}
    return {**sizes, "Peak": peak}


def compare(report: Report, work: Path, kind: str, replica: str, log: Path, rounds: int) -> None:
    """Add the findings of one kind of replica. ``replica`` has a place for a number."""
    contact, restored = [], []
    for number in range(rounds):
        url = replica.format(number)
        contact.append(peak_memory(replicate(work, log, url, "--once")) / 2**20)
        command = [LITELOG, "restore", "--quiet", "-o", empty(work / "restored") / "log", url]
        restored.append(peak_memory(command) / 2**20)
    small = work / "small"
    if not small.exists():
        make_log(small, 10_000)
    idle = [idle_memory(replicate(work, small, replica.format(f"idle-{number}"))) for number in range(rounds)]
    for what, values, most in (
        (f"first contact with {kind}, peak", contact, CONTACT_MIB[kind]),
        (f"restore from {kind}, peak", restored, RESTORE_MIB[kind]),
        (f"idle, replica in {kind}, resident", [one["Rss"] / 2**20 for one in idle], IDLE_MIB),
    ):
        report.findings.append(Finding(what, "the limit", tuple(values), at_most=most, unit="MiB"))
    private = sum(idle[0][name] for name in ("Private_Clean", "Private_Dirty"))
    shown = f"{idle[0]['Pss'] / 2**20:.0f} MiB, {private / 2**20:.0f} MiB, {idle[0]['Peak'] / 2**20:.0f} MiB"
    report.figures[f"idle, replica in {kind}: proportional, private, peak"] = shown


@click.command(help=__doc__)
@click.option("--folder", type=click.Path(exists=True), help="Folder to work in, with room for 4 times --size.")
@click.option("--size", default=512, help="MiB of log.")
@click.option("--segment", default=64, help="MiB in a log segment.")
@click.option("--rounds", default=3, help="Number of rounds.")
@click.option("--endpoint", help="URL of an S3 server, with the access keys bench and bench-secret.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(folder: str | None, size: int, segment: int, rounds: int, endpoint: str | None, as_json: bool) -> None:
    os.environ |= {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET}
    report = Report(f"memory, with a log of {size} MiB in log segments of {segment} MiB")
    with ExitStack() as stack:
        work = stack.enter_context(bench_folder(folder))
        make_log(work / "log", size << 20, segment_bytes=segment << 20)
        compare(report, work, "a folder", str(work / "replica-{}"), work / "log", rounds)
        if endpoint is None and (reason := missing("minio")) is not None:
            report.skipped["S3"] = reason
        else:
            server = stack.enter_context(serving_minio(work, endpoint, report))
            make_bucket(server)
            compare(report, work, "S3", replica_url(server, "replica-{}"), work / "log", rounds)
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
