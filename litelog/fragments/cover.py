"""Finds the fragments of a journal by their names, chooses those that cover the journal, and finds the gaps.

Specified in litelog/fragments/README.md#names.
"""

from __future__ import annotations

from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import ConfigError, NothingToRestoreError
from litelog.formats.signatures import FRAGMENT_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from litelog.stores.object_store import ObjectStore

MAX_OFFSET = (1 << 63) - 1


class Codec(Enum):
    """How a fragment's content is compressed."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    ZSTANDARD = "zstandard"
    OFFLOADED = "offloaded"
    """gzip, which the store may have decompressed."""


_EXTENSIONS = {
    ".raw": Codec.NONE,
    ".gz": Codec.GZIP,
    ".gzip": Codec.GZIP,
    ".sz": Codec.SNAPPY,
    ".snappy": Codec.SNAPPY,
    ".zst": Codec.ZSTANDARD,
    ".zstandard": Codec.ZSTANDARD,
    ".gzod": Codec.OFFLOADED,
    None: Codec.OFFLOADED,
}


@dataclass(frozen=True, slots=True)
class Fragment:
    """A fragment, as its name describes it: bytes [begin, end) of its journal."""

    key: str
    begin: int
    end: int
    sha1: str
    """SHA-1, hex, of the content."""
    codec: Codec
    journal: str
    """The folders of its key that belong to the journal's name, not to a partition such as ``date=2026-11-25``."""
    stored_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes [start, stop) of a journal, which are read from ``fragment``."""

    fragment: Fragment
    start: int
    stop: int


def parse_fragment(key: str, stored_bytes: int = 0) -> Fragment | None:
    """The fragment with that key; None if it is not a fragment's."""
    folder, _, name = key.rpartition("/")
    match = FRAGMENT_NAME.fullmatch(name)
    if match is None or match[4] not in _EXTENSIONS:
        return None
    begin, end = int(match[1], 16), int(match[2], 16)
    if not begin <= end <= MAX_OFFSET:
        return None
    journal = "/".join(part for part in folder.split("/") if "=" not in part)
    return Fragment(key, begin, end, match[3], _EXTENSIONS[match[4]], journal, stored_bytes)


def list_fragments(store: ObjectStore) -> list[Fragment]:
    """All fragments that hold something, by their begin.

    Raises NothingToRestoreError if there is none, and ConfigError if they belong to several journals.
    """
    found = [each for info in store.list("") if (each := parse_fragment(info.key, info.size)) and each.begin < each.end]
    if not found:
        raise NothingToRestoreError(f"{store.url}: no fragments of a journal are here (such as begin-end-sum.gz)")
    journals = sorted({fragment.journal for fragment in found})
    if len(journals) > 1:
        several = ", ".join(journals[:3]) + (", ..." if len(journals) > 3 else "")
        raise ConfigError(f"{store.url}: fragments of {len(journals)} journals ({several}); add one of them to the URL")
    return sorted(found, key=lambda fragment: (fragment.begin, -fragment.end, fragment.key))


def find_cover(fragments: Sequence[Fragment], start: int | None = None, stop: int | None = None) -> list[Span]:
    """The spans that cover the journal from ``start`` (None: its first byte) to ``stop`` (None: its end).

    ``fragments`` are sorted by their begin. Of the fragments that hold an offset, the one that reaches furthest is
    read. Spans that do not lie back to back leave a gap.
    """
    spans: list[Span] = []
    at = fragments[0].begin if start is None else start
    end = MAX_OFFSET if stop is None else stop
    best: Fragment | None = None
    number = 0
    while at < end:
        while number < len(fragments) and fragments[number].begin <= at:
            if best is None or fragments[number].end > best.end:
                best = fragments[number]
            number += 1
        if best is not None and best.end > at:
            spans.append(Span(best, at, min(best.end, end)))
            at = best.end
        elif number < len(fragments):
            at = fragments[number].begin
        else:
            break
    return spans


def find_gaps(spans: Iterable[Span]) -> list[tuple[int, int]]:
    """The gaps between the spans, as offsets [start, stop)."""
    return [(before.stop, after.start) for before, after in pairwise(spans) if before.stop < after.start]
