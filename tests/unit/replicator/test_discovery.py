"""Which logs a daemon finds in folders, and which of them it can replicate at the same time."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.config import Config, FolderConfig, LogConfig, ReplicaConfig
from litelog.errors import SourceMissingError
from litelog.formats.litelog import LitelogFormat
from litelog.formats.registry import register_format
from litelog.replicator.discovery import LogFinder, choose_logs, find_logs

if TYPE_CHECKING:
    from tests.builders.manual_clock import ManualClock

SEGMENT = "00000000000000000000.log"


def make_folder(dir: Path, pattern: str = "*", url: str = "/backup", **more: object) -> FolderConfig:  # noqa: A002
    return FolderConfig(dir=str(dir), pattern=pattern, replicas=(ReplicaConfig(url=url),), **more)  # type: ignore[arg-type]


def put(*parts: str | Path) -> None:
    path = Path(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")


def test_a_folder_with_log_segments_is_a_log(tmp_path: Path, clock: ManualClock) -> None:
    put(tmp_path, "a", SEGMENT)
    put(tmp_path, "b", "notes.txt")
    (tmp_path / "c").mkdir()
    put(tmp_path, "d", "deeper", SEGMENT)
    put(tmp_path, ".e", SEGMENT)
    put(tmp_path, SEGMENT)
    (tmp_path / "f").symlink_to(tmp_path / "a")
    (tmp_path / "g" / SEGMENT).mkdir(parents=True)
    assert LogFinder(make_folder(tmp_path), clock).find() == ["a"]


def test_the_folder_of_an_influxdb_broker_is_one_entry(tmp_path: Path, clock: ManualClock) -> None:
    put(tmp_path, "1", "12")
    put(tmp_path, "1", "20")
    put(tmp_path, "312", "35")
    put(tmp_path, "7", "tombstone")
    put(tmp_path, "meta", "1")
    put(tmp_path, "raft", "1")
    put(tmp_path, "123")
    assert LogFinder(make_folder(tmp_path, format="influxdb"), clock).find() == ["1", "312"]


def test_a_topic_tree_is_one_entry(tmp_path: Path, clock: ManualClock) -> None:
    for name in ("one/a", "one/b", "two/a"):
        put(tmp_path, name, SEGMENT)
    put(tmp_path, "one", SEGMENT)
    put(tmp_path, "two/a/deeper", SEGMENT)
    assert LogFinder(make_folder(tmp_path, "*/*"), clock).find() == ["one/a", "one/b", "two/a"]
    everywhere = LogFinder(make_folder(tmp_path, recursive=True), clock).find()
    assert everywhere == ["one", "one/a", "one/b", "two/a", "two/a/deeper"]


@pytest.mark.parametrize("recursive", [False, True])
def test_logs_come_and_go(tmp_path: Path, clock: ManualClock, recursive: bool) -> None:
    finder = LogFinder(make_folder(tmp_path, "*/*", recursive=recursive), clock)
    assert finder.find() == []
    (tmp_path / "x" / "a").mkdir(parents=True)
    assert finder.find() == []
    put(tmp_path, "x/a", SEGMENT)
    assert finder.find() == ["x/a"]
    put(tmp_path, "y/b", SEGMENT)
    assert finder.find() == ["x/a", "y/b"]
    (tmp_path / "x/a" / SEGMENT).unlink()  # truncated, or about to be written again: it is the folder that counts
    assert finder.find() == ["x/a", "y/b"]
    shutil.rmtree(tmp_path / "x/a")
    assert finder.find() == ["y/b"]
    (tmp_path / "y").rename(tmp_path / "z")
    assert finder.find() == ["z/b"]


def test_unchanged_folders_are_not_listed_again(tmp_path: Path, clock: ManualClock) -> None:
    """The daemon sees a change only if it changes the folder's time."""
    put(tmp_path, "x/a", SEGMENT)
    (tmp_path / "x/b").mkdir()
    for path in (tmp_path / "x/b", tmp_path / "x", tmp_path):
        os.utime(path, ns=(10**18, 10**18))
    finder = LogFinder(make_folder(tmp_path, "*/*"), clock)
    assert finder.find() == ["x/a"]
    put(tmp_path, "x/b", SEGMENT)
    os.utime(tmp_path / "x/b", ns=(10**18, 10**18))
    assert finder.find() == ["x/a"]
    os.utime(tmp_path / "x/b", ns=(10**18 + 1, 10**18 + 1))
    assert finder.find() == ["x/a", "x/b"]


def test_a_folder_that_is_not_there_says_nothing_about_its_logs(tmp_path: Path, clock: ManualClock) -> None:
    with pytest.raises(SourceMissingError, match="no such folder"):
        LogFinder(make_folder(tmp_path / "none"), clock).find()


def test_files_of_a_pattern_make_a_log(tmp_path: Path, clock: ManualClock) -> None:
    put(tmp_path, "a", "app-1.log")
    put(tmp_path, "b", "other-1.log")
    folder = make_folder(tmp_path, format="lines", segment_pattern="app-*.log")
    assert LogFinder(folder, clock).find() == ["a"]


def test_each_log_is_found_once_and_its_own_entry_takes_precedence(tmp_path: Path, clock: ManualClock) -> None:
    for name in ("a", "b"):
        put(tmp_path, name, SEGMENT)
    config = Config(
        logs=(
            make_folder(tmp_path, url="/first"),
            make_folder(tmp_path, url="/second"),
            LogConfig(path=str(tmp_path / "b"), replicas=(ReplicaConfig(url="/own"),)),
        )
    )
    found = {log.path: [replica.url for replica in log.replicas] for log in find_logs(config, clock)}
    assert found == {str(tmp_path / "a"): ["/first/a"], str(tmp_path / "b"): ["/own"]}


@pytest.mark.parametrize(
    ("url", "clashes"),
    [
        ("/backup/a", True),
        ("file:///backup/a/", True),
        ("/backup/a/below", True),
        ("/backup", True),
        ("/backup/ab", False),
        ("s3://backup/a", False),
    ],
)
def test_a_found_log_is_refused_a_place_at_in_or_above_anothers(
    tmp_path: Path, clock: ManualClock, url: str, clashes: bool
) -> None:
    own = LogConfig(path="/elsewhere", replicas=(ReplicaConfig(url=url),))
    folder = make_folder(tmp_path, url="/backup/{name}")
    chosen, refused = choose_logs(Config(logs=(own, folder)), [(folder, ["a", "b"])], lambda _: False)
    blocked = ["a", "b"] if url == "/backup" else ["a"] if clashes else []
    assert [each.log for each in refused] == [str(tmp_path / name) for name in blocked]
    assert [log.path for log in chosen[1:]] == [str(tmp_path / name) for name in ("a", "b") if name not in blocked]


@pytest.mark.parametrize("known", ["one", "one/a"])
def test_of_a_log_within_a_log_the_one_that_is_known_stays(tmp_path: Path, known: str) -> None:
    folder = make_folder(tmp_path, recursive=True)
    chosen, refused = choose_logs(
        Config(logs=(folder,)), [(folder, ["one", "one/a", "two"])], lambda path: path == str(tmp_path / known)
    )
    other = "one/a" if known == "one" else "one"
    assert sorted(log.path for log in chosen) == sorted(str(tmp_path / name) for name in (known, "two"))
    assert [each.log for each in refused] == [str(tmp_path / other)]


@pytest.mark.slow
def test_a_name_that_no_url_can_hold_is_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    chosen, refused = choose_logs(Config(logs=(folder,)), [(folder, ["\udcff", "a"])], lambda _: False)
    assert [log.path for log in chosen] == [str(tmp_path / "a")]
    assert "not UTF-8" in refused[0].reason


class NamedFolders(LitelogFormat):
    """A format whose logs lie in folders whose names end in a number."""

    name = "named-folders"

    def is_log_folder(self, name: str) -> bool:
        return name[-1].isdigit()


def test_a_format_may_say_which_folders_are_logs(tmp_path: Path, clock: ManualClock) -> None:
    register_format(NamedFolders.name, NamedFolders)
    for name in ("x/orders-0", "x/orders-0.77-delete", "x-1/meta"):
        put(tmp_path, name, SEGMENT)
    assert LogFinder(make_folder(tmp_path, "*/*", format=NamedFolders.name), clock).find() == ["x/orders-0"]
