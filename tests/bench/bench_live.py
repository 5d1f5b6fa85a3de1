"""Measures a daemon that serves its log: from an append to a subscriber, many followers, full speed, and idle ones.

Another process runs the daemon. Latency is compared with a write, fdatasync and a round trip through a socket of the
same bytes. Speed is compared with ``cat`` of the very bytes that ``/wal`` sends, through a bare TCP socket: the reader
of both takes as much at a time, and does nothing with it. Jobs and yardsticks take turns. Where ``nats-server`` is
installed, latency is also compared with a JetStream stream that syncs each message.
"""

from __future__ import annotations

import http.client
import math
import os
import selectors
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import click
import jetstream
from measuring import (
    Finding,
    Report,
    bench_folder,
    cpu_seconds,
    interleave,
    measure,
    missing,
    percentile,
    rate,
    ratios,
)

from litelog.log.writer import LogWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jetstream import JetStream

RECORD_BYTES = 100
PATIENCE_SECONDS = 60.0
CHUNK_BYTES = 1 << 18
SIGN_SECONDS = 15.0  # between two signs of life: idle time is measured for a multiple of it
SETTLE_SECONDS = 25.0  # a daemon that was busy returns memory to the system, once, and then reads its code again
RECORD_MARK = b'"sequence"'  # stands once in the JSON of a record
ARROW = "application/vnd.apache.arrow.stream"
NATS = "NATS JetStream that syncs, publish to acknowledged and seen"
BARE_TRIP, BARE_SOCKET = "a bare write, fdatasync and socket round trip", "a bare socket"


class Served:
    """A daemon that serves the log ``log``."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.pid = process.pid
        self._port = port

    def ask(self, path: str, accept: str = "*/*") -> http.client.HTTPResponse:
        """Send a request; return the answer, whose body is not read yet."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_SECONDS)
        connection.request("GET", f"/logs/log{path}", headers={"Accept": accept})
        return connection.getresponse()

    def subscribe(self, path: str) -> socket.socket:
        """Open a stream, and return its connection, from which nothing was read."""
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE_SECONDS)
        connection.sendall(f"GET /logs/log{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return connection

    def read_all(self, path: str, accept: str = "*/*") -> int:
        """Read an answer to its end; return its size."""
        answer, size, buffer = self.ask(path, accept), 0, bytearray(CHUNK_BYTES)
        while count := answer.readinto(buffer):
            size += count
        if answer.status != http.client.OK:
            raise click.ClickException(f"{path}: {answer.status}")
        return size


@contextmanager
def serving(work: Path) -> Iterator[Served]:
    """Run a daemon that serves the log in ``work``."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = work / "litelog.yml"
    config.write_text(
        f"state-dir: {work}/state\naddr: 127.0.0.1:{port}\nserve: all\n"
        f"logs: [{{path: {work}/log, replicas: [{{url: {work}/replica}}]}}]\n"
    )
    command = [sys.executable, "-m", "litelog_cli", "replicate", "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        served = Served(process, port)
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not _is_ready(served):
                if time.monotonic() > deadline:
                    raise click.ClickException("the daemon did not begin")
                time.sleep(0.1)
            yield served
        finally:
            process.terminate()


def _is_ready(served: Served) -> bool:
    try:
        return served.ask("/records?from=end").status == http.client.OK
    except OSError:
        return False


def measure_latency(
    report: Report, work: Path, served: Served, count: int, rounds: int, stream_of_nats: JetStream | None
) -> None:
    ours: list[list[float]] = []
    bare: list[list[float]] = []
    nats: list[list[float]] = []
    mine, echo = socket.socketpair()
    threading.Thread(target=_echo, args=(echo,), daemon=True).start()
    file = os.open(work / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    record = b"x" * RECORD_BYTES
    with (
        served.subscribe("/records?from=end&follow=true&columns=sequence") as stream,
        LogWriter(f"{work}/log") as writer,
    ):
        stream.recv(CHUNK_BYTES)  # the answer's head
        for number in range(rounds + 1):
            seen, trips, published = list[float](), list[float](), list[float]()
            for _ in range(count):
                start = time.monotonic()
                writer.append(record)
                while b"}" not in stream.recv(CHUNK_BYTES):
                    pass
                seen.append(time.monotonic() - start)
                start = time.monotonic()
                os.write(file, record)
                os.fdatasync(file)
                mine.sendall(record)
                mine.recv(RECORD_BYTES)
                trips.append(time.monotonic() - start)
                if stream_of_nats is not None:
                    start = time.monotonic()
                    stream_of_nats.publish_and_see(record)
                    published.append(time.monotonic() - start)
            if number:  # the first round warms up
                ours.append(seen)
                bare.append(trips)
                nats.append(published)
    os.close(file)
    mine.close()
    for name, turns in (("append to seen", ours), (BARE_TRIP, bare), (NATS, nats)):
        if stream_of_nats is None and name == NATS:
            continue
        values = [value for turn in turns for value in turn]
        report.figures[name] = ", ".join(f"p{each} {percentile(values, each) * 1e3:.2f} ms" for each in (50, 90, 99))
    for percent, most in ((50, 2.0), (99, 4.0)):
        found = tuple(percentile(a, percent) / percentile(b, percent) for a, b in zip(ours, bare, strict=True))
        report.findings.append(Finding(f"append to seen, p{percent}", BARE_TRIP, found, at_most=most))
        if stream_of_nats is not None:
            found = tuple(percentile(a, percent) / percentile(b, percent) for a, b in zip(ours, nats, strict=True))
            report.findings.append(Finding(f"append to seen, p{percent}", NATS, found))


def _echo(connection: socket.socket) -> None:
    with connection:
        while piece := connection.recv(RECORD_BYTES):
            connection.sendall(piece)


def measure_followers(report: Report, work: Path, served: Served, followers: int, seconds: float) -> None:
    streams = [served.subscribe("/records?from=end&follow=true") for _ in range(followers)]
    counts = dict.fromkeys(range(followers), 0)
    rests = dict.fromkeys(range(followers), b"")  # a read may end within the mark of a record
    records = int(seconds * 1000)
    selector = selectors.DefaultSelector()
    for number, stream in enumerate(streams):
        stream.setblocking(False)
        selector.register(stream, selectors.EVENT_READ, number)
    time.sleep(2.0)  # all have begun
    before = cpu_seconds(served.pid)
    writing = threading.Thread(target=_append_steadily, args=(work, records))
    writing.start()
    deadline = time.monotonic() + seconds + PATIENCE_SECONDS
    while min(counts.values()) < records and time.monotonic() < deadline:
        for key, _ in selector.select(1.0):
            data = rests[key.data] + os.read(key.fd, CHUNK_BYTES)
            counts[key.data] += data.count(RECORD_MARK)
            rests[key.data] = data[1 - len(RECORD_MARK) :]
    used = cpu_seconds(served.pid) - before
    writing.join()
    for stream in streams:
        stream.close()
    lost = sum(records - count for count in counts.values())
    report.findings.append(
        Finding(f"records that {followers} followers lack", "none", (float(lost),), at_most=0, unit="records")
    )
    share = 100 * used / seconds / followers
    report.figures[f"processor time for each of {followers} followers at 1,000 records a second"] = (
        f"{share:.3f} % of a core"
    )


def _append_steadily(work: Path, records: int) -> None:
    with LogWriter(f"{work}/log") as writer:
        start = time.monotonic()
        for number in range(0, records, 10):
            time.sleep(max(0.0, start + number / 1000 - time.monotonic()))
            writer.append([b"x" * RECORD_BYTES] * 10)


def measure_speed(report: Report, work: Path, served: Served, size: int, rounds: int) -> None:
    with LogWriter(f"{work}/log") as writer:
        for _ in range(size >> 20):
            writer.append([os.urandom(1000) for _ in range(1048)])
    generation = served.ask("").read().decode().partition('"generation":"')[2][:16]
    wal, columns = f"/wal?from={generation}/{0:016x}/{0:016x}", "/records?columns=sequence,value"
    sent = work / "sent"
    sent.write_bytes(served.ask(wal).read())
    taken = interleave(
        {
            "wal": lambda: measure(lambda: served.read_all(wal)),
            "bare": lambda: measure(lambda: _cat(sent)),
            "json": lambda: measure(lambda: served.read_all(columns)),
            "arrow": lambda: measure(lambda: served.read_all(columns, ARROW)),
        },
        rounds,
    )
    for name, seconds in taken.items():
        report.figures[f"speed, {name}"] = rate(size, seconds)
    report.findings += [
        Finding("speed of /wal", BARE_SOCKET, ratios(taken["bare"], taken["wal"]), at_least=0.5),
        Finding("speed of Arrow", "JSON lines", ratios(taken["json"], taken["arrow"]), at_least=3.0),
    ]


def _cat(file: Path) -> int:
    """Send a file through a TCP socket, as ``cat`` into ``nc`` does, and read it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        writer = socket.create_connection(listener.getsockname())
        reader, _ = listener.accept()
    with reader, subprocess.Popen(["cat", str(file)], stdout=writer.fileno()):
        writer.close()
        size, buffer = 0, bytearray(CHUNK_BYTES)
        while count := reader.recv_into(buffer):
            size += count
    return size


def measure_idle(report: Report, served: Served, count: int, seconds: float) -> None:
    streams = [served.subscribe("/records?from=end&follow=true") for _ in range(count)]
    time.sleep(SETTLE_SECONDS)
    for stream in streams:
        stream.recv(CHUNK_BYTES)  # the answer's head
    with_streams = _idle_share(served, seconds, streams)
    for stream in streams:
        stream.close()
    report.findings.append(
        Finding(f"processor time, {count} idle subscriptions", "one core", (with_streams,), at_most=0.1, unit="%")
    )


def _idle_share(served: Served, seconds: float, streams: list[socket.socket]) -> float:
    before = cpu_seconds(served.pid)
    taken = measure(lambda: time.sleep(seconds))
    used = cpu_seconds(served.pid) - before
    for stream in streams:
        stream.setblocking(False)
        sent = stream.recv(CHUNK_BYTES)
        if any(line.strip() not in (b"", b"1") for line in sent.splitlines()):
            raise click.ClickException(f"more than signs of life: {sent[:100]!r}")
    return 100 * used / taken


@click.command(help=__doc__)
@click.option("--folder", type=click.Path(exists=True), help="Folder to work in. It has to be on a disk.")
@click.option("--rounds", default=5, help="Number of rounds of each comparison.")
@click.option("--count", default=100, help="Number of appends in a round of latency.")
@click.option("--followers", default=200, help="Number of followers.")
@click.option("--seconds", default=10.0, help="Seconds with all followers.")
@click.option("--mib", default=64, help="Size of the log that is read at full speed, in MiB.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(folder: str | None, rounds: int, count: int, followers: int, seconds: float, mib: int, as_json: bool) -> None:
    report = Report(f"a served log, load {os.getloadavg()[0]:.1f}")
    with bench_folder(folder) as work:
        with LogWriter(f"{work}/log") as writer:
            writer.append(b"first")
        with serving(work) as served, ExitStack() as stack:
            lacks = missing(jetstream.SERVER)
            stream_of_nats = stack.enter_context(jetstream.running(work)) if lacks is None else None
            if lacks is not None:
                report.skipped["NATS"] = lacks
            measure_latency(report, work, served, count, rounds, stream_of_nats)
            stack.close()
            measure_followers(report, work, served, followers, seconds)
            measure_idle(report, served, 100, math.ceil(seconds / (2 * SIGN_SECONDS)) * 2 * SIGN_SECONDS)
            measure_speed(report, work, served, mib << 20, rounds)
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
