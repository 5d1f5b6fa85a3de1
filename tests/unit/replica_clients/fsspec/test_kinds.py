"""The options of a scheme choose its fsspec class, and no class hides failed requests by retries.

The tests use the packages (gcsfs, adlfs, paramiko, sshfs) if they are installed, and stand-ins everywhere.
"""

from __future__ import annotations

import functools
import socket
import sys
import types
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("fsspec")

import fsspec
from fsspec.asyn import AsyncFileSystem

from litelog.errors import ConfigError, StoreError
from replica_clients.fsspec import FsspecStore, open_store
from replica_clients.fsspec.connections import is_shared
from replica_clients.fsspec.kinds import LARGER_GCSFS, end_retries, find_kind
from tests.builders.servers import Answer, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable

REGISTERED = sys.modules["fsspec.registry"]._registry  # type: ignore[attr-defined]
"""fsspec's classes by scheme: those that it found, and those that packages registered."""


class PlainSftp(fsspec.AbstractFileSystem):
    """A stand-in for fsspec's own class, which passes unknown options to paramiko."""

    protocol = ("sftp", "ssh")

    def __init__(self, host: str, **ssh_kwargs: object) -> None: ...


class OtherSftp(AsyncFileSystem):
    """A stand-in for the class of the package sshfs."""

    protocol = ("sftp", "ssh")

    def __init__(self, host: str, *, sftp_client_kwargs: object = None, **kwargs: object) -> None: ...


class SSHClient:
    def connect(
        self, hostname: str, port: int = 22, username: str = "", password: str = "", key_filename: str = ""
    ) -> None: ...


class SSHClientConnectionOptions:
    def prepare(self, host: str = "", username: str = "", password: str = "", client_keys: object = ()) -> None: ...


@pytest.fixture
def both_sftps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sshfs and paramiko are installed, and sshfs has registered the schemes."""
    PlainSftp.__module__, OtherSftp.__module__ = "fsspec.implementations.sftp", "sshfs.spec"
    for name, content in {
        "paramiko": {"SSHClient": SSHClient},
        "asyncssh": {"SSHClientConnectionOptions": SSHClientConnectionOptions},
        "fsspec.implementations.sftp": {"SFTPFileSystem": PlainSftp},
    }.items():
        module = types.ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(REGISTERED, "sftp", OtherSftp)


@pytest.mark.usefixtures("both_sftps")
@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, PlainSftp),
        ({"username": "me", "key_filename": "/key"}, PlainSftp),
        ({"username": "me", "client_keys": ["/key"]}, OtherSftp),
        ({"sftp_client_kwargs": {}}, OtherSftp),
    ],
)
def test_sftp_is_served_by_the_class_that_takes_the_options(options: dict[str, object], kind: type) -> None:
    assert find_kind("sftp", {"host": "host", **options}) is kind


@pytest.mark.parametrize("kind", [PlainSftp, OtherSftp])
def test_each_thread_has_its_sftp_connection_and_reconnects_after_a_failure(kind: type) -> None:
    """sshfs would serve all threads with one connection, and never reconnects."""
    assert not is_shared(kind)


@pytest.mark.usefixtures("both_sftps")
def test_the_error_for_an_unknown_option_names_both_classes_and_their_options() -> None:
    with pytest.raises(ConfigError) as caught:
        find_kind("sftp", {"host": "host", "key_file": "/key"})
    assert str(caught.value) == (
        "sftp://: fsspec.implementations.sftp.PlainSftp has no option key-file "
        "(paramiko's are username, password, key-filename, passphrase, ...); "
        "sshfs.spec.OtherSftp has no option key-file "
        "(asyncssh's are username, password, client-keys, known-hosts, passphrase, ...)"
    )


@pytest.mark.parametrize("options", [{"username": "u", "key-filename": "/k"}, {"username": "u", "client-keys": ["/k"]}])
def test_both_ways_to_name_a_key_are_taken_where_both_packages_are(options: dict[str, object]) -> None:
    pytest.importorskip("paramiko")
    pytest.importorskip("sshfs")
    assert isinstance(open_store("sftp://host/x", options), FsspecStore)


def test_a_request_of_gcsfs_is_attempted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request calls the function inside the decorator directly."""

    def six_times(attempt: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(attempt)
        def call(*arguments: object) -> object:
            return [attempt(*arguments) for _ in range(6)]

        return call

    class GCSFileSystem(fsspec.AbstractFileSystem):
        protocol = ("gs", "gcs")

        @six_times
        def _request(self) -> str:
            return "answer"

    class ExtendedGcsFileSystem(GCSFileSystem):
        """A subclass that asks for the bucket's kind first."""

    module: Any = types.ModuleType("gcsfs.core")
    module.GCSFileSystem = GCSFileSystem
    monkeypatch.setitem(sys.modules, "gcsfs", types.ModuleType("gcsfs"))
    monkeypatch.setitem(sys.modules, "gcsfs.core", module)
    monkeypatch.setitem(REGISTERED, "gs", ExtendedGcsFileSystem)
    monkeypatch.delenv(LARGER_GCSFS, raising=False)
    kind = find_kind("gs", {})
    assert kind()._request() == "answer"
    assert not issubclass(kind, ExtendedGcsFileSystem)
    monkeypatch.setenv(LARGER_GCSFS, "true")
    larger = find_kind("gs", {})
    assert larger()._request() == "answer"
    assert issubclass(larger, ExtendedGcsFileSystem)


def test_retries_of_azures_client_are_set_to_none() -> None:
    policy = types.SimpleNamespace(total_retries=3, connect_retries=3, read_retries=3, status_retries=3)
    config = types.SimpleNamespace(retry_policy=policy)
    end_retries(types.SimpleNamespace(service_client=types.SimpleNamespace(_config=config)))
    assert set(vars(policy).values()) == {0}
    end_retries(types.SimpleNamespace())  # another file system


def gs(endpoint: str) -> FsspecStore:
    pytest.importorskip("gcsfs")
    return open_store("gs://bucket/p", {"token": "anon", "endpoint-url": endpoint})


def az(endpoint: str) -> FsspecStore:
    pytest.importorskip("adlfs")
    key = "c2VjcmV0LWtleS1vZi10aGUtdGVzdHM="
    return open_store(
        "az://bucket/p",
        {"connection-string": f"AccountName=me;AccountKey={key};BlobEndpoint={endpoint}/me"},
    )


@pytest.mark.parametrize("open_at", [gs, az])
@pytest.mark.parametrize(
    "request_",
    [
        lambda store: store.put("key", [b"x"]),
        lambda store: store.open("key").read(),
        lambda store: list(store.list("epochs/")),
    ],
    ids=["put", "open", "list"],
)
def test_a_server_that_fails_is_asked_once(
    open_at: Callable[[str], FsspecStore], request_: Callable[[FsspecStore], object], capfd: pytest.CaptureFixture[str]
) -> None:
    """The server answers each request with 503. By default the SDKs would try again for more than a minute."""
    with ScriptedServer(lambda _: Answer(503, b"busy")) as server:
        store = open_at(server.endpoint)
        with pytest.raises(StoreError) as caught:
            request_(store)
        store.close()
        asked = [(request.method, request.path) for request in server.requests]
        assert len(asked) == len(set(asked)), "a request was sent twice"
    assert caught.value.retryable
    assert "Traceback" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("open_at", [gs, az])
def test_an_unreachable_server_is_reported_at_once_in_one_line(
    open_at: Callable[[str], FsspecStore], capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
    store = open_at(endpoint)
    with pytest.raises(StoreError, match="put key") as caught:
        store.put("key", [b"x"])
    assert caught.value.retryable
    assert "\n" not in str(caught.value)
    assert "Traceback" not in "".join(capfd.readouterr())
