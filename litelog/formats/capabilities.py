"""Members that a log format may offer beyond the contract. Each has a default, so no format needs them.

Specified in litelog/formats/README.md#what-a-format-may-offer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from litelog.formats.columns import Columns
    from litelog.formats.litelog.commit_batch import Commits
    from litelog.formats.log_format import Expectation, LogFormat, Scan


HEAD_BYTES = 64
"""The bytes of a log segment that ``check_head`` sees: the header of format ``litelog``."""


class Capabilities(Protocol):
    """The optional members of a log format. The functions of this module call a member, or use its default."""

    divisible: bool
    """Whether sequences count bytes, so that any run of bytes is a record and may be cut anywhere. Default: False."""

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

    def scan_columns(self, name: str, data: memoryview, offset: int, expect: Expectation) -> tuple[Scan, Columns]:
        """Return the results of ``scan`` and ``decode`` from one pass. Raises as ``scan``. Default: the two calls."""

    def scan_commits(
        self, name: str, data: memoryview, offset: int, expect: Expectation
    ) -> tuple[Scan, Commits | None] | None:
        """Return the scan of known bytes, and their commits undecoded. Raises as ``scan``. Default: None.

        ``Commits`` are commits of the format ``litelog``: only a format that wraps that one can return them.
        """


def is_divisible(log_format: LogFormat) -> bool:
    """Whether sequences count bytes, so that any run of bytes is a record and may be cut anywhere."""
    return bool(getattr(log_format, "divisible", False))


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


def scan_commits(
    log_format: LogFormat, name: str, data: memoryview, offset: int, expect: Expectation
) -> tuple[Scan, Commits | None] | None:
    """The scan of known bytes, and their commits undecoded; None if the format cannot leave them undecoded."""
    if not hasattr(log_format, "scan_commits"):
        return None
    return cast("Capabilities", log_format).scan_commits(name, data, offset, expect)
