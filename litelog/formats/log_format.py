"""Log formats: which names in a folder are log segments, and where whole commits lie in bytes. No I/O here.

A format keeps two results apart. *Not yet*: the bytes after the last whole commit may still become one. They are
incomplete, or zero, or fail a check with nothing good after them; ``Scan.tail`` says which. *Corrupt*: a bad commit is
followed by good ones, or no writer of this format leaves such bytes. That raises an error.

Specified in litelog/formats/README.md#the-contract.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from litelog.dataclass import dataclass

if TYPE_CHECKING:
    from uuid import UUID

    from litelog.formats.columns import Columns

HEAD_BYTES = 64
"""The bytes of a log segment that ``check_head`` sees: the header of format ``litelog``."""

MAX_COMMIT_BYTES = 32 << 20
"""The largest commit that is accepted, in bytes, of a format that states no other limit. It bounds the memory that one
log takes at a time."""

LARGEST_COMMIT_BYTES = 544 << 20
"""The highest limit that a format may state, in bytes: of objects whose format is not known, nothing larger is
accepted."""

MAX_SEQUENCE = (1 << 63) - 1
"""The highest sequence: sequences are int64 in columns."""

NO_LOWEST = -1000
"""``Scan.lowest`` of commits that show their lowest record timestamp only where their records are read: 1 ms before
1970, lower than any time of the formats that have such commits."""

MAX_FILE_NAME_BYTES = 255
"""The longest file name that file systems take, in bytes."""


class Tail(Enum):
    """The kind of bytes after the last whole commit of a buffer."""

    NOTHING = "nothing"
    INCOMPLETE = "incomplete"
    ZEROS = "zeros"
    DAMAGED = "damaged"


class FinishedTail(Enum):
    """The meaning of bytes after the last whole commit of a finished log segment."""

    ERROR = "error"
    """Corruption: writers of this format leave none."""
    PREFIX = "prefix"
    """A crashed writer's garbage: the valid prefix counts, if the next log segment continues from it."""
    SHIP = "ship"
    """Data like all the rest: ship them as they are."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """The sequence and the lowest epoch of the next commit. If ``sequence`` is None, any commit may be next, as at a
    log's beginning."""

    sequence: int | None = None
    epoch: int = 0
    checksum: int | None = None
    """The checksum of the commit before, as a scan stated it; None if that is not known. For formats whose writers
    repeat a commit: a repeated commit with another checksum is another history."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Why the bytes at ``offset`` of a log segment are not a commit."""

    offset: int
    what: str
    expected: object
    actual: object


@dataclass(frozen=True, slots=True)
class Scan:
    """The run of whole commits at the front of a buffer. Offsets are bytes from the log segment's start."""

    start: int
    end: int
    commits: int
    records: int
    first: int | None
    """The first record's sequence; None without a commit."""
    next: int | None
    """The sequence that follows; the expected one without a commit."""
    epoch: int
    lowest: int | None
    """The lowest record timestamp, in microseconds since 1970, or NO_LOWEST; None if the format has none."""
    highest: int | None
    last_commit: int
    """The offset at which the last commit starts; ``start`` without a commit."""
    tail: Tail
    damage: Damage | None
    """For a damaged or incomplete tail: what was wrong with it."""
    wanted: int
    """How many bytes from ``end`` on the next commit needs, if its start shows that; otherwise 0."""
    checksum: int | None = None
    """The last commit's checksum, if the format's writers may repeat that commit. Without a commit: as expected."""

    @property
    def expectation(self) -> Expectation:
        """The expectation for the data after this run."""
        return Expectation(self.next, self.epoch, self.checksum)

    def joined(self, following: Scan) -> Scan:
        """The scan of this run and of the one right after it."""
        if not following.commits:
            return replace(self, tail=following.tail, damage=following.damage, wanted=following.wanted)
        if not self.commits:
            return replace(following, start=self.start)
        lows = [low for low in (self.lowest, following.lowest) if low is not None]
        highs = [high for high in (self.highest, following.highest) if high is not None]
        return replace(
            following,
            start=self.start,
            commits=self.commits + following.commits,
            records=self.records + following.records,
            first=self.first,
            lowest=min(lows, default=None),
            highest=max(highs, default=None),
        )


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit's place and facts. ``end`` is the offset after it in its log segment."""

    start: int
    end: int
    first: int
    next: int
    lowest: int | None
    highest: int | None
    noted: int | None = None
    """When it was written, in microseconds since 1970, as its writer notes at some commits. None if it does not, and in
    formats whose records all have timestamps."""


class LogFormat(Protocol):
    """A log format, as litelog uses it. Instances have no state, and threads share them."""

    name: str
    finished_tail: FinishedTail
    has_timestamps: bool
    """Whether commits carry record timestamps."""
    self_numbered: bool
    """Whether commits carry their sequence, so that a commit shows what came before it."""
    has_log_id: bool
    """Whether log segments carry the log's identity."""

    def segment_order(self, name: str) -> tuple[object, ...] | None:
        """Return the sort key of a log segment's file name.

        Args:
            name: The file name, without a folder.

        Returns:
            The sort key; None for a name that is not a log segment's.
        """

    def check_names(self, names: list[str]) -> None:
        """Refuse a rotation that cannot be replicated, because it reuses names.

        Args:
            names: The file names in the log's folder.

        Raises:
            ConfigError: The names show such a rotation.
        """

    def log_id(self, name: str, head: memoryview) -> UUID | None:
        """Return the log's identity.

        Args:
            name: The log segment's file name, for errors.
            head: The log segment's first bytes.

        Returns:
            The identity; None if the format has none, or if ``head`` does not hold it yet.

        Raises:
            WrongFormatError: The bytes are another format's.
        """

    def scan(self, name: str, data: memoryview, offset: int, expect: Expectation, *, known: bool = False) -> Scan:
        """Find the whole commits at the front of ``data``.

        Args:
            name: The log segment's file name, for errors.
            data: A piece of the log segment.
            offset: Where ``data`` starts in the log segment, in bytes: 0, or the start of a commit. At 0 the log
                segment's header comes first, and belongs to the run with the first commit.
            expect: What the first commit must be.
            known: A checksum has shown that these are the bytes that an earlier scan passed. The scan may then leave
                out what commits hold inside, and ``lowest`` and ``highest`` may be None. It still checks checksums,
                lengths and sequences.

        Returns:
            The run of whole commits, and what follows it.

        Raises:
            CorruptCommitError: A bad commit is followed by good ones.
            SequenceGapError: A commit does not have the expected sequence.
            WrongFormatError: The bytes are another format's.
        """

    def commits(self, name: str, data: memoryview, offset: int, expect: Expectation) -> list[Commit]:
        """Return the same run as ``scan``, commit by commit, for callers that cut it. Raises as ``scan``."""

    def decode(self, name: str, data: memoryview, offset: int, expect: Expectation) -> Columns:
        """Return the records of the same run as columns, with the checks of ``scan``. Raises as ``scan``."""


def shown_lowest(lowest: int | None) -> int | None:
    """The lowest record timestamp, as people see it; None if it is not known."""
    return None if lowest == NO_LOWEST else lowest


def safe_segment_order(log_format: LogFormat, name: str) -> tuple[object, ...] | None:
    """The sort key of a log segment's name that an object states, and that may become a file name on this disk.

    None if the name is not a log segment's, leads to another folder, or is longer than file systems take.
    """
    return log_format.segment_order(name) if is_file_name(name) else None


def is_file_name(name: str) -> bool:
    """Whether ``name`` names a file in a folder, and does not lead to another folder."""
    if name in {"", ".", ".."} or any(mark in name for mark in "/\\\0"):
        return False
    return len(name) <= MAX_FILE_NAME_BYTES // 4 or len(name.encode(errors="replace")) <= MAX_FILE_NAME_BYTES
