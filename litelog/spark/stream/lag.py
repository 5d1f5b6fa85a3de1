"""Computes from a streaming query's progress how far the query is behind in each log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.errors import ConfigError
from litelog.spark.stream.steps import decode
from litelog.units import format_count, format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.spark.stream.steps import LogOffset


@dataclass(frozen=True, slots=True)
class StreamLag:
    """The part of one log that a query had not processed when it planned its last batch. The batch itself counts as
    processed.

    None: it is not known.
    """

    records: int | None
    """Records that wait; for a log of format ``raw`` the bytes. It is not known while the query is in an older
    generation, or has read no record yet."""
    bytes: int | None
    """Uncompressed bytes of the log that wait, approximately."""
    seconds: float | None
    """For how long the first of them had been in the replica."""


def lag(progress: Any) -> dict[str, StreamLag]:
    """How far a query was behind in each log at the time of a progress report.

    >>> lag(query.lastProgress)
    {'bucket/logs/a': StreamLag(records=1200, bytes=131072, seconds=4.5)}

    Args:
        progress: ``query.lastProgress``, or the ``progress`` of an event that a StreamingQueryListener receives.

    Returns:
        The lag by log, as the column ``log`` names it. Empty for a query without litelog, and before its first look.
    """
    return {name: _behind(end, head, backlog) for name, end, head, backlog in _logs(progress)}


def describe(progress: Any) -> str:
    """Describe in one line for each log where a query is and how far it is behind.

    Spark's own description of the source names the logs only in a session with the jar of the columnar reader.

    >>> print(describe(query.lastProgress))
    bucket/logs/a: next is record 5000 in generation 00000001000000a1, behind by 1,200 records, 128.0 KiB, 4.5s

    Args:
        progress: as for ``lag``.

    Returns:
        The lines, in the order of the logs' names. Empty as the result of ``lag``.
    """
    return "\n".join(_describe(name, end, _behind(end, head, backlog)) for name, end, head, backlog in _logs(progress))


def _describe(name: str, end: LogOffset | None, behind: StreamLag) -> str:
    if end is None:
        return f"{name}: not begun"
    record = "not known" if end.sequence is None else f"record {end.sequence}"
    told = (
        "? records" if behind.records is None else format_count(behind.records, "record"),
        "? bytes" if behind.bytes is None else format_size(behind.bytes),
        "? seconds" if behind.seconds is None else format_duration(behind.seconds),
    )
    return f"{name}: next is {record} in generation {end.position.generation}, behind by {', '.join(told)}"


def _logs(progress: Any) -> Iterator[tuple[str, LogOffset | None, LogOffset, Any]]:
    """For each log: its name, the query's offset in it, the log's end, and the report of what waits."""
    for source in progress.sources:
        ends, written = _offsets(source.endOffset), _parse(source.latestOffset)
        for name, head in sorted(_offsets(written).items()):
            backlog = written["logs"][name].get("backlog")
            yield name, ends.get(name), head, backlog if isinstance(backlog, dict) else {}


def _behind(end: LogOffset | None, head: LogOffset, backlog: dict[str, Any]) -> StreamLag:
    if end is not None and end.position.generation == head.position.generation and end.position >= head.position:
        return StreamLag(0, 0, 0.0)
    records: int | None = None
    if end is not None and end.position.generation == head.position.generation:
        known = end.sequence is not None and head.sequence is not None
        records = max(0, head.sequence - end.sequence) if known else None  # type: ignore[operator]
    return StreamLag(records, backlog.get("bytes"), backlog.get("seconds"))


def _parse(written: Any) -> Any:
    try:
        return json.loads(written) if isinstance(written, str) else written
    except ValueError:
        return None


def _offsets(written: Any) -> dict[str, LogOffset]:
    """The offsets in what Spark reports for a source; none for the source of another format."""
    try:
        return decode(_parse(written))
    except (ConfigError, ValueError):
        return {}
