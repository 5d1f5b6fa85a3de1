"""A program can register its own stores and formats, in addition to those of installed packages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litelog.errors import ConfigError, UnknownSchemeError
from litelog.formats.lines import LinesFormat
from litelog.formats.raw import RawFormat
from litelog.formats.registry import format_names, open_format, register_format
from litelog.stores.registry import open_client, open_store, register_object_store, schemes
from litelog.system import entry_points
from replica_clients.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from litelog.stores.object_store import ObjectStore


@pytest.fixture(autouse=True)
def _nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_points, "_registered", {})


@pytest.mark.slow
def test_a_registered_store_opens_the_urls_of_its_scheme() -> None:
    opened: list[tuple[str, Mapping[str, object]]] = []

    def open_memory(url: str, options: Mapping[str, object]) -> ObjectStore:
        opened.append((url, options))
        return MemoryStore("mine")

    with pytest.raises(UnknownSchemeError):
        open_store("dict://a")
    register_object_store("dict", open_memory)
    assert "dict" in schemes()
    open_client("DICT://a", {"size": 1}).close()
    assert opened == [("dict://a", {"size": 1})]


def test_the_last_registration_counts() -> None:
    for name in ("first", "second"):
        register_object_store("dict", lambda _url, _options, name=name: MemoryStore(name))  # type: ignore[misc]
    assert open_store("dict://a").url == MemoryStore("second").url


@pytest.mark.parametrize("scheme", ["", "dict://", "Dict", "a b", "1a"])
def test_a_scheme_that_no_url_can_have_is_refused(scheme: str) -> None:
    with pytest.raises(ConfigError, match="is not the scheme of a URL"):
        register_object_store(scheme, lambda _url, _options: MemoryStore("m"))


@pytest.mark.slow
def test_a_name_that_a_package_provides_is_not_replaced() -> None:
    with pytest.raises(ConfigError, match=r"replica_clients\.memory:open_store provides it already"):
        register_object_store("memory", lambda _url, _options: MemoryStore("m"))
    with pytest.raises(ConfigError, match="provides it already"):
        register_format("raw", RawFormat)


@pytest.mark.slow
def test_a_registered_format_is_opened_by_its_name() -> None:
    register_format("journal", LinesFormat)
    assert "journal" in format_names()
    assert isinstance(open_format("journal", "*.txt"), LinesFormat)
    with pytest.raises(ConfigError, match="needs a name"):
        register_format("", RawFormat)
