"""Measures the cost of a PUT and a GET in the S3 store's client, against bare boto3 on the same server.

The server is another process that answers at once, stores nothing and checks nothing, so the benchmark measures the
client: elapsed time, and processor time of this process. ``--endpoint`` names a real server instead. Bare boto3 has its
leanest configuration and sends neither a digest nor a condition. The figures of obstore are shown for comparison.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from measuring import Finding, Report, interleave, milliseconds, ratios

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

sys.path.insert(0, str(Path(__file__).parents[2]))

OURS, PIECES, BARE, DEFAULT, OTHER = "litelog", "litelog, 16 buffers", "boto3", "boto3, default settings", "obstore"
TARGET = 1.15
BUCKET = "bench"
REGION, KEY_ID, SECRET = "us-east-1", "bench", "bench-secret"
SIZES = {"64 KiB": (64 << 10, 100), "1 MiB": (1 << 20, 40), "16 MiB": (16 << 20, 6)}
"""Bytes of an object, and the number of requests in a round."""
RECEIVE_BYTES = 1 << 20


class Meter:
    """Records processor time; ``interleave`` records elapsed time only."""

    def __init__(self) -> None:
        self.processor: dict[str, list[float]] = {}

    def measure(self, name: str, count: int, call: Callable[[], object]) -> float:
        """Run ``call`` ``count`` times, and return the seconds per call."""
        wall, processor = time.perf_counter(), time.process_time()
        for _ in range(count):
            call()
        self.processor.setdefault(name, []).append((time.process_time() - processor) / count)
        return (time.perf_counter() - wall) / count


# The server


def serve(listener: socket.socket) -> None:
    """Answer requests for ever: a PUT once its body has arrived, a GET of .../N with N bytes."""
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection: socket.socket) -> None:
    buffer, discarded, zeros = b"", bytearray(RECEIVE_BYTES), bytes(max(size for size, _ in SIZES.values()))
    while True:
        while b"\r\n\r\n" not in buffer:
            if not (piece := connection.recv(65536)):
                return
            buffer += piece
        head, _, buffer = buffer.partition(b"\r\n\r\n")
        method, path, _ = head.split(b"\r\n")[0].split(b" ")
        if method == b"GET":
            size = int(path.rpartition(b"/")[2].partition(b"?")[0])
            connection.sendall(
                b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\nETag: "0"\r\n'
                b"Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n" % size
            )
            connection.sendall(memoryview(zeros)[:size])
            continue
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        if b"expect" in fields:
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        left = int(fields.get(b"content-length", b"0")) - len(buffer)
        buffer = b""
        while left > 0:
            left -= connection.recv_into(discarded, min(left, RECEIVE_BYTES))
        connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETag: "0"\r\n\r\n')


@contextmanager
def server(endpoint: str | None) -> Iterator[str]:
    """Yield the endpoint to measure against: the given one, or that of a new process."""
    if endpoint:
        yield endpoint
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:
        os.set_inheritable(listener.fileno(), True)
        command = [sys.executable, __file__, "--serve", str(listener.fileno())]
        process = subprocess.Popen(command, pass_fds=[listener.fileno()])
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            process.kill()
            process.wait()


# Clients


def litelog_calls(endpoint: str, buffers: int = 1) -> tuple[Callable[[str, bytes], object], Callable[[str], object]]:
    from replica_clients.s3 import open_store

    options = {"endpoint": endpoint, "region": REGION, "access-key-id": KEY_ID, "secret-access-key": SECRET}
    store = open_store(f"s3://{BUCKET}", options)

    def get(key: str) -> bytes:
        with store.open(key) as stream:
            return stream.read()

    def put(key: str, body: bytes) -> None:
        step = len(body) // buffers
        pieces = [memoryview(body)[at : at + step] for at in range(0, len(body), step)] if buffers > 1 else [body]
        store.put(key, pieces, create_only=False)  # a real server would refuse the second round

    return put, get


def boto3_calls(endpoint: str, **config: Any) -> tuple[Callable[[str, bytes], object], Callable[[str], object]]:
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
        config=Config(s3={"addressing_style": "path"}, **config),
    )
    return (
        lambda key, body: client.put_object(Bucket=BUCKET, Key=key, Body=body),
        lambda key: client.get_object(Bucket=BUCKET, Key=key)["Body"].read(),
    )


def obstore_calls(endpoint: str) -> tuple[Callable[[str, bytes], object], Callable[[str], object]]:
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        BUCKET,
        endpoint=endpoint,
        region=REGION,
        access_key_id=KEY_ID,
        secret_access_key=SECRET,
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )
    return (
        lambda key, body: obstore.put(store, key, body, use_multipart=False),
        lambda key: bytes(obstore.get(store, key).bytes()),
    )


@click.command(help=__doc__)
@click.option("--endpoint", help="URL of an S3 server to measure against. It needs a bucket named bench.")
@click.option("--rounds", default=9, help="Number of interleaved rounds.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--serve", "descriptor", type=int, hidden=True, help="Run the server on this descriptor.")
def main(endpoint: str | None, rounds: int, as_json: bool, descriptor: int | None) -> None:
    if descriptor is not None:
        serve(socket.socket(fileno=descriptor))
    report = Report("a request by the S3 store, and by bare boto3")
    with server(endpoint) as address:
        lean = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
        clients = {OURS: litelog_calls(address), BARE: boto3_calls(address, **lean), DEFAULT: boto3_calls(address)}
        try:
            clients[OTHER] = obstore_calls(address)
        except ImportError as error:
            report.skipped[OTHER] = str(error)
        for label, (size, count) in SIZES.items():
            key, body = f"object/{size}", os.urandom(size)
            calls = {name: partial(put, key, body) for name, (put, _) in clients.items()}
            calls[PIECES] = partial(litelog_calls(address, 16)[0], key, body)
            compare(report, f"PUT {label}", calls, count, rounds)
            calls = {name: partial(get, key) for name, (_, get) in clients.items()}
            compare(report, f"GET {label}", calls, count, rounds)
    report.print(as_json=as_json)


def compare(report: Report, request: str, calls: dict[str, Callable[[], object]], count: int, rounds: int) -> None:
    """Add the cost of a request for each client to the report."""
    meter = Meter()
    turns = {name: partial(meter.measure, name, count, call) for name, call in calls.items()}
    wall = interleave(turns, rounds)
    processor = {name: values[1:] for name, values in meter.processor.items()}  # without the warm-up round
    for name in calls:
        report.figures[f"{request}, {name}"] = f"{milliseconds(wall[name])}, cpu {milliseconds(processor[name])}"
    for kind, times in (("time", wall), ("cpu", processor)):
        found = Finding(f"{request}, {kind}", BARE, ratios(times[OURS], times[BARE]), at_most=TARGET)
        report.findings.append(found)


if __name__ == "__main__":
    main()
