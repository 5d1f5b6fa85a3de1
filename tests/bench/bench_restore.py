"""Restores a log from the sealed segments of a file replica, durably and with every check, against LZ4's own command.

The yardsticks decompress one .lz4 file per log segment: ``lz4 -d | dd bs=1M conv=fsync`` one after the other, and
``lz4 -d`` in two processes with a sync of all files at the end. Each command is measured from its start to its end.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click
from logs import make_log
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

from litelog.formats.litelog import LitelogFormat, segment_name
from litelog.objects.claim import Claim, Relation
from litelog.objects.snapshot import Snapshot
from litelog.objects.snapshot_entries import SnapshotEntry
from litelog.reading.contents import BaseSnapshot
from litelog.restore.history_plan import Target, plan_restore
from litelog.restore.object_lookup import ReplicaLookup
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.memory import MemoryStore

RESTORE, PIPE, TWO = "litelog restore", "lz4 -d | dd conv=fsync", "lz4 -d, two processes"
COMMAND = Path(sys.executable).parent / "litelog"


def restore_command(replica: Path, output: Path, parallelism: int) -> list[str | Path]:
    return [COMMAND, "restore", "--parallelism", str(parallelism), "-o", output, replica]


def time_restore(replica: Path, target: Path, parallelism: int) -> float:
    command = restore_command(replica, empty(target) / "log", parallelism)
    return measure(lambda: run(command))


def time_pipe(packed: Path, target: Path) -> float:
    empty(target)
    each = f"lz4 -dcq $FILE | dd of={target}/$(basename $FILE .lz4) bs=1M conv=fsync status=none"
    return measure(lambda: run(["sh", "-c", f"set -e; for FILE in {packed}/*.lz4; do {each}; done; sync {target}"]))


def time_two(packed: Path, target: Path) -> float:
    empty(target)
    each = f"lz4 -dq FILE {target}/$(basename FILE .lz4)"
    return measure(
        lambda: run(["sh", "-c", f"ls {packed}/*.lz4 | xargs -P2 -I FILE sh -c '{each}' && sync {target}/*"])
    )


def time_plan(count: int) -> float:
    """Plan a restore of ``count`` sealed segments whose snapshot was read already, and return the seconds."""
    log_format, name = LitelogFormat(), "0000000100000001"
    first = {"records": 1, "lowest": 0, "highest": 0, "shipped_first": 0, "shipped_last": 0, "exact": True}
    facts = {"generation": name, "size": 1 << 20, "length": 1 << 20, "digest": "0" * 64, "crc": 0, **first}
    entries = tuple(
        SnapshotEntry(index=at, sealed_index=at, file=segment_name(at), first=at, next=at + 1, **facts)
        for at in range(count)
    )
    claim = Claim("0" * 32, log_format.name, "owner", "host", name, count, Relation.FIRST, 0)
    snapshot = Snapshot(claim.log, claim.format, name, claim.owner, 0, count, 0, segments=entries)
    lookup = ReplicaLookup(ObjectReplicaClient(MemoryStore()), log_format)
    return measure(lambda: plan_restore("r", BaseSnapshot(claim, snapshot, "0" * 64), (), Target(), lookup, log_format))


@click.command(help=__doc__)
@click.option(
    "--folder",
    type=click.Path(exists=True),
    help="Folder to work in. It has to be on a disk, with room for 3 times --size.",
)
@click.option("--size", default=1024, help="MiB of log.")
@click.option("--segment", default=64, help="MiB in a log segment.")
@click.option("--parallelism", default=4, help="Number of workers.")
@click.option("--rounds", default=5, help="Number of interleaved rounds.")
@click.option("--patience", default=0.0, help="Seconds that each run may wait until the machine is quiet.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(
    folder: str | None, size: int, segment: int, parallelism: int, rounds: int, patience: float, as_json: bool
) -> None:
    report = Report(f"restoring {size} MiB")
    with bench_folder(folder) as work:
        log, packed, target, replica = work / "log", work / "packed", work / "restored", work / "replica"
        log_bytes = make_log(log, size << 20, segment_bytes=segment << 20)
        run([COMMAND, "replicate", "--once", "--state-dir", work / "state", log, replica])
        if not list(replica.glob("generations/*/segments/*")):
            raise click.ClickException("the replica has no sealed segments")
        calls = {RESTORE: partial(time_restore, replica, target, parallelism)}
        if (reason := missing("lz4", "dd", "xargs")) is None:
            empty(packed)
            run(["sh", "-c", f"for FILE in {log}/*.log; do lz4 -1q $FILE {packed}/$(basename $FILE).lz4; done"])
            calls |= {PIPE: partial(time_pipe, packed, target), TWO: partial(time_two, packed, target)}
        else:
            report.skipped["lz4"] = reason
        sync_tree(work)
        times = interleave(calls, rounds, patience)
        report.figures |= {name: rate(log_bytes, taken) for name, taken in times.items()}
        report.figures["log by replica, bytes"] = f"{log_bytes / folder_bytes(replica):.2f}"
        for yardstick, at_least in ((PIPE, 2.0), (TWO, 1.3)):
            if yardstick in times:
                report.findings.append(Finding(RESTORE, yardstick, ratios(times[yardstick], times[RESTORE]), at_least))
        report.figures["plan of 100,000 log segments"] = f"{time_plan(100_000):.2f} s"
        peak = peak_memory(restore_command(replica, empty(target) / "log", parallelism))
        report.figures["peak memory"] = f"{peak / 2**20:.0f} MiB"
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
