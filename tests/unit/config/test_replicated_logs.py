"""Which logs a configuration has, by what its replicas hold."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from litelog.config.loading import make_config
from litelog.config.replicated_logs import find_replicated_logs
from litelog.errors import StoreError
from litelog.stores.registry import register_object_store
from replica_clients.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from litelog.config import Config
    from litelog.stores.object_store import ObjectInfo


def hold_replicas(folder: Path, *names: str) -> None:
    """Leave the claim of a replica at each name."""
    for name in names:
        claims = folder / name / "epochs"
        claims.mkdir(parents=True)
        (claims / "00000001.json").write_text("{}")


class DownStore(MemoryStore):
    """A store that answers nothing."""

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        raise StoreError("list", prefix, "it is down", retryable=False)


def config(entry: dict[str, object], *more: dict[str, object]) -> Config:
    return make_config("here", {"logs": [entry, *more]})


@pytest.mark.parametrize(
    ("url", "below"), [("{}", ""), ("{}/{{name}}", ""), ("file://{}/{{name}}/replica", "/replica"), ("{}/", "")]
)
def test_logs_of_a_folder_are_found_by_their_replicas(tmp_path: Path, url: str, below: str) -> None:
    hold_replicas(tmp_path, *(f"{name}{below}" for name in ("orders", "a=20b", "x/nested")))
    found = find_replicated_logs(
        config({"dir": "/logs", "replicas": [url.format(tmp_path)]}, {"path": "/own", "replicas": ["memory://own"]})
    )
    assert [log.path for log in found] == ["/own", "/logs/a b", "/logs/orders"]
    assert [log.replicas[0].url for log in found[1:]] == [
        f"{'file://' if 'file' in url else ''}{tmp_path}/{name}{below}" for name in ("a=20b", "orders")
    ]


@pytest.mark.parametrize("recursive", [False, True])
def test_the_pattern_decides_which_replicas_are_logs(tmp_path: Path, recursive: bool) -> None:
    hold_replicas(tmp_path, "app-1/a", "app-1/b", "other/a", "deep/er/app-2/c", "app-1/a/below", "shallow")
    entry = {"dir": "/logs", "pattern": "app-*/*", "recursive": recursive, "replicas": [str(tmp_path)]}
    names = [log.path.removeprefix("/logs/") for log in find_replicated_logs(config(entry))]
    assert names == ["app-1/a", "app-1/b", *(["deep/er/app-2/c"] if recursive else [])]


def test_the_replicas_of_an_entry_supplement_each_other(tmp_path: Path) -> None:
    hold_replicas(tmp_path / "one", "a", "b")
    hold_replicas(tmp_path / "two", "b", "c")
    entry = {"dir": "/logs", "replicas": [str(tmp_path / "one"), str(tmp_path / "two")]}
    found = find_replicated_logs(config(entry))
    assert [log.path for log in found] == ["/logs/a", "/logs/b", "/logs/c"]
    assert all(len(log.replicas) == 2 for log in found)


def test_a_log_with_its_own_entry_is_not_found_again(tmp_path: Path) -> None:
    hold_replicas(tmp_path, "a")
    own = {"path": "/logs/a", "replicas": ["memory://own"]}
    found = find_replicated_logs(config(own, {"dir": "/logs", "replicas": [str(tmp_path)]}))
    assert [(log.path, log.replicas[0].url) for log in found] == [("/logs/a", "memory://own")]


def test_a_destination_that_fails_is_reported_and_the_others_are_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hold_replicas(tmp_path, "a")

    register_object_store("down", lambda url, _options: DownStore(url))
    entry = {"dir": "/logs", "replicas": ["down://x", str(tmp_path)]}
    with caplog.at_level(logging.WARNING):
        assert [log.path for log in find_replicated_logs(config(entry))] == ["/logs/a"]
    assert "the logs of /logs are taken from the other replicas" in caplog.text
    with pytest.raises(StoreError, match="it is down"):
        find_replicated_logs(config({"dir": "/logs", "replicas": ["down://x"]}))
