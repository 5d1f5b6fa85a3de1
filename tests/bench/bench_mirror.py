"""Measures ``litelog mirror``: how fast a mirror catches up, how late it is, and what it costs the source's shipping.

The yardstick of catching up is another process that sends the log's bytes over a bare socket to a process that writes
them and syncs each log segment. The yardstick of the lag is a bare write and fdatasync, the bytes over a socket, and a
write and fdatasync at the other end. In turns, the source ships blocks of a log that has a mirror, and the same blocks
of another one that never had a reader. At last, a reader stands still until the buffer no longer holds what it lacks.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from logs import SEGMENT_BYTES, make_block, make_log
from measuring import Finding, Report, bench_folder, empty, interleave, percentile, rate, ratios, run, sync_tree

from litelog.log.writer import LogWriter
from litelog.objects.wal_stream import StreamError, read_stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from litelog.objects.wal_segment import WalSegment

WAIT_SECONDS = 120.0
LITELOG = Path(sys.executable).parent / "litelog"
MIRROR, COPY = "litelog mirror --once", "a bare copy over a socket, synced"
IDLE = "litelog mirror --once that lacks nothing"


class Source:
    """A daemon that serves some logs, each a folder in ``work``, in its own process."""

    def __init__(self, work: Path, names: Sequence[str] = ("log",)) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        self._address = f"http://127.0.0.1:{port}"
        self.url = self.url_of("log")
        self._pid = 0
        self.config = work / "serve.yml"
        self.config.write_text(
            f"state-dir: {work}/state\naddr: 127.0.0.1:{port}\nserve: all\nsync-interval: 100ms\n"
            "logs:\n" + "".join(f"  - path: {work}/{name}\n    replicas: [{work}/replica-{name}]\n" for name in names)
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the daemon."""
        command = [LITELOG, "replicate", "--config", self.config, "--quiet"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            self._pid = process.pid
            try:
                yield
            finally:
                process.terminate()
                process.wait(WAIT_SECONDS)

    def url_of(self, name: str) -> str:
        """Where a log is served."""
        return f"{self._address}/logs/{name}"

    def await_shipped(self, folder: str) -> None:
        """Wait until the replica holds all that a log holds now. One request: polling would take the daemon's time."""
        query = urllib.parse.urlencode({"wait": f"{WAIT_SECONDS:g}s", "log": folder})
        with urllib.request.urlopen(urllib.request.Request(f"{self._address}/sync?{query}", method="POST")):
            pass

    def processor_seconds(self) -> float:
        """The processor time that the daemon has taken."""
        user, system = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def position(self) -> str:
        """The position up to which the replica has acknowledged the log."""
        return str(self._facts("log")["acknowledged_position"])

    def await_acknowledged(self, sequence: int, name: str = "log") -> None:
        """Wait until the replica holds all records before ``sequence``."""
        await_true(lambda: (self._facts(name).get("acknowledged") or 0) >= sequence, 0.005)

    def _facts(self, name: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(self.url_of(name)) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.URLError:
            return {}


def await_true(is_true: Any, pause: float) -> None:
    """Wait for a condition; ClickException after WAIT_SECONDS."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_true():
        if time.monotonic() > deadline:
            raise click.ClickException(f"nothing happened for {WAIT_SECONDS:g} s")
        time.sleep(pause)


def log_bytes(folder: Path) -> int:
    """The size of a log's log segments."""
    return sum(path.stat().st_size for path in folder.glob("*.log"))


def size_of(path: Path) -> int:
    """The size of a file; 0 if it is not there. One call: it competes with what is measured."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def catch_up(source: Source, behind: Path, out: Path) -> float:
    """Let a mirror that holds what is in ``behind`` catch up. ``--once`` waits for news for a second at the end."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(behind, out)
    sync_tree(out)
    start = time.perf_counter()
    run([LITELOG, "mirror", "--once", "--json", source.url, out])
    return time.perf_counter() - start - 1.0


def start_only(source: Source, out: Path) -> float:
    """Let a mirror that lacks nothing find that out: this is the start of the command, and its first requests."""
    start = time.perf_counter()
    run([LITELOG, "mirror", "--once", "--json", source.url, out])
    return time.perf_counter() - start - 1.0


def copy_bare(log: Path, out: Path) -> float:
    """Copy a log over a socket, from another process."""
    empty(out)
    listener = socket.create_server(("127.0.0.1", 0))
    sender = multiprocessing.Process(target=_send_all, args=(log, listener.getsockname()))
    start = time.perf_counter()
    sender.start()
    connection, _ = listener.accept()
    for path in sorted(log.glob("*.log")):
        left = path.stat().st_size
        file = os.open(out / path.name, os.O_WRONLY | os.O_CREAT)
        while left:
            data = connection.recv(min(left, 1 << 20))
            os.write(file, data)
            left -= len(data)
        os.fsync(file)
        os.close(file)
    took = time.perf_counter() - start
    sender.join()
    return took


def _send_all(log: Path, address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        for path in sorted(log.glob("*.log")):
            with path.open("rb") as file:
                connection.sendfile(file)


@contextmanager
def mirroring(url: str, out: Path) -> Iterator[None]:
    """Run a mirror."""
    with subprocess.Popen(
        [LITELOG, "mirror", "--quiet", url, out], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield
        finally:
            process.terminate()
            process.wait(WAIT_SECONDS)


def append_turn(writer: LogWriter, out: Path, count: int, size: int, gap: float) -> list[float]:
    """Append at a steady pace. Return the seconds from each append's return until its bytes are in the mirror."""
    found = []
    for number in range(count):
        writer.append(make_block(size, number))
        at, newest = time.monotonic(), max(Path(writer.folder).glob("*.log"))
        wanted, there = newest.stat().st_size, out / newest.name
        await_true(lambda wanted=wanted, there=there: size_of(there) >= wanted, 0.0001)
        found.append(time.monotonic() - at)
        time.sleep(gap)
    return found


def bare_turn(work: Path, count: int, size: int, gap: float) -> list[float]:
    """The same with bare files and a socket: write and sync here, send, write and sync there, answer."""
    listener = socket.create_server(("127.0.0.1", 0))
    other = multiprocessing.Process(target=_sync_there, args=(work / "there", listener.getsockname(), size))
    other.start()
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    found = []
    with (work / "here").open("wb", buffering=0) as file, connection:
        for _ in range(count):
            start, body = time.monotonic(), os.urandom(size)
            file.write(body)
            os.fdatasync(file.fileno())
            connection.sendall(body)
            connection.recv(1)
            found.append(time.monotonic() - start)
            time.sleep(gap)
    other.join()
    return found


def _sync_there(path: Path, address: tuple[str, int], size: int) -> None:
    with socket.create_connection(address) as connection, path.open("wb", buffering=0) as file:
        while body := connection.recv(size, socket.MSG_WAITALL):
            file.write(body)
            os.fdatasync(file.fileno())
            connection.sendall(b"1")


def ship_turn(source: Source, writer: LogWriter, blocks: list[list[bytes]]) -> tuple[float, float]:
    """Append blocks. Return the seconds until the replica has them, and the daemon's processor time until then."""
    start, before = time.perf_counter(), source.processor_seconds()
    for block in blocks:
        writer.append(block)
    source.await_shipped(writer.folder)
    return time.perf_counter() - start, source.processor_seconds() - before


def measure_lag(report: Report, source: Source, writer: LogWriter, work: Path, rounds: int) -> None:
    """Compare the lag of a mirror with that of bare files, in turns."""
    ours, bare = list[list[float]](), list[list[float]]()
    with mirroring(source.url, work / "mirror"):
        append_turn(writer, work / "mirror", 5, 10_000, 0.01)
        for _ in range(rounds):
            ours.append(append_turn(writer, work / "mirror", 50, 10_000, 0.01))
            bare.append(bare_turn(work, 50, 10_000, 0.01))
    for name, turns in (("append to mirror", ours), ("bare", bare)):
        values = [value for turn in turns for value in turn]
        report.figures[name] = ", ".join(f"p{p} {percentile(values, p) * 1e3:.2f} ms" for p in (50, 99))
    for percent, most in ((50, 2.0), (99, 4.0)):
        values = tuple(percentile(a, percent) / percentile(b, percent) for a, b in zip(ours, bare, strict=True))
        report.findings.append(Finding(f"append to mirror, p{percent}", "bare, synced at both", values, at_most=most))


def stand_still(source: Source, writer: LogWriter, blocks: list[list[bytes]]) -> float:
    """Let a reader stand still until it lacks all blocks. Return the processor time of the daemon until it has them."""
    address = urllib.parse.urlsplit(source.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port)
    connection.request("GET", f"{address.path}/wal?from={source.position()}&follow=true")
    stream = read_stream(source.url, connection.getresponse())
    for count, block in enumerate([blocks[0], *blocks]):
        writer.append(block)
        if not count:
            await_sequence(stream, writer.next_sequence)
    source.await_shipped(writer.folder)
    time.sleep(0.5)  # its buffers settle
    before = source.processor_seconds()
    await_sequence(stream, writer.next_sequence)
    took = source.processor_seconds() - before
    connection.close()
    return took


def await_sequence(stream: Iterator[WalSegment | StreamError], sequence: int) -> None:
    """Read a stream up to the record before ``sequence``."""
    for segment in stream:
        if isinstance(segment, StreamError):
            raise click.ClickException(segment.message)
        if (segment.header.next or 0) >= sequence:
            return


def measure_standing(report: Report, work: Path, rounds: int) -> None:
    """Compare what a reader costs that has fallen behind in a long log segment, and in a short one: the log segment
    grows by 33 MiB from one turn to the next."""
    folder, blocks = empty(work / "standing"), [make_block(1 << 20, number) for number in range(32)]
    found, source = list[list[float]](), Source(folder)
    for _ in range(rounds):
        shutil.rmtree(folder / "log", ignore_errors=True)
        make_log(folder / "log", 1 << 20)
        shutil.rmtree(folder / "state", ignore_errors=True)
        shutil.rmtree(folder / "replica-log", ignore_errors=True)
        with source.running(), LogWriter(str(folder / "log"), segment_bytes=1 << 40) as writer:
            source.await_acknowledged(writer.next_sequence)
            found.append([stand_still(source, writer, blocks) for _ in range(5)])
    medians = [statistics.median(turns) for turns in zip(*found, strict=True)]
    report.figures["33 MiB to a reader that stood still, by the log segment's size"] = ", ".join(
        f"{33 * (number + 1)} MiB {took:.3f} s" for number, took in enumerate(medians)
    )
    slower = ratios([turns[-1] for turns in found], [turns[0] for turns in found])
    report.findings.append(Finding("33 MiB to a reader that stood still, 166 MiB", "33 MiB", slower, at_most=2.0))


def measure_shipping(report: Report, work: Path, rounds: int) -> None:
    """Compare shipping a log with a mirror, and one that never had a reader, in turns. No log segment is sealed
    meanwhile: that would take the processor in the turn of the other one, too."""
    folder = empty(work / "shipping")
    names, blocks = ("mirrored", "unread"), [make_block(1 << 20, number) for number in range(32)]
    for name in names:
        make_log(folder / name, 1 << 20)
    source, writers = Source(folder, names), [LogWriter(str(folder / name), segment_bytes=1 << 40) for name in names]
    alone, mirrored = list[tuple[float, float]](), list[tuple[float, float]]()
    with source.running(), writers[0], writers[1]:
        for name, writer in zip(names, writers, strict=True):
            source.await_acknowledged(writer.next_sequence, name)
        with mirroring(source.url_of("mirrored"), folder / "mirror"):
            for number in range(1 + rounds):
                for writer, turns in zip(writers, (mirrored, alone), strict=True):
                    await_true(lambda: log_bytes(folder / "mirror") == log_bytes(folder / "mirrored"), 0.01)
                    turn = ship_turn(source, writer, blocks)
                    if number:
                        turns.append(turn)
    for name, taken in (("alone", alone), ("with a mirror", mirrored)):
        whole, processor = (statistics.median(values) for values in zip(*taken, strict=True))
        report.figures[f"shipping 32 MiB, {name}"] = f"{whole:.3f} s, {processor:.3f} s of the source's processor time"
    for at, name, most in ((0, "shipping with a mirror", 1.1), (1, "the same, the source's processor time", None)):
        found = ratios([each[at] for each in mirrored], [each[at] for each in alone])
        report.findings.append(Finding(name, "without one", found, at_most=most))


@click.command(help=__doc__)
@click.option("--folder", type=click.Path(exists=True), help="Folder to work in, on a disk, with room for 4 logs.")
@click.option("--size", default=1024, help="MiB of log.")
@click.option("--rounds", default=5, help="Number of interleaved rounds.")
@click.option("--patience", default=0.0, help="Seconds that each run may wait until the machine is quiet.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(folder: str | None, size: int, rounds: int, patience: float, as_json: bool) -> None:
    report = Report(f"a mirror of {size} MiB")
    with bench_folder(folder) as work:
        make_log(work / "log", 1 << 20)
        source = Source(work)
        with source.running(), LogWriter(str(work / "log"), segment_bytes=SEGMENT_BYTES) as writer:
            source.await_acknowledged(writer.next_sequence)
            run([LITELOG, "mirror", "--once", source.url, work / "behind"])
            blocks = [make_block(8 << 20, number) for number in range(8)]
            for number in range(size // 8):
                writer.append(blocks[number % 8])
            source.await_acknowledged(writer.next_sequence)
            os.sync()
            calls = {
                MIRROR: lambda: catch_up(source, work / "behind", work / "mirror"),
                IDLE: lambda: start_only(source, work / "mirror"),
                COPY: lambda: copy_bare(work / "log", work / "bare"),
            }
            times = interleave(calls, rounds, patience)
            copied = log_bytes(work / "log")
            for name in (MIRROR, COPY):
                report.figures[name] = rate(copied, times[name])
            report.figures[IDLE] = f"{statistics.median(times[IDLE]):.2f} s"
            report.findings.append(Finding(MIRROR, COPY, ratios(times[COPY], times[MIRROR]), 0.7))
            without = [max(0.01, whole - idle) for whole, idle in zip(times[MIRROR], times[IDLE], strict=True)]
            report.findings.append(Finding("the same without its start", COPY, ratios(times[COPY], without), 0.7))
            shutil.rmtree(work / "bare")
            measure_lag(report, source, writer, work, rounds)
        measure_shipping(report, work, rounds)
        measure_standing(report, work, rounds)
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
