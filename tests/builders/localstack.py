"""LocalStack's S3, if it is installed. It checks digests, which moto does not, and serves over TLS.

Its requirements conflict with those of other packages, so it needs its own environment, with Python 3.13. Install it
there with ``pip install 'localstack-core[runtime]==4.14.0' 'cbor2<6' service-identity``. ``LITELOG_LOCALSTACK_PYTHON``
names that environment's Python; without it, the tests look for ``localstack-supervisor`` on the path.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from ssl import create_default_context
from typing import TYPE_CHECKING

import pytest

from tests.builders.servers import S3Server

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE = "LITELOG_LOCALSTACK_PYTHON"
START_SECONDS = 120


def find_python() -> str | None:
    """The Python that has LocalStack; None if there is none."""
    if given := os.environ.get(VARIABLE):
        return given
    command = shutil.which("localstack-supervisor")
    return str(Path(command).with_name("python")) if command else None


@contextmanager
def localstack_server(folder: Path) -> Iterator[S3Server]:
    """LocalStack's S3 over TLS, with a new certificate. Skips the test if LocalStack does not start."""
    trustme = pytest.importorskip("trustme")
    python = find_python()
    assert python is not None
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTHON"))},
        "CUSTOM_SSL_CERT_PATH": str(folder / "server.pem"),
        "DISABLE_EVENTS": "1",
        "DNS_ADDRESS": "0",
        "GATEWAY_LISTEN": address,
        "HOME": str(folder),
        "S3_SKIP_SIGNATURE_VALIDATION": "1",
        "SERVICES": "s3",
        "SKIP_SSL_CERT_DOWNLOAD": "1",
        "TMPDIR": str(folder),
    }
    command = [python, "-m", "localstack.runtime.main"]
    with open(folder / "localstack.log", "wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait_until_up(process, f"https://{address}/_localstack/health", folder)
        yield S3Server(f"https://{address}", str(folder / "authority.pem"))
    finally:
        process.terminate()
        try:
            process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_up(process: subprocess.Popen[bytes], url: str, folder: Path) -> None:
    context = create_default_context(cafile=str(folder / "authority.pem"))
    deadline = time.monotonic() + START_SECONDS
    pause = threading.Event()
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5, context=context):
                return
        except OSError:
            pause.wait(0.2)
    said = (folder / "localstack.log").read_text().strip().rpartition("\n")[2]
    pytest.skip(f"LocalStack does not start: {said or 'nothing was said'}")
