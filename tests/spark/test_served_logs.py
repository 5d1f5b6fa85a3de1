"""Spark reads a log from the daemon that serves it: over TLS, with a token that reads only this log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("trustme")

import trustme

from litelog.config.access import TlsConfig, TokenConfig
from tests.builders.log_builder import make_log
from tests.builders.server_builder import Watched

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "token-of-a-reader-of-one-log-0123456789"


def test_a_served_log_is_loaded_over_https(spark: Any, tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    log.roll(3)
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    made.private_key_pem.write_to_path(tmp_path / "tls.key")
    (tmp_path / "tls.crt").write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    settings = {
        "serve": "all",
        "tokens": (TokenConfig(file=str(tmp_path / "token"), rights=("read",), logs=("log",)),),
        "tls": TlsConfig(certificate=str(tmp_path / "tls.crt"), key=str(tmp_path / "tls.key")),
    }
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/replica"])], settings) as watched:
        watched.wait_until_synced()
        reader = (
            spark.read.format("litelog")
            .option("store.token", TOKEN)
            .option("store.ca_bundle", str(tmp_path / "ca.crt"))
        )
        rows = reader.load(f"https://{watched.service.address}/logs/log").orderBy("sequence").collect()
    assert [(row.sequence, bytes(row.value)) for row in rows] == [
        (number, f"r{number}".ljust(10, ".").encode()) for number in range(3)
    ]
