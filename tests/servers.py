"""Real HTTP servers for tests: S3 as moto speaks it."""

from __future__ import annotations

import itertools
import logging
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from collections.abc import Iterator

REGION = "eu-west-1"
ACCESS_KEY_ID, SECRET_ACCESS_KEY = "AKIDOFTHETESTS", "secret-of-the-tests"  # moto takes any
CREDENTIALS = {"access-key-id": ACCESS_KEY_ID, "secret-access-key": SECRET_ACCESS_KEY}
"""As a replica's options."""


@dataclass(slots=True)
class S3Server:
    """A server on this machine, with an administrator's client of its own."""

    endpoint: str
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _admin: Any = None

    @property
    def admin(self) -> Any:
        """A boto3 client that asks the server directly, past what is tested."""
        if self._admin is None:
            self._admin = boto3.client(
                "s3",
                endpoint_url=self.endpoint,
                region_name=REGION,
                aws_access_key_id=ACCESS_KEY_ID,
                aws_secret_access_key=SECRET_ACCESS_KEY,
                config=Config(s3={"addressing_style": "path"}, max_pool_connections=32),
            )
        return self._admin

    def make_bucket(self) -> str:
        """A new, empty bucket's name."""
        name = f"bucket-{os.getpid()}-{next(self._numbers)}"
        self.admin.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
        return name

    def options(self, **more: object) -> dict[str, object]:
        """A replica's options for this server."""
        return {"endpoint": self.endpoint, "region": REGION, **CREDENTIALS, **more}


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """moto's S3 in a thread of this process, on a free port. It checks no digests, signatures or permissions."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each request, which pytest would keep
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield S3Server(f"http://{host}:{port}")
    finally:
        server.stop()
