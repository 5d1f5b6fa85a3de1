"""Members that a log format may offer beyond the contract. Each has a default, so no format needs them.

Specified in litelog/formats/README.md#what-a-format-may-offer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from litelog.formats.extra_columns import NO_COLUMNS
from litelog.formats.log_format import LARGEST_COMMIT_BYTES, MAX_COMMIT_BYTES, is_file_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from litelog.formats.columns import Columns
    from litelog.formats.extra_columns import ColumnType
    from litelog.formats.litelog.commit_batch import Commits
    from litelog.formats.log_format import Commit, Expectation, LogFormat, Scan


class LogicalBytes(Protocol):
    """The bytes of a log segment whose file holds them in another form, for example compressed."""

    def size(self) -> int:
        """Return the number of logical bytes."""

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset`` on; fewer at the end.

        Raises:
            CorruptCommitError: The file does not hold what it states.
        """


class RecordFilter(Protocol):
    """Leaves out records of a log. It may hold records back until later ones decide about them."""

    def add(self, columns: Columns) -> Iterator[Columns]:
        """Take the next records, and yield those that are decided."""
        ...

    def follow(self, columns: Columns) -> None:
        """Only note what the next records decide. For a pass over the log without ``add``: it holds no records."""
        ...

    @property
    def first_open(self) -> int | None:
        """The first sequence that later records decide about; None: all records up to here are decided."""


class Capabilities(Protocol):
    """The optional members of a log format. The functions of this module call a member, or use its default."""

    has_kafka_schema: bool
    """Whether records have what Spark's Kafka source shows of them: ``headers`` and ``timestampType`` among the columns
    of the format's own, and a log's name that ends in the number of a partition. Default: False."""
    has_markers: bool
    """Whether commits may hold something that readers do not get as a record. Then they get fewer records than
    ``Scan.records`` states. Default: False."""
    divisible: bool
    """Whether sequences count bytes, so that any run of bytes is a record and may be cut anywhere. Default: False."""

    rewrites_finished: bool
    """Whether the log's writer rewrites, merges and removes finished log segments (compaction). Such a change is not
    another history: the replica keeps what was shipped. Default: False."""
    extra_columns: Mapping[str, ColumnType]
    """The names and types of the columns besides sequence, timestamp, key and value. ``Columns.extra`` has exactly
    these. Default: none."""
    awaited_side_file: str | None
    """The side file that the log's writer writes before the log's first byte, and without which it does not know a
    restored log. A daemon waits for it. Default: None."""
    removed_by_owner: bool
    """Whether only the log's writer may remove log segments, so that litelog must not truncate it. Default: False."""

    sparse: bool
    """Whether sequences may jump between commits, so that they do not show that a log segment is missing. Default:
    False."""
    notes_times: bool
    """Whether the writer may note at some commits when it wrote them: ``Commit.noted``. A commit without a note was
    written at the time of the last note before it. Default: False."""
    counted: bool
    """Whether only the names of log segments state sequences: records are counted from there. Default: False."""
    max_commit_bytes: int
    """The largest commit in bytes, up to LARGEST_COMMIT_BYTES, for a writer that appends more at once than other ones
    do. A log that holds such a commit takes twice that much memory while it is shipped. Default: MAX_COMMIT_BYTES."""

    def open_logical(self, path: str, read: Callable[[int, int], bytes], size: int) -> LogicalBytes | None:
        """Return a log segment's logical bytes, if its file holds them in another form.

        Everything that litelog does with the log segment uses these bytes. A writer that changes the form of a finished
        log segment in place does not change them.

        Args:
            path: The log segment, for errors.
            read: Reads the file: from an offset, up to a number of bytes.
            size: The file's size in bytes.

        Returns:
            The logical bytes; None if they are the file's own. Default: None.

        Raises:
            CorruptCommitError: The file begins as such a form, and is not one.
        """

    def side_files(self, names: Sequence[str]) -> list[str]:
        """Choose the small files that belong to the log, next to its log segments.

        Each snapshot holds them, and a restore writes them after the log segments.

        Args:
            names: The names of all files in a folder.

        Returns:
            Those that are side files, in the order in which a restore writes them. Default: none.
        """

    def manifest_name(self, names: Sequence[str]) -> str | None:
        """Return the name of the manifest: the file in which the writer lists the log segments that are the log.

        Only for a format that also has ``read_manifest`` and ``write_manifest``. Other files with names of log segments
        are not part of the log. If the writer replaces the first log segment, the log begins again. A restore writes
        the manifest last.

        Args:
            names: The names of all files in a folder.

        Returns:
            The name; None if the folder has no manifest.
        """

    def read_manifest(self, content: bytes) -> list[str]:
        """Return the names of the log segments that a manifest lists.

        Raises:
            ValueError: The content is not as the writer writes it.
        """

    def write_manifest(self, names: Sequence[str]) -> tuple[str, bytes]:
        """Return the name and the content of a manifest.

        Args:
            names: The log segments that it lists, oldest first; at least one.
        """

    def watermark_file(self, folder: str) -> str | None:
        """Return the path of the file in which the writer states the watermark of a log.

        Only for a format that also has ``first_sequence``.

        Args:
            folder: The log's folder.

        Returns:
            The path; None if the log has no such file. Default: None.
        """

    def read_watermark(self, folder: str, content: bytes | None) -> int | None:
        """Return the log's watermark: the sequence below which its writer takes no record back.

        Later records are not shipped.

        Args:
            folder: The log's folder.
            content: The content of ``watermark_file``; None if it does not exist.

        Returns:
            The sequence; None if the writer takes no record of this log back.

        Raises:
            ValueError: The content is not as the writer writes it.
        """

    def index_name(self, name: str) -> str | None:
        """Return the name of the index file without which the writer does not open a restored log segment.

        Only for a format that also has ``write_index``. A restore writes it next to the log segment.

        Args:
            name: The log segment's file name.

        Returns:
            The name; None if the writer needs none. Default: None.
        """

    def write_index(self, name: str, head: bytes, commits: Iterable[Commit]) -> bytes:
        """Return the content of a log segment's index file.

        Args:
            name: The log segment's file name.
            head: Its first HEAD_BYTES bytes, fewer if it is shorter.
            commits: All of its commits.
        """

    def first_indexed(self, name: str, content: bytes, time: int) -> int | None:
        """Return the sequence of the first record that an index file says was written at a time or later.

        Only for a format without timestamps that also has ``index_name``. A reader of the log's folder can then begin
        at a time.

        Args:
            name: The log segment's file name.
            content: The content of its index file.
            time: The time, in microseconds since 1970.

        Returns:
            The sequence; None if no record of the log segment is that late.
        """

    def is_log_folder(self, name: str) -> bool:
        """Return whether a folder of that name may be a log, where a daemon looks for logs in a folder of logs.

        Args:
            name: The last part of the folder's path.

        Returns:
            Whether it may be a log. Default: True.
        """

    def was_truncated(self, names: Sequence[str]) -> bool:
        """Return whether the log's writer ever removed records before the oldest log segment.

        If not, a reader that starts before the first record starts with that one.

        Args:
            names: The names of all files in the log's folder.

        Returns:
            Whether it did. Default: True, so a log whose sequences begin above 0 counts as truncated.
        """

    def ignores(self, name: str) -> bool:
        """Return whether a file is the writer's own and not part of the log.

        Args:
            name: The file name, without a folder.

        Returns:
            Whether it is skipped without a warning. Default: True for index files, by their suffix.
        """

    def first_sequence(self, name: str) -> int | None:
        """Return the first sequence of a log segment, by its file name.

        Args:
            name: The file name, without a folder.

        Returns:
            The sequence; None if the name does not state it. Default: None.
        """

    def find_commit(self, data: memoryview, offset: int, start: int) -> int | None:
        """Find the next intact commit after damage.

        Args:
            data: A piece of a log segment.
            offset: Where ``data`` starts in the log segment, in bytes.
            start: The place in ``data`` where the damage begins.

        Returns:
            Its place in ``data``; None if there is none, or if damage hides where commits begin. Default: None.
        """

    def check_head(self, path: str, head: bytes) -> None:
        """Refuse a log segment that another format's writer began. Default: do nothing.

        Args:
            path: The log segment, for errors.
            head: Its first HEAD_BYTES bytes, fewer if it is shorter.

        Raises:
            WrongFormatError: It is of another format, which the message names.
        """

    def read_committed(self) -> tuple[LogFormat, RecordFilter]:
        """Return how to read only the records of committed transactions: the format with which the log is read, and a
        new filter through which its records go. Default: the log has no transactions."""

    def scan_columns(self, name: str, data: memoryview, offset: int, expect: Expectation) -> tuple[Scan, Columns]:
        """Return the results of ``scan`` and ``decode`` from one pass. Raises as ``scan``. Default: the two calls."""

    def scan_whole(self, name: str, data: memoryview, offset: int, expect: Expectation, crc: int) -> Scan | None:
        """Return what ``scan`` does for data that consists of whole commits, if its CRC-32C is ``crc``.

        The CRC-32C follows from the commits' own checksums, so that no byte is checksummed twice. Default: None.

        Args:
            name, data, offset, expect: As for ``scan``.
            crc: The CRC-32C that the data should have.

        Returns:
            None if ``data`` has to be checksummed and scanned: not all commits are plainly right, they do not end with
            ``data``, its CRC-32C is another one, or there is no faster way.
        """

    def take_columns(
        self, data: memoryview, offset: int, expect: Expectation
    ) -> tuple[Columns, int, Expectation] | None:
        """Take the whole commits at the front of ``data``, and make every check of ``scan``. What follows them is not
        judged: the next call starts with it. Only for a self-numbered format. Default: None.

        Args:
            data: As for ``scan``.
            offset: As for ``scan``.
            expect: As for ``scan``.

        Returns:
            The records, the end of the last commit in the log segment, and what to expect next. None if ``data`` has to
            be scanned: no commit is plainly right, or there is no faster way.
        """

    def scan_front(self, data: memoryview, offset: int, expect: Expectation) -> Scan | None:
        """Return the scan of the whole commits at the front of ``data``, with every check of ``scan``, but do not judge
        what follows them: the next scan begins there. None if ``data`` has to be scanned. Default: None."""

    def scan_commits(
        self, name: str, data: memoryview, offset: int, expect: Expectation
    ) -> tuple[Scan, Commits | None] | None:
        """Return the scan of known bytes, and their commits undecoded. Raises as ``scan``. Default: None.

        ``Commits`` are commits of the format ``litelog``: only a format that wraps that one can return them.
        """


def is_divisible(log_format: LogFormat) -> bool:
    """Whether sequences count bytes, so that any run of bytes is a record and may be cut anywhere."""
    return bool(getattr(log_format, "divisible", False))


def has_kafka_schema(log_format: LogFormat) -> bool:
    """Whether records have what Spark's Kafka source shows of them."""
    return bool(getattr(log_format, "has_kafka_schema", False))


def has_markers(log_format: LogFormat) -> bool:
    """Whether fewer records may be read than ``Scan.records`` states."""
    return bool(getattr(log_format, "has_markers", False))


def read_committed(log_format: LogFormat) -> tuple[LogFormat, RecordFilter] | None:
    """How to read only the records of committed transactions: the format with which the log is read, and a new filter
    through which its records go. None if logs of the format have no transactions."""
    return cast("Capabilities", log_format).read_committed() if hasattr(log_format, "read_committed") else None


def rewrites_finished(log_format: LogFormat) -> bool:
    """Whether the log's writer rewrites, merges and removes finished log segments."""
    return bool(getattr(log_format, "rewrites_finished", False))


def extra_columns(log_format: LogFormat) -> Mapping[str, ColumnType]:
    """The names and types of the columns that the format has besides sequence, timestamp, key and value."""
    found: Mapping[str, ColumnType] = getattr(log_format, "extra_columns", NO_COLUMNS)
    return found


def removed_by_owner(log_format: LogFormat) -> bool:
    """Whether only the log's writer may remove log segments."""
    return bool(getattr(log_format, "removed_by_owner", False))


def is_sparse(log_format: LogFormat) -> bool:
    """Whether sequences may jump from a commit to the next."""
    return bool(getattr(log_format, "sparse", False))


def is_counted(log_format: LogFormat) -> bool:
    """Whether only the names of log segments state sequences, so that no commit does."""
    return bool(getattr(log_format, "counted", False))


def open_logical(log_format: LogFormat, path: str, read: Callable[[int, int], bytes], size: int) -> LogicalBytes | None:
    """The logical bytes of a log segment whose file holds them in another form; None if they are the file's own.
    Raises CorruptCommitError."""
    offered = cast("Capabilities", log_format)
    return offered.open_logical(path, read, size) if hasattr(log_format, "open_logical") else None


def has_side_files(log_format: LogFormat) -> bool:
    """Whether logs of the format may have side files."""
    return hasattr(log_format, "side_files")


def side_files(log_format: LogFormat, names: Sequence[str]) -> list[str]:
    """Those of ``names`` that belong to the log next to its log segments, in the order in which a restore writes
    them."""
    offered = cast("Capabilities", log_format)
    return offered.side_files(names) if has_side_files(log_format) else []


def awaited_side_file(log_format: LogFormat) -> str | None:
    """The side file that the log's writer writes before the log's first byte; None if there is none."""
    found: str | None = getattr(log_format, "awaited_side_file", None)
    return found


def is_side_file(log_format: LogFormat, name: str) -> bool:
    """Whether a name that an object states is a side file's, and may become a file name on this disk."""
    return is_file_name(name) and side_files(log_format, [name]) == [name] and log_format.segment_order(name) is None


def max_commit_bytes(log_format: LogFormat) -> int:
    """The largest commit of the format that is accepted, in bytes."""
    found: int = getattr(log_format, "max_commit_bytes", MAX_COMMIT_BYTES)
    return min(found, LARGEST_COMMIT_BYTES)


def notes_times(log_format: LogFormat) -> bool:
    """Whether the log's writer may note at some commits when it wrote them."""
    return bool(getattr(log_format, "notes_times", False))


def has_manifest(log_format: LogFormat) -> bool:
    """Whether the log's writer lists the log segments in a manifest. Such a log is useless without its first log
    segment."""
    return hasattr(log_format, "manifest_name")


def manifest_name(log_format: LogFormat, names: Sequence[str]) -> str | None:
    """The name of the manifest among the files of a folder; None if there is none."""
    return cast("Capabilities", log_format).manifest_name(names) if has_manifest(log_format) else None


def read_manifest(log_format: LogFormat, content: bytes) -> list[str]:
    """The names of the log segments that a manifest lists. Raises ValueError. Only for a format that has manifests."""
    return cast("Capabilities", log_format).read_manifest(content)


def write_manifest(log_format: LogFormat, names: Sequence[str]) -> tuple[str, bytes]:
    """The name and content of the manifest that lists these log segments. Only for a format that has manifests."""
    return cast("Capabilities", log_format).write_manifest(names)


def watermark_file(log_format: LogFormat, folder: str) -> str | None:
    """The path of the file that states a log's watermark; None if there is none."""
    offered = cast("Capabilities", log_format)
    return offered.watermark_file(folder) if hasattr(log_format, "watermark_file") else None


def read_watermark(log_format: LogFormat, folder: str, content: bytes | None) -> int | None:
    """The log's watermark; None if its writer takes no record back. Raises ValueError. Only for a format that has
    ``watermark_file``."""
    return cast("Capabilities", log_format).read_watermark(folder, content)


def index_name(log_format: LogFormat, name: str) -> str | None:
    """The name of the index file without which the log's writer does not open a log segment; None if there is none."""
    offered = cast("Capabilities", log_format)
    return offered.index_name(name) if hasattr(log_format, "index_name") else None


def has_indexed_times(log_format: LogFormat) -> bool:
    """Whether index files say when records were written."""
    return hasattr(log_format, "first_indexed")


def first_indexed(log_format: LogFormat, name: str, content: bytes, time: int) -> int | None:
    """The sequence of the first record of a log segment that its index file says was written at ``time`` or later; None
    if there is none. Only for a format that has indexed times."""
    return cast("Capabilities", log_format).first_indexed(name, content, time)


def write_index(log_format: LogFormat, name: str, head: bytes, commits: Iterable[Commit]) -> bytes:
    """The content of a log segment's index file. Only for a format that has ``index_name``."""
    return cast("Capabilities", log_format).write_index(name, head, commits)


def is_log_folder(log_format: LogFormat, name: str) -> bool:
    """Whether a folder of that name may be a log."""
    offered = cast("Capabilities", log_format)
    return offered.is_log_folder(name) if hasattr(log_format, "is_log_folder") else True


def was_truncated(log_format: LogFormat, names: Sequence[str]) -> bool:
    """Whether the log's writer ever removed records before the oldest log segment. ``names``: all files in the log's
    folder."""
    offered = cast("Capabilities", log_format)
    return offered.was_truncated(names) if hasattr(log_format, "was_truncated") else True


INDEX_SUFFIXES = (".index", ".timeindex", ".ofs")
"""Suffixes of index files. They lie next to the log segments, are rebuilt from them, and are never shipped."""


def ignores(log_format: LogFormat, name: str) -> bool:
    """Whether a file is the writer's own and not part of the log: it is skipped without a warning."""
    if hasattr(log_format, "ignores"):
        return cast("Capabilities", log_format).ignores(name)
    return name.endswith(INDEX_SUFFIXES)


def first_sequence(log_format: LogFormat, name: str) -> int | None:
    """The first sequence that a log segment's file name states; None if it states none."""
    offered = cast("Capabilities", log_format)
    return offered.first_sequence(name) if hasattr(log_format, "first_sequence") else None


def find_commit(log_format: LogFormat, data: memoryview, offset: int, start: int) -> int | None:
    """Find the place in ``data`` of the next intact commit after damage at ``start``; None if there is none, or if the
    format cannot find it. ``offset``: where ``data`` starts in the log segment."""
    offered = cast("Capabilities", log_format)
    return offered.find_commit(data, offset, start) if hasattr(log_format, "find_commit") else None


def check_head(log_format: LogFormat, path: str, head: bytes) -> None:
    """Raise WrongFormatError if ``head``, the first bytes of a log segment, shows that it is of another format."""
    if hasattr(log_format, "check_head"):
        cast("Capabilities", log_format).check_head(path, head)


def scan_columns(
    log_format: LogFormat, name: str, data: memoryview, offset: int, expect: Expectation
) -> tuple[Scan, Columns]:
    """The scan of a run of commits, and its records: in one pass if the format can. Raises as ``LogFormat.scan``."""
    if hasattr(log_format, "scan_columns"):
        return cast("Capabilities", log_format).scan_columns(name, data, offset, expect)
    return log_format.scan(name, data, offset, expect), log_format.decode(name, data, offset, expect)


def scan_whole(
    log_format: LogFormat, name: str, data: memoryview, offset: int, expect: Expectation, crc: int
) -> Scan | None:
    """The scan of whole commits with the CRC-32C ``crc``; None if ``data`` has to be checksummed and scanned."""
    if not hasattr(log_format, "scan_whole"):
        return None
    return cast("Capabilities", log_format).scan_whole(name, data, offset, expect, crc)


def can_take_columns(log_format: LogFormat) -> bool:
    """Whether ``take_columns`` may take commits of the format."""
    return hasattr(log_format, "take_columns")


def take_columns(
    log_format: LogFormat, data: memoryview, offset: int, expect: Expectation
) -> tuple[Columns, int, Expectation] | None:
    """The records of the whole commits at the front of ``data``, with every check, the end of the last commit, and what
    to expect next; None if ``data`` has to be scanned. ``offset``: where ``data`` starts in the log segment. Only for a
    format that can take columns."""
    return cast("Capabilities", log_format).take_columns(data, offset, expect)


def scan_front(log_format: LogFormat, data: memoryview, offset: int, expect: Expectation) -> Scan | None:
    """The scan of the whole commits at the front of ``data``, with every check. What follows them is not judged: the
    next scan must begin there. None if ``data`` has to be scanned."""
    if not hasattr(log_format, "scan_front"):
        return None
    return cast("Capabilities", log_format).scan_front(data, offset, expect)


def scan_commits(
    log_format: LogFormat, name: str, data: memoryview, offset: int, expect: Expectation
) -> tuple[Scan, Commits | None] | None:
    """The scan of known bytes, and their commits undecoded; None if the format cannot leave them undecoded."""
    if not hasattr(log_format, "scan_commits"):
        return None
    return cast("Capabilities", log_format).scan_commits(name, data, offset, expect)
