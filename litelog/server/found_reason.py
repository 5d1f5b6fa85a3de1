"""A reason of a verdict, which the daemon also finds between requests. ``report`` has its model for documents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class FoundReason(NamedTuple):
    """Why a log is not safe, or not known to be safe; or a warning. ``report.Reason`` describes the fields."""

    kind: str
    message: str
    verdict: str = "unknown"
    log: str | None = None
    replica: str | None = None
    since: str | None = None
    object: str | None = None
    action: str | None = None
    command: str | None = None

    def escaped(self) -> FoundReason:
        """The same, without characters that UTF-8 cannot hold: a message may name a file whose name is not UTF-8."""
        return self._replace(**{name: escape(text) for name, text in self._asdict().items() if text is not None})


def format_time(microseconds: int) -> str:
    """ISO 8601 in UTC, to the millisecond."""
    moment = _BEGINNING + timedelta(microseconds=microseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def escape(text: str) -> str:
    """Escape characters that UTF-8 cannot hold: a name may have bytes that are not Unicode."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
