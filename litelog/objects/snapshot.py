"""Snapshots: the complete description of a log at the start of an index. An LZ4-framed JSON document.

The first snapshot of a generation describes no log segment and stands at its first index: the chain begins with it. The
others follow the last WAL segment of the index before theirs, and name its digest as ``chain``.

Specified in litelog/objects/README.md#snapshot.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from litelog.codec.checksum import is_sha256
from litelog.codec.decoding import JsonLimits, abbreviate, naming, parse_json, require_fields
from litelog.codec.lz4_frames import compress_frames, decompress_frames
from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, UnknownVersionError
from litelog.objects.fields import Reader, number, optional, parsed, read_all, refuse, sha256, text
from litelog.objects.layout import snapshot_key
from litelog.objects.position import MAX_INDEX, Generation, Position, generation
from litelog.objects.side_files import SideFile, read_side_files, write_side_files
from litelog.objects.snapshot_entries import ENTRY_VALUES, EntryColumns, SnapshotEntry, read_entries, write_entries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

VERSION = 1

MAX_SNAPSHOT_BYTES = 256 << 20
"""The most bytes in a snapshot, uncompressed: a million log segments, with 250 bytes for each."""

MAX_ENTRIES = 1 << 20

MAX_RUNS = 1 << 16
"""How often the generation that sealed the log segment may change from one entry to the next."""

LIMITS = JsonLimits(
    size=MAX_SNAPSHOT_BYTES,
    values=MAX_ENTRIES * ENTRY_VALUES + 2 * MAX_RUNS,
    texts=MAX_ENTRIES + MAX_RUNS + 100,  # a file name for each entry; the names of fields, and packed columns
    containers=MAX_RUNS + 100,
    depth=4,
)
"""If a column is not packed, each entry is a value."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The log at the start of index ``next``: an entry for each of the log segments [first, next)."""

    log: str
    """The log's id, 32 hex digits."""
    format: str
    generation: Generation
    owner: str
    first: int
    next: int
    created: int
    """Microseconds since 1970."""
    predecessor_end: Position | None = None
    """The position at which the predecessor was ended; None without a predecessor."""
    chain: str | None = None
    """SHA-256, hex, of the WAL segment that ends the index before ``next``. The WAL segment after it names it, too, as
    ``previous``. None if the generation has none before ``next``: its first WAL segment names this snapshot."""
    segments: Sequence[SnapshotEntry] = ()
    """In the order of their indexes, without holes."""
    side_files: tuple[SideFile, ...] = ()
    """The log's small files next to its log segments, in the order in which a restore writes them."""

    @property
    def key(self) -> str:
        return snapshot_key(self.generation, self.next)

    def entry(self, index: int) -> SnapshotEntry | None:
        """The entry of a log segment; None if the snapshot does not describe it."""
        return self.segments[index - self.first] if self.first <= index < self.next else None


def extend(
    previous: Snapshot,
    sealed: Sequence[SnapshotEntry],
    *,
    created: int,
    chain: str | None,
    owner: str | None = None,
    side_files: tuple[SideFile, ...] = (),
) -> Snapshot:
    """``previous`` with the log segments after it, in the order of their indexes, and with the side files of now.

    Raises ValueError if they do not follow without a hole, or if their sequences go back.
    """
    snapshot = replace(
        previous,
        owner=previous.owner if owner is None else owner,
        next=previous.next + len(sealed),
        created=max(created, previous.created),
        chain=chain,
        segments=(*previous.segments, *sealed),
        side_files=side_files,
    )
    _check(snapshot)
    return snapshot


def drop_before(snapshot: Snapshot, index: int) -> Snapshot:
    """``snapshot`` without the log segments below ``index``, which the source (policy ``mirror``) or retention dropped.

    Keeps the entries at ``index`` and above. Raises ValueError for an index after its end.
    """
    if index > snapshot.next:
        raise ValueError(f"the snapshot ends at index {snapshot.next}, before {index}")
    if index <= snapshot.first:
        return snapshot
    return replace(snapshot, first=index, segments=snapshot.segments[index - snapshot.first :])


def encode(snapshot: Snapshot) -> bytes:
    """The object's bytes."""
    _check(snapshot)
    fields: dict[str, object] = {"version": VERSION}
    fields |= {name: getattr(snapshot, name) for name in Snapshot.__slots__}
    if snapshot.predecessor_end is not None:
        fields["predecessor_end"] = str(snapshot.predecessor_end)
    if snapshot.chain is None:
        del fields["chain"]  # as written before snapshots had chains
    fields["segments"] = write_entries(snapshot.segments) if snapshot.segments else []
    fields["side_files"] = write_side_files(snapshot.side_files)
    if not snapshot.side_files:
        del fields["side_files"]  # as written before snapshots had side files
    return b"".join(compress_frames(json.dumps(fields, separators=(",", ":")).encode()))


def digest(body: Buffer) -> str:
    """SHA-256 of a snapshot's bytes, hex. A generation's chain begins with it."""
    return hashlib.sha256(body).hexdigest()


def decode(key: str, body: Buffer) -> Snapshot:
    """The snapshot in ``body``. A CorruptObjectError (UnknownVersionError for a newer version) names ``key``."""
    with naming(key, "snapshot"):
        fields = require_fields(parse_json(decompress_frames(body, LIMITS.size), LIMITS))
        version = fields.pop("version")
        if type(version) is not int or version != VERSION:
            raise UnknownVersionError(key, "snapshot", VERSION, abbreviate(version))
        snapshot = _snapshot(fields)
    if snapshot.key != key:
        raise CorruptObjectError(key, "position in the snapshot", key, snapshot.key)
    return snapshot


_FIELDS: dict[str, Reader[Any]] = {
    "log": text,
    "format": text,
    "generation": parsed(generation),
    "owner": text,
    "first": number(below=MAX_INDEX + 1),
    "next": number(below=MAX_INDEX + 1),
    "created": number(),
    "predecessor_end": optional(parsed(Position.parse)),
    "chain": optional(sha256),
    "side_files": optional(read_side_files, ()),
}


def _snapshot(fields: dict[str, Any]) -> Snapshot:
    if not fields.keys() <= {*_FIELDS, "segments"}:
        raise ValueError("has fields that are not a snapshot's")
    values = read_all(_FIELDS, fields)
    first, following, written = values["first"], values["next"], fields["segments"]
    if not 0 <= following - first <= MAX_ENTRIES:
        raise ValueError(f"it ends at index {following}, and starts at {first}")
    segments = () if written == [] else read_entries(first, following - first, written)
    snapshot = Snapshot(**values, segments=segments)
    _check(snapshot)
    return snapshot


def _check(snapshot: Snapshot) -> None:
    if len(snapshot.segments) > MAX_ENTRIES:
        raise ValueError(f"it names {len(snapshot.segments)} log segments, more than {MAX_ENTRIES}")
    if snapshot.chain is not None and not is_sha256(snapshot.chain):
        refuse("chain", snapshot.chain)
    if isinstance(snapshot.segments, EntryColumns) and snapshot.segments.rise_from(snapshot.first, snapshot.next):
        return
    indexes = [entry.index for entry in snapshot.segments]
    if indexes != list(range(snapshot.first, snapshot.next)):
        raise ValueError(
            f"it names {len(indexes)} log segments that are not those from {snapshot.first} to {snapshot.next}"
        )
    follows = 0
    for entry in snapshot.segments:
        if entry.first is not None and entry.first < follows:
            raise ValueError(f"{entry.file}: its first sequence is {entry.first}, and {follows} follows the one before")
        follows = follows if entry.next is None else entry.next
