"""Restores into folders that other users may write to: a restore does not use planted files, and does not wait for
planted pipes."""

from __future__ import annotations

import json
import logging
import os
import stat
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from litelog.codec.checksum import crc32c
from litelog.restore.execution import restore
from litelog.restore.history_plan import Target, find_plan
from litelog.restore.journal import (
    JOURNAL_NAME,
    Journal,
    ResumedWalSegments,
    VerifiedBytes,
    VerifiedWal,
    encode_line,
    read_journal,
)
from litelog.restore.output import ForeignOutputError, OutputError, OutputFolder
from tests.builders.replica_builder import FORMAT, ReplicaBuilder, make_log
from tests.builders.restoring import files_in
from tests.builders.users import run_where_files_belong_to
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOG = make_log([[2, 1], [1, 3]])
EXPECTED = {segment.name: segment.data for segment in LOG}
TEMPORARY = ".out.litelog-restoring"
STRANGER = 12345
"""Another user's id."""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


@pytest.fixture
def builder() -> ReplicaBuilder:
    builder = ReplicaBuilder()
    built = builder.add()
    for segment in LOG:
        built.ship_segment(segment)
    return builder


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that all users may write to, like /tmp."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o1777)
        yield Path(folder)


def restore_to(builder: ReplicaBuilder, output: Path, **options: Any) -> None:
    """Restore, and fail if the restore waits for a named pipe."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            plan = find_plan(builder.client, Target(), FORMAT)
            restore(builder.client, plan, str(output), log_format=FORMAT, **options)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive(), "it waits for a named pipe"
    if failures:
        raise failures[0]


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@as_root
def test_another_users_temporary_folder_is_refused_and_left_as_it_is(builder: ReplicaBuilder, shared: Path) -> None:
    planted = shared / TEMPORARY
    planted.mkdir()
    planted.chmod(0o777)
    (planted / LOG[0].name).write_bytes(b"planted")
    os.chown(planted, STRANGER, STRANGER)
    whose = rf"{planted}: belongs to user {STRANGER}, and not to the user that restores \(0\)"
    with pytest.raises(ForeignOutputError, match=f"{whose}: remove it, or choose another -o"):
        restore_to(builder, shared / "out")
    assert files_in(planted) == {LOG[0].name: b"planted"}
    assert stat.S_IMODE(planted.stat().st_mode) == 0o777
    assert not (shared / "out").exists()


@pytest.mark.parametrize("kind", ["pipe", "file", "link", "dangling"])
def test_a_file_pipe_or_link_under_the_temporary_name_is_refused(
    builder: ReplicaBuilder, shared: Path, kind: str
) -> None:
    planted, victim = shared / TEMPORARY, shared / "victim"
    if kind == "pipe":
        os.mkfifo(planted)
    elif kind == "file":
        planted.write_bytes(b"")
    else:
        if kind == "link":
            victim.mkdir()
        planted.symlink_to(victim)
    with pytest.raises(OutputError, match=f"{TEMPORARY}: is not a folder: remove it, or choose another -o"):
        restore_to(builder, shared / "out")
    assert not victim.exists() or files_in(victim) == {}


def test_a_folder_that_others_could_have_written_to_is_not_used(
    builder: ReplicaBuilder, shared: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left = shared / TEMPORARY
    left.mkdir()
    left.chmod(0o777)
    name, digest = LOG[0].name, "0" * 64
    (left / name).write_bytes(b"planted")
    (left / JOURNAL_NAME).write_bytes(encode_line(VerifiedBytes(name, digest, 0, 7)))
    (left / "folder").mkdir()
    os.mkfifo(left / "pipe")
    restore_to(builder, shared / "out")
    assert files_in(shared / "out") == EXPECTED
    assert f"{left}: others could write to what an earlier restore left: it is not used" in caplog.text


@pytest.mark.parametrize(("mode", "kept"), [(0o700, True), (0o755, True), (0o775, False), (0o707, False)])
def test_a_leftover_folder_counts_only_if_no_other_user_could_write(tmp_path: Path, mode: int, kept: bool) -> None:
    left, line = tmp_path / TEMPORARY, VerifiedBytes("a.log", "0" * 64, 0, 7)
    left.mkdir()
    left.chmod(mode)
    (left / "a.log").write_bytes(b"planted")
    (left / JOURNAL_NAME).write_bytes(encode_line(line))
    with OutputFolder(str(tmp_path / "out")) as folder:
        assert folder.journal.holds(line) == kept
        assert (left / "a.log").exists() == kept
        assert stat.S_IMODE(left.stat().st_mode) == 0o700


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077])
def test_the_output_has_the_mode_of_a_new_folder_and_was_private_until_then(
    builder: ReplicaBuilder, tmp_path: Path, mask: int, caplog: pytest.LogCaptureFixture
) -> None:
    seen: set[int] = set()

    def look(_: object) -> None:
        seen.add(stat.S_IMODE((tmp_path / TEMPORARY).stat().st_mode))

    with umask(mask):
        restore_to(builder, tmp_path / "out", progress=look)
    assert seen == {0o700}
    assert not [record for record in caplog.records if getattr(record, "event", "") == "not-resumed"]
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o777 & ~mask
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out").iterdir()} == {0o666 & ~mask}
    assert files_in(tmp_path / "out") == EXPECTED


def test_the_output_has_the_group_that_its_parent_passes_on(builder: ReplicaBuilder, tmp_path: Path) -> None:
    tmp_path.chmod(0o2755)
    restore_to(builder, tmp_path / "out")
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) & 0o7777 == 0o2755


def test_a_folder_that_replaced_the_temporary_one_is_not_published(builder: ReplicaBuilder, tmp_path: Path) -> None:
    def swap(_: object) -> None:
        if not (tmp_path / "aside").exists():
            os.rename(tmp_path / TEMPORARY, tmp_path / "aside")
            (tmp_path / TEMPORARY).mkdir()
            (tmp_path / TEMPORARY / "planted").write_bytes(b"planted")

    with pytest.raises(ForeignOutputError, match="was replaced while the restore wrote to it"):
        restore_to(builder, tmp_path / "out", progress=swap)
    assert not (tmp_path / "out").exists()
    assert files_in(tmp_path / TEMPORARY) == {"planted": b"planted"}


def test_an_output_that_is_swapped_as_it_is_published_is_reported(tmp_path: Path) -> None:
    folder = OutputFolder(str(tmp_path / "out"))
    rename = os.rename

    def rename_and_swap(source: str, target: str, **_: object) -> None:
        rename(source, target)
        rename(target, tmp_path / "aside")
        os.mkdir(target)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "rename", rename_and_swap)
        with pytest.raises(ForeignOutputError, match="is not what was restored: another user replaced it"), folder:
            folder.publish()


def test_only_the_replaced_copy_is_removed_even_if_the_temporary_name_was_swapped(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "mine").write_bytes(b"mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_bytes(b"old")
    with OutputFolder(str(tmp_path / "out"), replace=True) as folder:
        os.close(folder.create("new"))
        remove = folder._remove_old

        def swap(old: int) -> None:
            os.rename(tmp_path / TEMPORARY, tmp_path / "aside")
            (tmp_path / TEMPORARY).symlink_to(victim)
            remove(old)

        folder._remove_old = swap  # type: ignore[method-assign]
        folder.publish()
    assert files_in(victim) == {"mine": b"mine"}
    assert files_in(tmp_path / "aside") == {}
    assert list(files_in(tmp_path / "out")) == ["new"]


@as_root
def test_a_restore_by_a_user_that_the_file_system_calls_another_one_continues(
    builder: ReplicaBuilder, shared: Path
) -> None:
    """As root on NFS, whose files belong to another user. Also after a kill."""
    shared.chmod(0o777)

    def open_twice() -> None:
        for _ in range(2):
            with OutputFolder(str(shared / "out")) as folder:
                os.close(folder.create("file"))
                folder._discard = lambda: None  # type: ignore[method-assign]
        assert (shared / TEMPORARY).stat().st_uid == STRANGER

    run_where_files_belong_to(STRANGER, open_twice)


@pytest.mark.parametrize("leftover", [".litelog-probe", ".litelog-exchange-1"])
@pytest.mark.parametrize("make", [os.mkdir, lambda path: Path(path).touch()])
def test_leftovers_of_a_probe_that_was_killed_are_removed(
    builder: ReplicaBuilder, tmp_path: Path, leftover: str, make: Callable[[Path], None]
) -> None:
    (tmp_path / TEMPORARY).mkdir(mode=0o700)
    make(tmp_path / TEMPORARY / leftover)
    restore_to(builder, tmp_path / "out")
    assert files_in(tmp_path / "out") == EXPECTED


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """The temporary folder of a restore that was killed."""
    (tmp_path / TEMPORARY).mkdir(mode=0o700)
    return tmp_path / TEMPORARY


@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFDIR, stat.S_IFLNK])
def test_anything_but_a_file_in_the_journals_place_is_not_a_journal(
    builder: ReplicaBuilder, left: Path, kind: int, caplog: pytest.LogCaptureFixture
) -> None:
    place = left / JOURNAL_NAME
    if kind == stat.S_IFDIR:
        place.mkdir()
    elif kind == stat.S_IFLNK:
        place.symlink_to("/etc/passwd")
    else:
        os.mknod(place, kind | 0o600)
    restore_to(builder, left.parent / "out")
    assert files_in(left.parent / "out") == EXPECTED
    assert "the journal of an earlier restore cannot be used (is a" in caplog.text


VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1 << 70,
    1.5,
    "",
    "x",
    "../x",
    "\ud800",
    "wal",
    [],
    ["x"],
    {},
    {"x": []},
    "z" * 64,
]
GOOD: list[list[Any]] = [list(VerifiedBytes("a.log", "0" * 64, 0, 7)), list(VerifiedWal("k", "a.log", "0" * 64, "{}"))]
LINES = [
    *VALUES,
    *([*good[:at], value, *good[at + 1 :]] for good in GOOD for at in range(len(good)) for value in VALUES),
    *(good[:count] for good in GOOD for count in range(len(good))),
    *([*good, "more"] for good in GOOD),
    dict(enumerate(GOOD[0])),
]


def line_of(text: bytes) -> bytes:
    return b"%08x %s\n" % (crc32c(text), text)


@pytest.mark.slow
def test_a_journal_line_of_any_shape_is_read_or_ends_the_journal(left: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = os.open(left, os.O_RDONLY)
    read = refused = 0
    try:
        for text in [*(json.dumps(line).encode() for line in LINES), b"[" * 100_000, b"[NaN]", b"9" * 5000, b"\xff"]:
            (left / JOURNAL_NAME).write_bytes(encode_line(VerifiedBytes("b.log", "0" * 64, 0, 7)) + line_of(text))
            caplog.clear()
            found = read_journal(folder)
            journal = Journal(folder, found)
            assert journal.files >= {each.file for each in found}
            kept = ResumedWalSegments(journal, None)  # type: ignore[arg-type]
            for each in found:
                if isinstance(each, VerifiedWal):
                    kept._journal._wal = {_KEY: each}
                    kept.find(_POSITION)
            read += bool(found)
            refused += not found
            assert bool(found) != ("cannot be used" in caplog.text)
    finally:
        os.close(folder)
    assert refused > read > 0


_KEY = "generations/0000000100000000/wal/0000000000000000/0000000000000000.wal.lz4"


def _position() -> Any:
    from litelog.objects.position import Position, generation

    return Position(generation("0000000100000000"), 0, 0)


_POSITION = _position()


@pytest.mark.slow
def test_a_restore_continues_where_the_journal_is_junk_and_torn_lines_are_left_out(
    builder: ReplicaBuilder, left: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    torn = b"\n".join([b"", b"no journal", b"00000000 []", b"\xff\xfe", encode_line(GOOD[0])[:-3]])  # type: ignore[arg-type]
    (left / JOURNAL_NAME).write_bytes(torn)
    restore_to(builder, left.parent / "out")
    assert "cannot be used" not in caplog.text
    os.rename(left.parent / "out", left.parent / "first")
    left.mkdir(mode=0o700)
    (left / JOURNAL_NAME).write_bytes(torn + b"\n" + line_of(b'["a.log", 1, 2, 3]'))
    restore_to(builder, left.parent / "out")
    assert files_in(left.parent / "out") == files_in(left.parent / "first") == EXPECTED
    assert "the journal of an earlier restore cannot be used (a line has other fields)" in caplog.text
