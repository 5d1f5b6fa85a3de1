"""Cuts the power of a file system again and again. Run it under ``unshare --mount`` as root.

python power_cycle.py FOLDER SIDE CYCLES SEED FORMAT    SIDE: source (the log lies on that disk) or replica

The disk is an ext4 image behind a loop device. The ioctl EXT4_IOC_SHUTDOWN with flag 2 drops everything that was not
synced, as a power cut does. Then the disk is unmounted and mounted again. Prints the results as JSON.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import threading
from contextlib import closing
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.faults.processes import (
    COMMAND,
    Spoken,
    append_to,
    assert_prefix,
    count_records,
    litelog,
    replicate_words,
    segments,
    shipped,
)
from tests.warm import PACKAGES, Warm

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = struct.pack("I", 2)
IMAGE_MEBIBYTES = 128
MAX_RUN_SECONDS = 0.4
PAUSE_SECONDS = "0.002"
"""The pause between two appends. The daemon keeps up, so it is at the log's end when the power is cut."""


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


class Disk:
    """An ext4 file system that can lose power."""

    def __init__(self, folder: Path) -> None:
        self._image, self.path = folder / "image", folder / "disk"
        self.path.mkdir()
        with self._image.open("wb") as file:
            file.truncate(IMAGE_MEBIBYTES << 20)
        run("mkfs.ext4", "-q", "-F", str(self._image))
        self.mount()

    def mount(self) -> None:
        run("mount", "-o", "loop", str(self._image), str(self.path))

    def cut_power(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH)
        finally:
            os.close(descriptor)

    def unmount(self) -> None:
        run("umount", str(self.path))


def has_appended(writer: Spoken) -> bool:
    return len(writer.lines) > 1


def has_shipped(appended: int, daemon: Spoken) -> bool:
    return shipped(daemon) >= appended


def main(warm: Warm, folder: Path, side: str, cycles: int, seed: str, log_format: str) -> None:
    choose = random.Random(f"{seed} {side} {log_format}")
    disk = Disk(folder)
    here = folder / "here"
    here.mkdir()
    log = (disk.path if side == "source" else here) / "log"
    replica = (disk.path if side == "replica" else here) / "replica"
    leads = lost = records = 0
    for _ in range(cycles):
        fsync = choose.choice(["never", "interval"])  # the page cache is far ahead of the disk
        size = choose.choice([50_000, 5_000_000])
        writer = append_to(warm, log_format, log, str(choose.getrandbits(32)), str(size), fsync, PAUSE_SECONDS)
        writer.wait_for(has_appended)
        words = (*replicate_words(log_format), "--json", "--state-dir", str(here / "state"), "--sync-interval", "5ms")
        daemon = Spoken(warm, COMMAND, *words, str(log), str(replica))
        appended = int(writer.lines[-1])
        daemon.wait_for(partial(has_shipped, appended))
        threading.Event().wait(choose.uniform(0.05, MAX_RUN_SECONDS))
        for process in (daemon, writer):  # a machine stops at once: no process sees a sync that the cut fails
            process.process.send_signal(signal.SIGSTOP)
        disk.cut_power()
        daemon.kill()
        writer.kill()
        disk.unmount()
        disk.mount()

        acknowledged = shipped(daemon)
        restored = folder / "restored"
        done = litelog(warm, "restore", str(replica), "-o", str(restored))
        assert done.returncode == 0, done.stderr
        count = count_records(restored, log_format)
        lost += max(0, acknowledged - count)
        try:
            assert_prefix(segments(restored, log_format), segments(log, log_format))
        except AssertionError:
            leads += 1
        records = max(records, count)
        shutil.rmtree(restored)
    disk.unmount()
    print(json.dumps({"cycles": cycles, "leads": leads, "acknowledged_records_lost": lost, "records": records}))  # noqa: T201


if __name__ == "__main__":
    with closing(Warm(PACKAGES)) as forking:
        main(forking, Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
