"""litelog's own log format."""

from litelog.formats.litelog.encoding import commit_bytes, encode_columns, encode_commit
from litelog.formats.litelog.format import LitelogFormat, segment_name, sequence_of
from litelog.formats.litelog.segment_header import SEGMENT_HEADER_BYTES, SegmentHeader

__all__ = [
    "SEGMENT_HEADER_BYTES",
    "LitelogFormat",
    "SegmentHeader",
    "commit_bytes",
    "encode_columns",
    "encode_commit",
    "segment_name",
    "sequence_of",
]
