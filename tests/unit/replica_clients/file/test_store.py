"""The file store, beyond the conformance suite: folders, leftovers, when folders are made, permissions."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import weakref
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.errors import ConfigError, ExistsError, NotFoundError, StoreError
from litelog.stores.object_store import ByteRange
from replica_clients.conformance.checks import listed, read
from replica_clients.file import FileStore
from replica_clients.file.folders import MAX_KNOWN_FOLDERS, DurableFolders
from replica_clients.file.store import FOLDER_ATTEMPTS, HELD_BYTES, TEMPORARY
from replica_clients.memory import MemoryStore
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(str(tmp_path / "root"))


parts = st.text(st.sampled_from("ab./-0"), min_size=1, max_size=6)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(st.sets(parts, max_size=12), parts | st.just(""), parts | st.none())
def test_a_listing_is_the_memory_stores(
    tmp_path_factory: pytest.TempPathFactory, keys: set[str], prefix: str, start_after: str | None
) -> None:
    files, memory = FileStore(str(tmp_path_factory.mktemp("root"))), MemoryStore()
    for key in sorted(keys):
        try:
            files.put(key, [key.encode()])
        except (ValueError, StoreError):
            continue  # not a key, or below or above another object
        memory.put(key, [key.encode()])
    try:
        wanted = list(memory.list(prefix, start_after))
    except ValueError:
        with pytest.raises(ValueError, match="key"):
            files.list(prefix, start_after)
        return
    assert list(files.list(prefix, start_after)) == wanted


def test_folders_before_the_start_of_a_listing_are_not_read(store: FileStore) -> None:
    for index in range(5):
        store.put(f"wal/{index}/0", [b"x"])
    read_folders: list[str] = []
    watching = [True]

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event == "os.scandir":
            read_folders.append(os.path.relpath(str(arguments[0]), store.root))

    sys.addaudithook(watch)
    try:
        assert listed(store, "wal/", "wal/3") == ["wal/3/0", "wal/4/0"]
        assert read_folders == ["wal", "wal/3", "wal/4"]
        read_folders.clear()
        assert [info.key for info in islice(store.list("wal/"), 1)] == ["wal/0/0"]
        assert read_folders == ["wal", "wal/0"]
        read_folders.clear()
        assert listed(store, "wal/2/") == ["wal/2/0"]
        assert read_folders == ["wal/2"]
    finally:
        watching.clear()


def test_objects_that_vanish_during_a_listing_are_skipped(store: FileStore) -> None:
    for key in ("a/1", "a/2", "b/1", "c/1"):
        store.put(key, [b"x"])
    listing = store.list("")
    assert next(listing).key == "a/1"
    FileStore(store.root).delete(["a/2", "b/1"])
    assert [info.key for info in listing] == ["c/1"]


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_listing_during_which_the_root_went_away_is_an_error(tmp_path: Path, comes_back: bool) -> None:
    root = tmp_path / "root"
    store = FileStore(str(root))
    for key in ("a/1", "b/1", "c/1"):
        store.put(key, [b""])
    listing = store.list("")
    assert next(listing).key == "a/1"
    root.rename(tmp_path / "away")
    root.mkdir()
    assert listed(store) == []
    if comes_back:
        root.rmdir()
        (tmp_path / "away").rename(root)
        assert [info.key for info in listing] == ["b/1", "c/1"]
    else:
        with pytest.raises(StoreError, match="unmounted, or replaced, during the listing"):
            list(listing)


def test_list_omits_temporary_files_and_all_but_regular_files(store: FileStore, tmp_path: Path) -> None:
    store.put("a/1", [b"x"])
    folder = tmp_path / "root" / "a"
    (folder / f"{TEMPORARY}1-2-3.tmp").write_bytes(b"half")
    (folder / "empty").mkdir()
    (folder / "loop").symlink_to("..")
    os.mkfifo(folder / "pipe")
    (tmp_path / "root" / os.fsdecode(b"caf\xe9")).write_bytes(b"not UTF-8")
    assert listed(store) == ["a/1"]
    for key in ("a/empty", "a/loop"):
        with pytest.raises(NotFoundError):
            store.open(key)


@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFSOCK])
def test_a_special_file_in_an_objects_place_is_refused_and_not_waited_for(store: FileStore, kind: int) -> None:
    store.put("a/1", [b"x"])
    os.mknod(f"{store.root}/a/other", kind | 0o600)
    with pytest.raises(StoreError, match=r"open a/other: .*: is a (named pipe|socket), not a regular file") as caught:
        store.open("a/other")
    assert not caught.value.retryable
    assert listed(store) == ["a/1"]
    with pytest.raises(ExistsError):
        store.put("a/other", [b"x"])


def test_a_temporary_name_is_not_a_key(store: FileStore) -> None:
    for key in (f"{TEMPORARY}x", f"a/{TEMPORARY}x", f"{TEMPORARY}x/a"):
        for call in (lambda key=key: store.put(key, [b"x"]), lambda key=key: store.open(key)):
            with pytest.raises(ValueError, match=TEMPORARY):
                call()


def test_emptied_folders_go_and_the_root_stays(store: FileStore) -> None:
    store.put("a/b/c", [b"x"])
    store.put("a/d", [b"x"])
    store.delete(["a/b/c"])
    assert os.listdir(store.root + "/a") == ["d"]
    store.delete(["a/d"])
    assert os.listdir(store.root) == []


def tree(folder: Path) -> list[str]:
    """All files and folders in a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("unnamed", [True, False])
def test_only_the_first_put_makes_the_root(tmp_path: Path, unnamed: bool) -> None:
    store = FileStore(str(tmp_path / "above" / "root"), unnamed=unnamed)
    store.put("a/b/1", [b"x"])
    (tmp_path / "above").rename(tmp_path / "moved")
    for _ in range(2):
        with pytest.raises(StoreError, match=r"put a/b/2: .*/above/root: .* is it mounted\?") as refused:
            store.put("a/b/2", [b"y"], create_only=unnamed)
        assert refused.value.retryable
        with pytest.raises(StoreError, match="is it mounted"):
            store.delete(["a/b/1"])
    assert os.listdir(tmp_path) == ["moved"]
    (tmp_path / "moved").rename(tmp_path / "above")
    store.put("a/b/2", [b"y"])
    assert listed(store) == ["a/b/1", "a/b/2"]


@pytest.mark.parametrize("unnamed", [True, False])
def test_nothing_is_made_in_another_folder_in_the_roots_place(tmp_path: Path, unnamed: bool) -> None:
    store = FileStore(str(tmp_path / "root"), unnamed=unnamed)
    store.put("a/b/1", [b"x"])
    (tmp_path / "root").rename(tmp_path / "moved")
    (tmp_path / "root").mkdir()
    for key in ("a/b/2", "c"):
        with pytest.raises(StoreError, match="is the right one mounted"):
            store.put(key, [b"y"], create_only=unnamed)
    assert tree(tmp_path / "root") == []


def test_a_root_that_came_back_as_another_is_written_to_once_it_is_kept_to(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path / "root"))
    store.put("a/1", [b"x"])
    shutil.copytree(tmp_path / "root", tmp_path / "copy")
    (tmp_path / "root").rename(tmp_path / "moved")
    (tmp_path / "copy").rename(tmp_path / "root")
    with pytest.raises(StoreError, match="is the right one mounted"):
        store.put("a/2", [b"y"])
    store.keep_to_root(store.look_at_root(), "a/1")
    store.put("a/2", [b"y"])
    store.put("b/c/1", [b"y"])
    assert listed(store) == ["a/1", "a/2", "b/c/1"]


def test_a_root_that_changes_while_it_is_proved_is_not_kept_to(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path / "root"))
    store.put("a/1", [b"x"])
    seen = store.look_at_root()
    shutil.copytree(tmp_path / "root", tmp_path / "copy")
    (tmp_path / "root").rename(tmp_path / "moved")
    (tmp_path / "copy").rename(tmp_path / "root")
    store.keep_to_root(seen, "a/1")
    with pytest.raises(StoreError, match="is the right one mounted"):
        store.put("a/2", [b"y"])


def test_an_emptied_or_missing_root_refuses_puts(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path / "root"))
    store.put("a/1", [b"x"])
    store.keep_to_root(store.look_at_root(), "a/1")
    shutil.rmtree(tmp_path / "root" / "a")
    with pytest.raises(StoreError, match="holds no a/1 any more"):
        store.put("a/2", [b"y"])
    assert tree(tmp_path / "root") == []
    (tmp_path / "root").rmdir()
    assert store.look_at_root() is None
    store.keep_to_root(None, "a/1")
    with pytest.raises(StoreError, match="is it mounted"):
        store.put("a/1", [b"x"])
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root mounts file systems")
def test_a_root_below_a_mount_point_refuses_puts_until_the_right_one_is_mounted(tmp_path: Path) -> None:
    place = tmp_path / "mnt"
    place.mkdir()

    def mount() -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=True, capture_output=True)

    try:
        mount()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting is not allowed here")
    store = FileStore(str(place / "root"))
    try:
        store.put("a/1", [b"x"])
        store.keep_to_root(store.look_at_root(), "a/1")
        subprocess.run(["umount", place], check=True)  # no descriptor keeps it busy
        with pytest.raises(StoreError, match="is it mounted"):
            store.put("a/2", [b"y"])
        assert tree(place) == []
        mount()
        with pytest.raises(StoreError, match="is it mounted"):
            store.put("a/2", [b"y"])
        (place / "root").mkdir()  # a tmpfs gives it the inode number of the folder before
        with pytest.raises(StoreError, match="mounted"):
            store.put("a/2", [b"y"])
        assert tree(place / "root") == []
        FileStore(str(place / "root")).put("a/1", [b"of another replica"])
        with pytest.raises(StoreError, match="is the right one mounted"):
            store.put("a/2", [b"y"])
        assert tree(place / "root") == ["a", "a/1"]
    finally:
        subprocess.run(["umount", place], check=False, capture_output=True)


class VanishingFolders:
    """Returns folders, and removes the first ones at once."""

    def __init__(self, root: str, times: int) -> None:
        self._inner = DurableFolders(root)
        self._root = root
        self.times = times

    def look(self) -> None:
        return None

    def open(self, folder: str) -> int:
        descriptor = self._inner.open(folder)
        if self.times:
            self.times -= 1
            os.rmdir(os.path.join(self._root, folder))
        return descriptor


@pytest.mark.parametrize("create_only", [True, False])
@pytest.mark.parametrize("unnamed", [True, False])
def test_a_put_whose_folder_is_removed_meanwhile_succeeds(tmp_path: Path, unnamed: bool, create_only: bool) -> None:
    store = FileStore(str(tmp_path), unnamed=unnamed)
    store._folders = VanishingFolders(store.root, FOLDER_ATTEMPTS - 1)  # type: ignore[assignment]
    store.put("a/b/1", [b"x"], create_only=create_only)
    assert listed(FileStore(store.root)) == ["a/b/1"]


@pytest.mark.parametrize("unnamed", [True, False])
def test_a_folder_that_never_stays_is_an_error(tmp_path: Path, unnamed: bool) -> None:
    store = FileStore(str(tmp_path), unnamed=unnamed)
    store._folders = VanishingFolders(store.root, 1000)  # type: ignore[assignment]
    with pytest.raises(StoreError, match="keeps removing its folder"):
        store.put("a/b/1", [b"x"])
    assert listed(store) == []


def test_more_folders_than_are_remembered_are_still_found(store: FileStore) -> None:
    store._folders._known.update(f"other/{number}" for number in range(MAX_KNOWN_FOLDERS + 1))
    store.put("a/b", [b"x"])
    assert len(store._folders._known) < 5
    assert listed(store) == ["a/b"]


def test_a_file_in_the_place_of_a_folder_is_named(store: FileStore) -> None:
    store.put("a", [b"x"])
    with pytest.raises(StoreError, match="where a folder should be"):
        store.put("a/b", [b"x"])
    with pytest.raises(NotFoundError):
        store.open("a/b")


def test_a_reader_takes_ranges_by_readinto_too(store: FileStore) -> None:
    store.put("key", [bytes(range(200))])
    with store.open("key", ByteRange(50, 100)) as stream:
        buffer = bytearray(60)
        assert stream.readinto(buffer) == 60  # type: ignore[attr-defined]
        assert stream.readinto(buffer) == 40  # type: ignore[attr-defined]
        assert stream.readinto(buffer) == 0  # type: ignore[attr-defined]
        assert buffer[:40] == bytes(range(110, 150))


def test_a_file_that_shrinks_under_its_reader_is_an_error(store: FileStore) -> None:
    store.put("key", [bytes(100)])
    with closing(store.open("key")) as stream:
        assert len(stream.read(10)) == 10
        os.truncate(f"{store.root}/key", 50)
        with pytest.raises(OSError, match="file ends at byte 50, 50 bytes early"):
            stream.read()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are counted in /proc")
def test_no_descriptor_is_left_open(store: FileStore) -> None:
    before = open_descriptors()
    for number in range(5):
        store.put(f"a/{number}", [b"x"])
        with pytest.raises(StoreError):
            store.put(f"a/{number}", [b"x"])
        read(store, f"a/{number}")
        with pytest.raises(NotFoundError):
            store.open("a")
    listed(store)
    store.delete(["a/0"])
    assert open_descriptors() == before


@pytest.fixture
def as_nobody() -> Iterator[None]:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody without rights")
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_missing_rights_are_named(tmp_path: Path, as_nobody: None) -> None:
    assert as_nobody is None
    with pytest.raises(StoreError, match="the right to read and write") as refused:
        FileStore(str(tmp_path / "root")).put("a/b", [b"x"])
    assert not refused.value.retryable  # a reader of a replica does not wait for them


@pytest.mark.parametrize(
    ("code", "passes"), [(errno.EACCES, False), (errno.EROFS, False), (errno.ENOSPC, True), (errno.EIO, True)]
)
def test_errors_that_need_a_person_are_not_retryable(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, code: int, passes: bool
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(StoreError) as refused:
        listed(store)
    assert refused.value.retryable is passes


@pytest.mark.parametrize("root", ["", "a\0b"])
def test_a_root_that_is_not_a_path_is_refused(root: str) -> None:
    with pytest.raises(ConfigError):
        FileStore(root)


@pytest.mark.slow
def test_a_generated_body_is_not_kept_in_memory(store: FileStore) -> None:
    alive = most = 0

    def forget() -> None:
        nonlocal alive
        alive -= 1

    class Piece(bytearray):
        """A piece whose living copies a test can count."""

    class Made:
        def __iter__(self) -> Iterator[Piece]:
            nonlocal alive, most
            for number in range(40):
                piece = Piece(bytes([number]) * (1 << 20))
                weakref.finalize(piece, forget)
                alive += 1
                most = max(most, alive)
                yield piece
                del piece

    store.put("large", Made())
    with store.open("large") as stream:
        assert all(stream.read(1 << 20) == bytes([number]) * (1 << 20) for number in range(40))
        assert stream.read(1) == b""
    assert most <= HELD_BYTES // (1 << 20) + 1
    assert alive == 0
