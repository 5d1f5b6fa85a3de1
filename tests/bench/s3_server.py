"""The S3 server of a benchmark: at a given endpoint, or started on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from measuring import missing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from measuring import Report

BUCKET = "bench"
REGION, KEY_ID, SECRET = "us-east-1", "bench", "bench-secret"
START_SECONDS = 30.0


def boto3_client(endpoint: str, parallelism: int = 10) -> Any:
    """Return a client with the leanest configuration that boto3 offers."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
        config=Config(
            s3={"addressing_style": "path"},
            max_pool_connections=parallelism,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )


def make_bucket(endpoint: str) -> None:
    """Make the bucket, if it is not there."""
    client = boto3_client(endpoint)
    if BUCKET not in {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}:
        client.create_bucket(Bucket=BUCKET)


def replica_url(endpoint: str, prefix: str) -> str:
    """The URL of a replica in the bucket, as litelog takes it."""
    return f"s3://{BUCKET}/{prefix}?endpoint={endpoint}&region={REGION}"


@contextmanager
def serving_minio(work: Path, endpoint: str | None, report: Report) -> Iterator[str]:
    """Yield the endpoint of the given server, or of a MinIO that ends with the context. ClickException without it."""
    if endpoint:
        yield endpoint
        return
    if (reason := missing("minio")) is not None:
        raise click.ClickException(f"{reason}: give --endpoint")
    report.figures["server"] = "MinIO"
    environment = {"MINIO_ROOT_USER": KEY_ID, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off"}
    port = free_port()
    command = ["minio", "server", str(work / "served"), "--address", f"127.0.0.1:{port}", "--quiet"]
    with _running(command, port, environment) as address:
        yield address


@contextmanager
def serving_rclone(work: Path, endpoint: str | None, rclone: str, bandwidth: int, report: Report) -> Iterator[str]:
    """Yield the endpoint of the given server, or of rclone, or else of moto. rclone sends at most ``bandwidth`` MiB a
    second; 0: no limit."""
    if endpoint:
        yield endpoint
        return
    port = free_port()
    if (reason := missing(rclone)) is None:
        report.figures["server"] = "rclone serve s3" + (f", {bandwidth} MiB/s" if bandwidth else "")
        (work / "served" / BUCKET).mkdir(parents=True)
        auth = ["--auth-key", f"{KEY_ID},{SECRET}", "--config", os.devnull, "--addr", f"127.0.0.1:{port}"]
        limit = ["--bwlimit", f"{bandwidth}M"] if bandwidth else []
        command = [rclone, "serve", "s3", *auth, *limit, "--vfs-cache-mode", "off", str(work / "served")]
    else:
        report.figures["server"] = "moto"
        report.skipped["rclone serve s3"] = reason
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _running(command, port, {}) as address:
        yield address


def free_port() -> int:
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def _running(command: Sequence[str], port: int, environment: Mapping[str, str]) -> Iterator[str]:
    named = {**os.environ, **environment}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=named)
    try:
        _wait_for(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise click.ClickException("the server did not start")
