"""Fragments of a Gazette journal, made from the description of their names and contents."""

from __future__ import annotations

import gzip
import hashlib

import cramjam
import zstandard

EXTENSIONS = (".raw", ".gz", ".sz", ".zst", ".gzod", "")


def compress(content: bytes, extension: str) -> bytes:
    """The bytes of the file."""
    if extension == ".sz":
        return bytes(cramjam.snappy.compress(content))
    if extension == ".zst":
        return zstandard.ZstdCompressor(write_content_size=False).compress(content)
    return content if extension == ".raw" else gzip.compress(content, mtime=0)


def fragment(begin: int, content: bytes, extension: str = ".gz", folder: str = "") -> tuple[str, bytes]:
    """The key and the bytes of a fragment that begins at ``begin``."""
    sha1 = hashlib.sha1(content).hexdigest()
    return f"{folder}{begin:016x}-{begin + len(content):016x}-{sha1}{extension}", compress(content, extension)
