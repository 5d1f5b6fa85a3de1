"""Log formats: which names in a folder are log segments, and where whole commits lie in bytes. No I/O."""

from litelog.formats.log_format import (
    MAX_COMMIT_BYTES,
    Commit,
    Damage,
    Expectation,
    FinishedTail,
    LogFormat,
    Scan,
    Tail,
    safe_segment_order,
)

__all__ = [
    "MAX_COMMIT_BYTES",
    "Commit",
    "Damage",
    "Expectation",
    "FinishedTail",
    "LogFormat",
    "Scan",
    "Tail",
    "safe_segment_order",
]
