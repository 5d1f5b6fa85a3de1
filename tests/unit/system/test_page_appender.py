"""Bytes that lie as in a file's pages are appended past the page cache, all others through it, and all in order."""

from __future__ import annotations

import errno
import os
from contextlib import closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from litelog.codec.page_buffer import PAGE_BYTES, lies_in_pages, make_page_buffer
from litelog.system.files import OPEN_FOLDER
from litelog.system.page_appender import PageAppender

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, OPEN_FOLDER)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder that is not in memory, as those of other tests are."""
    with TemporaryDirectory(dir=Path(__file__).parent) as folder:
        yield Path(folder)


def appending(path: Path, folder: int) -> closing[PageAppender]:
    return closing(PageAppender(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), path.name, folder))


def make_run(draw: Random, size: int, offset: int) -> memoryview:
    """Random bytes, which lie as in the pages of a file from ``offset`` on."""
    run = make_page_buffer(size, offset)
    run[:] = draw.randbytes(size)
    return run


def is_cached(path: Path, offset: int) -> bool:
    """Whether the page cache holds the byte of a file. Skips the test if the file system cannot tell."""
    with path.open("rb") as file:
        try:
            return os.preadv(file.fileno(), [bytearray(1)], offset, os.RWF_NOWAIT) == 1
        except BlockingIOError:
            return False
        except OSError:
            pytest.skip("the file system does not tell what the page cache holds")


@pytest.mark.parametrize("seed", range(20))
def test_runs_of_any_size_and_place_in_memory_are_appended_in_order(tmp_path: Path, folder: int, seed: int) -> None:
    draw, path, wanted = Random(seed), tmp_path / "file", b""
    for _ in range(3):
        before = draw.randbytes(draw.randrange(2 * PAGE_BYTES))
        with path.open("ab") as file:
            file.write(before)
        wanted += before
        with appending(path, folder) as pages:
            for _ in range(8):
                size = draw.choice((1, draw.randrange(1, PAGE_BYTES), draw.randrange(1, 9 * PAGE_BYTES), PAGE_BYTES))
                run = make_run(draw, size, len(wanted) + draw.choice((0, 0, 1)))
                pages.append(run)
                wanted += run
                assert path.stat().st_size == len(wanted) - pages.held
                assert pages.held < PAGE_BYTES
                assert path.read_bytes() == wanted[: len(wanted) - pages.held]
                if draw.random() < 0.2:
                    pages.finish()
                    assert path.read_bytes() == wanted
            pages.finish()
        assert path.read_bytes() == wanted


def test_whole_pages_do_not_go_through_the_page_cache(disk: Path) -> None:
    draw, path = Random(1), disk / "file"
    path.write_bytes(b"before")
    descriptor = os.open(disk, OPEN_FOLDER)
    with appending(path, descriptor) as pages:
        pages.append(make_run(draw, 64 * PAGE_BYTES, 6))
        held = pages.held
    os.close(descriptor)
    assert held == 6
    assert not is_cached(path, 8 * PAGE_BYTES)
    path.read_bytes()
    assert is_cached(path, 8 * PAGE_BYTES)


def test_a_file_that_cannot_be_written_past_the_page_cache_is_written_as_usual(tmp_path: Path, folder: int) -> None:
    draw, path = Random(2), tmp_path / "file"
    run = make_run(draw, 9 * PAGE_BYTES + 5, 0)
    with closing(PageAppender(os.open(path, os.O_RDWR | os.O_CREAT), "not there", folder)) as pages:
        pages.append(run)
        pages.finish()
    assert path.read_bytes() == run


@pytest.mark.parametrize("taken", [0, 1, 6, 512, PAGE_BYTES, PAGE_BYTES + 6, 3 * PAGE_BYTES + 512])
def test_what_a_disk_does_not_take_past_the_page_cache_is_written_as_usual(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    """A disk with larger blocks takes nothing, and a disk that becomes full a part."""
    draw, path = Random(taken), tmp_path / "file"
    path.write_bytes(b"before")
    asked: list[int] = []

    def write_some(_: int, vectors: list[memoryview], start: int) -> int:
        asked.append(start)
        if not taken:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        with path.open("r+b") as file:
            file.seek(start)
            return file.write(b"".join(vectors)[:taken])

    monkeypatch.setattr("litelog.system.page_appender._DIRECT", os.O_NOATIME)
    monkeypatch.setattr(os, "pwritev", write_some)
    runs = [make_run(draw, size, 6) for size in (4 * PAGE_BYTES, 5 * PAGE_BYTES + 3)]
    with appending(path, folder) as pages:
        for run in runs:
            pages.append(run)
            assert path.stat().st_size % PAGE_BYTES == 0
        pages.finish()
    assert path.read_bytes() == b"before" + b"".join(runs)
    assert len(asked) == (2 if taken else 1)


def test_a_full_disk_is_an_error_and_leaves_whole_pages(tmp_path: Path, folder: int) -> None:
    resource = pytest.importorskip("resource")
    draw, path = Random(3), tmp_path / "file"
    run = make_run(draw, 8 * PAGE_BYTES, 0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with appending(path, folder) as pages:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 * PAGE_BYTES, limits[1]))
        try:
            with pytest.raises(OSError, match="too large"):
                pages.append(run)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == run[: path.stat().st_size]
    assert path.stat().st_size <= 4 * PAGE_BYTES


def test_a_page_buffer_lies_as_the_bytes_of_the_file_do() -> None:
    for offset in (0, 1, 4095, 4096, 10**9 + 7):
        data = make_page_buffer(3 * PAGE_BYTES, offset)
        assert len(data) == 3 * PAGE_BYTES
        assert lies_in_pages(data, offset)
        assert lies_in_pages(data[100:], offset + 100)
        assert not lies_in_pages(data, offset + 1)
