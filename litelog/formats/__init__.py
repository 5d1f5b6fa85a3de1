"""Log formats: which names in a folder are log segments, and where whole commits lie in bytes. No I/O."""

from litelog.formats.log_format import (
    LARGEST_COMMIT_BYTES,
    MAX_COMMIT_BYTES,
    NO_LOWEST,
    Commit,
    Damage,
    Expectation,
    FinishedTail,
    LogFormat,
    Scan,
    Tail,
    safe_segment_order,
    shown_lowest,
)

__all__ = [
    "LARGEST_COMMIT_BYTES",
    "MAX_COMMIT_BYTES",
    "NO_LOWEST",
    "Commit",
    "Damage",
    "Expectation",
    "FinishedTail",
    "LogFormat",
    "Scan",
    "Tail",
    "safe_segment_order",
    "shown_lowest",
]
