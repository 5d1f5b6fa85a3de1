"""The forms in which records are streamed: JSON lines, Server-Sent Events and Arrow.

Specified in litelog/live/README.md#records.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol, TypeAlias

from litelog.formats.columns import NAMES, load_pyarrow
from litelog.formats.record_json import record_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from typing_extensions import Buffer

    from litelog.formats.columns import Columns


Piece: TypeAlias = "bytes | Sequence[Buffer]"
"""Bytes of a stream that belong together: a stream that a limit ends contains none of them, or all."""


def piece_size(piece: Piece) -> int:
    """The number of bytes in a piece."""
    return len(piece) if isinstance(piece, bytes) else sum(memoryview(buffer).nbytes for buffer in piece)


class StreamFraming(Protocol):
    """The beginning and the end of a stream."""

    media_type: str

    def begin(self) -> bytes:
        """Return what comes first."""

    def keep_alive(self) -> bytes:
        """Return what is sent while nothing happens. It is not a record."""

    def fail(self, error: Mapping[str, object]) -> bytes | None:
        """Return how a stream that cannot continue ends; None to break the connection off."""

    def end(self) -> bytes:
        """Return what comes last."""


class RecordEncoding(StreamFraming, Protocol):
    """Encodes a stream of records. Has no state, except for the columns that it encodes."""

    kind: str
    """Identifies the encoded form of a run, so that it is made once for all readers."""

    def encode(self, columns: Columns) -> bytes:
        """Return the records."""


class JsonLines:
    """A JSON object on a line for each record, as ``litelog cat --json`` prints them. Empty lines keep it alive."""

    media_type = "application/x-ndjson"

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self.kind = f"json {','.join(names)}"

    def begin(self) -> bytes:
        return b""

    def encode(self, columns: Columns) -> bytes:
        return b"".join(b"%s\n" % line for line in _json_records(columns, self._names))

    def keep_alive(self) -> bytes:
        return b"\n"

    def fail(self, error: Mapping[str, object]) -> bytes | None:
        return json.dumps({"error": error}).encode() + b"\n"

    def end(self) -> bytes:
        return b""


class ServerSentEvents:
    """An event for each record. Its id is the record's sequence, which browsers send to resume. Comments keep it
    alive."""

    media_type = "text/event-stream"

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self.kind = f"events {','.join(names)}"

    def begin(self) -> bytes:
        return b"retry: 1000\n\n"

    def encode(self, columns: Columns) -> bytes:
        lines = _json_records(columns, self._names)
        numbered = zip(columns.sequences.tolist(), lines, strict=True)
        return b"".join(b"id: %d\ndata: %s\n\n" % each for each in numbered)

    def keep_alive(self) -> bytes:
        return b": nothing new\n\n"

    def fail(self, error: Mapping[str, object]) -> bytes | None:
        return b"event: error\ndata: %s\n\n" % json.dumps(error).encode()

    def end(self) -> bytes:
        return b"event: end\ndata: {}\n\n"


class ArrowBatches:
    """An Arrow IPC stream: a record batch for each run. Batches without rows keep it alive."""

    media_type = "application/vnd.apache.arrow.stream"

    def __init__(self, names: Sequence[str]) -> None:
        """Raises ConfigError if pyarrow is not installed."""
        self._pyarrow = load_pyarrow()
        self._names = names
        self.kind = f"arrow {','.join(names)}"
        pyarrow = self._pyarrow
        types = (pyarrow.int64(), pyarrow.timestamp("us", tz="UTC"), pyarrow.binary(), pyarrow.binary())
        chosen = [pair for pair in zip(NAMES, types, strict=True) if pair[0] in names]
        self._schema = pyarrow.schema(chosen)

    def begin(self) -> bytes:
        return bytes(self._schema.serialize())

    def encode(self, columns: Columns) -> bytes:
        return bytes(columns.to_arrow(self._names).serialize())

    def keep_alive(self) -> bytes:
        return bytes(self._pyarrow.RecordBatch.from_pylist([], self._schema).serialize())

    def fail(self, error: Mapping[str, object]) -> bytes | None:  # noqa: ARG002
        return None

    def end(self) -> bytes:
        return b"\xff\xff\xff\xff\0\0\0\0"


ENCODINGS: Mapping[str, Callable[[Sequence[str]], RecordEncoding]] = {
    kind.media_type: kind for kind in (JsonLines, ServerSentEvents, ArrowBatches)
}
"""By media type, the preferred one first."""


def _json_records(columns: Columns, names: Sequence[str]) -> list[bytes]:
    return [json.dumps(record_fields(record, names)).encode() for record in columns.records()]
