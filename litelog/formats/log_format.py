"""Log formats: which names in a folder are log segments, and where whole commits lie in bytes. No I/O here.

A format keeps two results apart. *Not yet*: what lies behind the last whole commit may still become one (it is
incomplete, or zero, or fails a check with nothing good behind it): ``Scan.tail`` says which. *Corrupt*: a bad commit
with good ones behind it, or bytes that no writer of this format leaves: an error.

Specified in litelog/formats/README.md#the-contract.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from uuid import UUID

    from litelog.formats.columns import Columns

MAX_COMMIT_BYTES = 32 << 20
"""The largest commit that is accepted, in bytes: what one log may hold in memory at a time."""


class Tail(Enum):
    """What lies behind the last whole commit of a buffer."""

    NOTHING = "nothing"
    INCOMPLETE = "incomplete"
    ZEROS = "zeros"
    DAMAGED = "damaged"


class FinishedTail(Enum):
    """What bytes behind the last whole commit of a finished log segment are."""

    ERROR = "error"
    """Corruption: writers of this format leave none."""
    PREFIX = "prefix"
    """A crashed writer's garbage: the valid prefix counts, if the next log segment continues from it."""
    SHIP = "ship"
    """Data like all the rest: ship them as they are."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the next commit must be. ``sequence`` None: whatever the log segment itself says (a log's beginning)."""

    sequence: int | None = None
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Damage:
    """Why the bytes at ``offset`` of a log segment are no commit."""

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
    """The first record's sequence; None if there is no commit."""
    next: int | None
    """The sequence that follows; the expected one if there is no commit."""
    epoch: int
    lowest: int | None
    """The lowest record timestamp, microseconds since 1970; None where the format has none."""
    highest: int | None
    last_commit: int
    """Where the last commit starts (``start`` if there is none)."""
    tail: Tail
    damage: Damage | None
    """For a damaged or incomplete tail: what was wrong with it."""
    wanted: int
    """How many bytes from ``end`` on the commit behind it needs, as far as it tells; 0 if it does not."""

    @property
    def expectation(self) -> Expectation:
        """What must follow this run."""
        return Expectation(self.next, self.epoch)


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit's place and facts. ``end`` is the offset behind it in its log segment."""

    start: int
    end: int
    first: int
    next: int
    lowest: int | None
    highest: int | None


class LogFormat(Protocol):
    """What litelog needs to know of a log format. Instances have no state and are shared by threads."""

    name: str
    finished_tail: FinishedTail
    has_timestamps: bool
    """Whether commits carry record timestamps."""
    self_numbered: bool
    """Whether commits carry their sequence, so that one tells what came before it."""
    has_log_id: bool
    """Whether log segments carry the log's identity."""

    def segment_order(self, name: str) -> tuple[object, ...] | None:
        """What to sort a log segment's file name by; None for a name that is not a log segment's."""

    def check_names(self, names: list[str]) -> None:
        """Raise ConfigError where names show a rotation that cannot be replicated (names that are reused)."""

    def log_id(self, name: str, head: memoryview) -> UUID | None:
        """The log's identity, from a log segment's first bytes; None where the format has none, or not yet."""

    def scan(self, name: str, data: memoryview, offset: int, expect: Expectation, *, known: bool = False) -> Scan:
        """The whole commits at the front of ``data``, which starts at byte ``offset`` of log segment ``name``.

        ``offset`` is 0 (then the log segment's header comes first, and belongs to the run with the first commit) or
        where a commit starts. ``known``: these are bytes that a scan has passed before, by a checksum of theirs; what
        commits hold inside may go unseen, and ``lowest`` and ``highest`` be None. Checksums, lengths and sequences are
        checked all the same. Raises CorruptCommitError, SequenceGapError, WrongFormatError.
        """

    def commits(self, name: str, data: memoryview, offset: int, expect: Expectation) -> list[Commit]:
        """The same run as ``scan``, commit by commit, for callers that cut it."""

    def decode(self, name: str, data: memoryview, offset: int, expect: Expectation) -> Columns:
        """The records of the same run as columns, checked as ``scan`` checks."""
