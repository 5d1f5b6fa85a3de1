"""The daemon over TLS: what clients trust, a certificate that is renewed, and files that cannot be used."""

from __future__ import annotations

import shutil
import socket
import ssl
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("trustme")

import trustme

import litelog
from litelog.config.access import TlsConfig
from litelog.errors import ConfigError, StoreError
from litelog.live.reader_limits import ReaderLimits
from litelog.server import http_server
from litelog.server.tls import ServerTls
from litelog.stores.registry import open_store
from litelog_cli.daemon_client import DaemonClient, NoDaemonError
from tests.builders.server_builder import Watched

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.builders.log_builder import LogBuilder

AUTHORITY = trustme.CA()


def make_files(folder: Path, *names: str) -> TlsConfig:
    """A certificate for ``names``, and its key."""
    folder.mkdir(exist_ok=True)
    made = AUTHORITY.issue_cert(*names)
    made.private_key_pem.write_to_path(folder / "tls.key")
    (folder / "tls.crt").write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
    AUTHORITY.cert_pem.write_to_path(folder / "ca.crt")
    return TlsConfig(certificate=str(folder / "tls.crt"), key=str(folder / "tls.key"))


@contextmanager
def serving(tmp_path: Path, log: LogBuilder, **settings: Any) -> Iterator[Watched]:
    """A daemon. ``ask`` cannot be used if it speaks TLS."""
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/replica"])], {"serve": "all", **settings}) as watched:
        watched.wait_until_synced()
        yield watched


def place_of(watched: Watched) -> str:
    assert watched.service.address is not None
    return f"127.0.0.1:{watched.service.address.port}"


@pytest.mark.slow
def test_a_log_is_read_from_a_daemon_that_speaks_tls(tmp_path: Path, log: LogBuilder) -> None:
    files = make_files(tmp_path / "tls", "127.0.0.1")
    with serving(tmp_path, log, tls=files) as watched:
        options = {"ca_bundle": str(tmp_path / "tls/ca.crt")}
        replica = litelog.ReplicaConfig(url=f"https://{place_of(watched)}/logs/log", options=options)
        with litelog.open_replica(replica) as reader:
            assert [record.sequence for record in reader] == [0, 1, 2]
        own = DaemonClient(place_of(watched), None, files.certificate)
        assert own.get("/livez")["verdict"] == "running"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("speaks_tls", "scheme", "names", "said", "retryable"),
    [
        (True, "https", ["127.0.0.1"], "check its certificate, or set the option ca_bundle", False),
        (True, "http", ["127.0.0.1"], "if the daemon speaks TLS, write https://", True),
        (False, "https", ["127.0.0.1"], "does not speak TLS: write http://", False),
    ],
)
def test_an_error_of_tls_is_one_line_that_says_what_to_write(
    tmp_path: Path, log: LogBuilder, speaks_tls: bool, scheme: str, names: list[str], said: str, retryable: bool
) -> None:
    files = make_files(tmp_path / "tls", *names)
    with serving(tmp_path, log, tls=files if speaks_tls else None) as watched:
        store = open_store(f"{scheme}://{place_of(watched)}/logs/log", {})
        with pytest.raises(StoreError, match=said) as caught:
            store.open("epochs/00000001.json")
        store.close()
        assert (caught.value.retryable, "\n" in str(caught.value)) == (retryable, False)


@pytest.mark.slow
def test_a_certificate_for_another_name_is_not_trusted(tmp_path: Path, log: LogBuilder) -> None:
    files = make_files(tmp_path / "tls", "logs.example")
    with serving(tmp_path, log, tls=files) as watched:
        store = open_store(f"https://{place_of(watched)}/logs/log", {"ca_bundle": str(tmp_path / "tls/ca.crt")})
        with pytest.raises(StoreError, match=r"TLS with https://127\.0\.0\.1:[0-9]+ failed") as caught:
            store.open("epochs/00000001.json")
        store.close()
        assert not caught.value.retryable


def read_names(place: str, folder: Path) -> set[str]:
    """Shake hands with a daemon; return the names in its certificate."""
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    context.check_hostname = False
    host, _, port = place.partition(":")
    with context.wrap_socket(socket.create_connection((host, int(port)), timeout=10)) as connection:
        certificate = connection.getpeercert()
    assert certificate is not None
    return {str(name) for _, name in certificate["subjectAltName"]}  # type: ignore[misc]


@pytest.mark.slow
def test_a_renewed_certificate_is_used_at_once_and_a_damaged_one_is_not(tmp_path: Path, log: LogBuilder) -> None:
    folder = tmp_path / "tls"
    files = make_files(folder, "one.example")
    make_files(tmp_path / "next", "two.example")
    with serving(tmp_path, log, tls=files) as watched:
        assert read_names(place_of(watched), folder) == {"one.example"}
        shutil.copy(tmp_path / "next/tls.key", folder / "tls.key")
        assert read_names(place_of(watched), folder) == {"one.example"}, "the certificate is not there yet"
        shutil.copy(tmp_path / "next/tls.crt", folder / "tls.crt")
        assert read_names(place_of(watched), folder) == {"two.example"}


@pytest.mark.slow
def test_connections_that_begin_no_handshake_leave_room_for_others(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "MAX_CLIENTS", 2)
    folder = tmp_path / "tls"
    files = make_files(folder, "one.example")
    with serving(tmp_path, log, tls=files, reader_limits=ReaderLimits(1)) as watched, ExitStack() as stack:
        silent = [stack.enter_context(watched.connect()) for _ in range(5)]
        assert [connection.recv(1) for connection in silent[:2]] == [b"", b""], "the oldest make room"
        assert read_names(place_of(watched), folder) == {"one.example"}
        assert silent[2].recv(1) == b""
        silent[4].setblocking(False)
        with pytest.raises(BlockingIOError):
            silent[4].recv(1)


def test_files_that_cannot_be_used_are_refused_with_the_reason(tmp_path: Path) -> None:
    files = make_files(tmp_path / "tls", "one.example")
    make_files(tmp_path / "next", "two.example")
    missing = TlsConfig(certificate=files.certificate, key=str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match=r"tls: key .*missing: cannot be read"):
        ServerTls(missing)
    other = TlsConfig(certificate=files.certificate, key=str(tmp_path / "next/tls.key"))
    with pytest.raises(ConfigError, match="key values mismatch; both are PEM files"):
        ServerTls(other)
    swapped = TlsConfig(certificate=files.key, key=files.certificate)
    with pytest.raises(ConfigError, match="cannot be used"):
        ServerTls(swapped)


@pytest.mark.slow
def test_a_command_without_the_daemons_certificate_says_so(tmp_path: Path, log: LogBuilder) -> None:
    files = make_files(tmp_path / "tls", "127.0.0.1")
    other = make_files(tmp_path / "other", "127.0.0.1")
    with serving(tmp_path, log, tls=files) as watched:
        for certificate, said in (
            (other.certificate, "does not speak TLS with the configured certificate"),
            (None, "does not answer: .*; if it speaks TLS, name its configuration with --config"),
        ):
            with pytest.raises(NoDaemonError, match=said) as caught:
                DaemonClient(place_of(watched), None, certificate).get("/status")
            assert "\n" not in str(caught.value)
