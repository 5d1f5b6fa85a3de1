"""Computes from a streaming query's progress how many records of each log the query has not processed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from litelog.errors import ConfigError
from litelog.spark.stream.steps import decode

if TYPE_CHECKING:
    from litelog.spark.stream.steps import LogOffset


def lag(progress: Any) -> dict[str, int | None]:
    """How many records of each log the query had not processed at the time of the progress report.

    >>> lag(query.lastProgress)
    {'bucket/logs/a': 0, 'bucket/logs/b': 1200}

    Args:
        progress: ``query.lastProgress``, or the ``progress`` of an event that a StreamingQueryListener receives.

    Returns:
        The number of records by log, as the column ``log`` names it. None: it is not known, because the query is in an
        older generation or has read no record yet. For logs of format ``raw`` it is the number of bytes.
    """
    found: dict[str, int | None] = {}
    for source in progress.sources:
        ends, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
        for name, head in latest.items():
            found[name] = _behind(ends.get(name), head)
    return found


def _behind(end: LogOffset | None, head: LogOffset) -> int | None:
    if end is None or end.position.generation != head.position.generation:
        return None
    if end.position >= head.position:
        return 0
    known = end.sequence is not None and head.sequence is not None
    return max(0, head.sequence - end.sequence) if known else None  # type: ignore[operator]


def _offsets(written: Any) -> dict[str, LogOffset]:
    """The offsets in what Spark reports for a source; none for the source of another format."""
    try:
        return decode(json.loads(written) if isinstance(written, str) else written)
    except (ConfigError, ValueError):
        return {}
