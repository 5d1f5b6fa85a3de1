"""Stores of fsspec that sign URLs are read by Java, and others by Python."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from litelog.spark.options import Engine
from litelog.stores.registry import open_store
from tests.builders.real_servers import AZURITE, FAKE_GCS, Kind, find_lacking, started
from tests.builders.replica_builder import ReplicaBuilder, make_log
from tests.builders.spark_shipping import require_columnar, run_and_count

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class _Granting(BaseHTTPRequestHandler):
    """Gives an access token to everyone."""

    def do_POST(self) -> None:
        answer = json.dumps({"access_token": "a token", "expires_in": 3600, "token_type": "Bearer"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_request(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def service_account() -> Iterator[str]:
    """The JSON of a service account of Google's cloud, whose private key signs URLs."""
    rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with HTTPServer(("127.0.0.1", 0), _Granting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tokens = f"http://127.0.0.1:{server.server_port}/"
        account = {"type": "service_account", "client_email": "litelog@example.com", "token_uri": tokens}
        yield json.dumps({**account, "private_key": key.decode()})
        server.shutdown()


def require_read(spark: Any, kind: Kind, folder: Path, *, signs: bool, **more: str) -> None:
    """A replica has the same rows with either engine. Java reads its sealed segments if the store ``signs`` URLs."""
    if reason := find_lacking(kind):
        pytest.skip(reason)
    require_columnar(spark)
    builder, log = ReplicaBuilder(), make_log([[3, 1], [2, 4]])
    generation = builder.add()
    for segment in log:
        generation.ship_segment(segment, cuts=[1])
    generation.snapshot(2)
    server = started(kind, folder)
    try:
        url, options = server.new_place()
        store = open_store(url, options)
        builder.put_into(store)
        store.close()
        given = {f"store.{name}": value for name, value in {**options, **more}.items()}
        source = spark.read.format("litelog").options(**given)
        for engine in Engine:
            frame = source.option("engine", engine).load(url)
            assert sorted(row.sequence for row in frame.collect()) == list(range(10))
            assert frame.where("sequence = 7").count() == 1
        told = run_and_count(source.option("engine", Engine.JAVA).load(url))
        assert (told["requests"] > 0, told["python"] > 0) == (signs, not signs)
    finally:
        server.end()


def test_java_reads_azure_by_signed_urls(spark: Any, tmp_path: Path) -> None:
    require_read(spark, AZURITE, tmp_path, signs=True)


def test_java_reads_googles_store_by_signed_urls_of_a_service_account(spark: Any, tmp_path: Path) -> None:
    with service_account() as account:
        (tmp_path / "account.json").write_text(account)
        require_read(spark, FAKE_GCS, tmp_path, signs=True, token=str(tmp_path / "account.json"))


def test_python_reads_googles_store_without_credentials(spark: Any, tmp_path: Path) -> None:
    """Without credentials no URL can be signed."""
    require_read(spark, FAKE_GCS, tmp_path, signs=False)
