"""The record of a log's mirrors, for truncation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litelog.log.mirror_registry import MOST_MIRRORS, KnownMirror, MirrorRegistry, MirrorRegistryError

if TYPE_CHECKING:
    from pathlib import Path


def test_it_keeps_the_newest_place_of_each_mirror(tmp_path: Path) -> None:
    registry = MirrorRegistry(str(tmp_path / "state"))
    assert registry.read() == ()
    registry.put(KnownMirror("b:/x", "0.log", 1))
    registry.put(KnownMirror("a:/x", "", 2))
    registry.put(KnownMirror("b:/x", "1.log", 3))
    again = MirrorRegistry(str(tmp_path / "state"))
    assert again.read() == (KnownMirror("a:/x", "", 2), KnownMirror("b:/x", "1.log", 3))


def test_it_keeps_the_mirrors_that_were_seen_last(tmp_path: Path) -> None:
    registry = MirrorRegistry(str(tmp_path))
    for number in range(MOST_MIRRORS + 3):
        registry.put(KnownMirror(f"m{number}", "0.log", number))
    assert [mirror.seen for mirror in registry.read()] == list(range(3, MOST_MIRRORS + 3))


def test_a_damaged_record_counts_as_none_and_a_folder_that_refuses_is_an_error(tmp_path: Path) -> None:
    registry = MirrorRegistry(str(tmp_path))
    registry.put(KnownMirror("m", "0.log", 1))
    path = tmp_path / "mirrors.json"
    path.write_bytes(path.read_bytes().replace(b"0.log", b"1.log"))
    assert registry.read() == ()
    registry.put(KnownMirror("m", "2.log", 2))
    assert registry.read() == (KnownMirror("m", "2.log", 2),)
    (tmp_path / "file").touch()
    with pytest.raises(MirrorRegistryError):
        MirrorRegistry(str(tmp_path / "file")).put(KnownMirror("m", "0.log", 1))
