"""PageAppender: appends many bytes to a file, in whole pages that go to the disk past the page cache.

The page cache costs a copy of each byte, and memory that other programs use better. Bytes that lie in memory as in the
file's pages (``make_page_buffer``) need neither. All others are written as usual.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from mmap import mmap

from litelog.codec.page_buffer import PAGE_BYTES, lies_in_pages
from litelog.system.files import begin_write_back, open_regular, write_at

_DIRECT = getattr(os, "O_DIRECT", 0)


class PageAppender:
    """Appends to one file, which nothing else writes meanwhile. One thread at a time. Close it.

    The bytes after the last whole page are held until ``finish``. So the file never has zeros where bytes should be,
    also after a power cut: pages are written in order, each when all of it is known.
    """

    def __init__(self, file: int, name: str, folder: int) -> None:
        """Continue a file at its end. Raises OSError.

        Args:
            file: Its descriptor, open for reading and writing. The appender closes it, also after an error.
            name: Its name.
            folder: The descriptor of its folder.
        """
        self._file, self._direct = file, -1
        """Descriptors of the file; -1 once they are closed. The second one writes past the page cache, if it can."""
        self._page = mmap(-1, PAGE_BYTES)
        """The bytes of the page in which the next byte lies, up to that byte."""
        self._end = 0
        """Where the next byte lies."""
        self._unwritten = 0
        """How many of the bytes in ``_page`` the file lacks."""
        try:
            self._end = os.fstat(file).st_size
            held = self._end % PAGE_BYTES
            self._page[:held] = os.pread(file, held, self._end - held)
        except BaseException:
            self.close()
            raise
        if _DIRECT:
            with suppress(OSError):  # a file system that cannot do that
                self._direct = open_regular(name, os.O_WRONLY | os.O_NOFOLLOW | _DIRECT, dir_fd=folder)

    @property
    def file(self) -> int:
        """The descriptor of the file."""
        return self._file

    @property
    def held(self) -> int:
        """How many bytes the file lacks until ``finish``."""
        return self._unwritten

    def append(self, data: memoryview) -> None:
        """Append bytes. Raises OSError; the file may have a part of them then."""
        held = self._end % PAGE_BYTES
        start, end = self._end - held, self._end + len(data)
        whole = end - end % PAGE_BYTES
        if whole == start:
            self._page[held : held + len(data)] = data
            self._unwritten += len(data)
        else:
            first = (PAGE_BYTES - held) % PAGE_BYTES
            self._page[held : held + first] = data[:first]
            vectors = [memoryview(self._page)[: held + first], data[first : whole - self._end]]
            self._write([vector for vector in vectors if vector], start)
            self._unwritten = end - whole
            self._page[: self._unwritten] = data[len(data) - self._unwritten :]
        self._end = end

    def finish(self) -> None:
        """Write the bytes that are held. A sync of the file makes all durable then. Raises OSError."""
        if self._unwritten:
            held = self._end % PAGE_BYTES
            at = held - self._unwritten
            write_at(self._file, memoryview(self._page)[at:held], self._end - self._unwritten)
            self._unwritten = 0

    def close(self) -> None:
        """Close the file. Bytes that are held are lost without ``finish``. Idempotent."""
        for descriptor in (self._file, self._direct):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._direct = -1

    def _write(self, vectors: list[memoryview], start: int) -> None:
        """Write whole pages from ``start`` on."""
        size, done = sum(map(len, vectors)), 0
        if self._direct >= 0 and lies_in_pages(vectors[-1], start + size - len(vectors[-1])):
            try:
                done = os.pwritev(self._direct, vectors, start)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                os.close(self._direct)  # a disk with larger blocks
                self._direct = -1
        if done == size:
            return
        at = start
        for vector in vectors:
            skipped = min(len(vector), max(0, start + done - at))
            write_at(self._file, vector[skipped:], at + skipped)
            at += len(vector)
        begin_write_back(self._file, start, size)
