"""Buffers that lie in memory as the bytes of a file lie in its pages, so that a disk takes them without a copy."""

from __future__ import annotations

from litelog.native.calls import address_of, make_bytes

PAGE_BYTES = 4096
"""The bytes of a page. Disks with larger blocks than that take no bytes past the page cache."""


def make_page_buffer(size: int, offset: int = 0) -> memoryview:
    """Return a buffer of ``size`` bytes for the bytes of a file from ``offset`` on. It is not filled with zeros first.

    A byte whose offset in the file is a multiple of PAGE_BYTES has such an address, too.
    """
    room = memoryview(make_bytes(size + PAGE_BYTES))
    skipped = (offset - address_of(room)) % PAGE_BYTES
    return room[skipped : skipped + size]


def lies_in_pages(data: memoryview, offset: int) -> bool:
    """Whether ``data``, which is not empty, lies as ``make_page_buffer`` has it: the bytes of a file from ``offset``
    on."""
    return (address_of(data) - offset) % PAGE_BYTES == 0
