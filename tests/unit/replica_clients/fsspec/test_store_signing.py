"""Signed URLs of stores of fsspec: where the file system makes them, plain HTTP reads an object."""

from __future__ import annotations

import pytest

pytest.importorskip("fsspec")

from fsspec.implementations.memory import MemoryFileSystem

from replica_clients.fsspec import FsspecStore, open_store


class SigningFileSystem(MemoryFileSystem):
    """A file system that makes URLs, as those of clouds do, unless its credentials cannot sign."""

    protocol = "signs"
    cachable = False

    def __init__(self, *, unable: bool) -> None:
        super().__init__()
        self.unable = unable

    def sign(self, path: str, expiration: int = 100, **_: object) -> str:
        if self.unable:
            raise ValueError("Either user_delegation_key or account_key must be provided.")
        return f"https://host{path}?seconds={expiration}"


@pytest.fixture(autouse=True)
def plain_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def opened(*, unable: bool = False) -> FsspecStore:
    return FsspecStore("signs://x", "/bucket/log", SigningFileSystem, lambda: SigningFileSystem(unable=unable))


def test_the_file_system_signs_the_path_of_the_object() -> None:
    assert opened().sign("a/b", 60) == "https://host/bucket/log/a/b?seconds=60"


def test_credentials_that_cannot_sign_give_none() -> None:
    assert opened(unable=True).sign("a", 60) is None


def test_a_file_system_without_urls_gives_none() -> None:
    assert open_store("memory://signing", {}).sign("a", 60) is None


@pytest.mark.parametrize("variable", ["https_proxy", "all_proxy", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"])
def test_there_is_none_where_a_get_needs_settings(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    assert opened().sign("a", 60) is None


def test_a_host_without_proxy_is_reached_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "host")
    assert opened().sign("a", 60) is not None


def test_an_invalid_key_is_refused() -> None:
    with pytest.raises(ValueError, match="key"):
        opened().sign("../a", 60)
