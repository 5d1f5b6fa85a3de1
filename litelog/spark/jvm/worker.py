"""A process that plans and reads for the columnar reader. ``PythonWorker.java`` starts it and sends the requests.

A request is JSON, with its length before it (u32, big-endian), and then the ``about_bytes`` bytes of the plan or of the
part that it is about. The answer to a read is an Arrow stream. Each other
answer has its length before it: a plan has the form of ``PackedPlan``, and all others are JSON. After the answer comes
the error, as text with its length before it. The text is empty if there was no error.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, BinaryIO

from litelog.errors import LitelogError
from litelog.spark.jvm.conditions import RECORDS
from litelog.spark.jvm.handover import (
    PackedPlan,
    cut_piece,
    describe_columns,
    hand_over,
    read_fields,
    read_log,
)
from litelog.spark.jvm.narrowing import HeldPlan
from litelog.spark.jvm.opening import open_for_java
from litelog.spark.jvm.part_rows import PART, read_pieces
from litelog.spark.options import parse_options
from litelog.spark.scan.decoding import read_partition
from litelog.spark.scan.partitions import LogPart, Partition, SealedPiece
from litelog.spark.scan.planning import plan, stated_columns
from litelog.spark.scan.schema import TYPES, Column, arrow_schema, asked_columns
from litelog.spark.scan.task import kept_store
from litelog.spark.store_options import read_store_options, replica_url
from litelog.spark.stream.options import parse_any_options
from litelog.stores.missing import find_replicas
from litelog.stores.retrying_store import RetryingStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from litelog.spark.jvm.conditions import QueriedLog
    from litelog.spark.scan.partitions import Piece


def serve(source: BinaryIO, target: BinaryIO) -> None:
    """Answer requests until the source ends."""
    while head := source.read(4):
        request = json.loads(source.read(int.from_bytes(head, "big")))
        request["about"] = source.read(request["about_bytes"])
        made: bytes | PackedPlan = b""
        error = b""
        try:
            if request["ask"] == "read":
                _read(request, target)
            else:
                made = _ASKED[request["ask"]](request)
        except LitelogError as raised:
            error = _text(raised)
        except Exception as raised:  # noqa: BLE001 - Java raises it
            error = _text(raised)
        if isinstance(made, PackedPlan):
            target.write(made.nbytes.to_bytes(4, "big"))
            target.writelines(made.chunks())
        elif request["ask"] != "read":
            _write(target, made)
        _write(target, error)
        target.flush()


def _schema(request: dict[str, Any]) -> bytes:
    return _json(describe_columns(stated_columns(parse_any_options(request["options"]))))


def _plan(request: dict[str, Any]) -> PackedPlan:
    options = parse_options(request["options"])
    columns = asked_columns(options, read_fields(request["schema"]))
    return hand_over(plan(options, request["slots"]).partitions, columns)


def _column(name: str, *, nullable: bool) -> Column:
    known = name.lower() in TYPES
    return Column(name.lower() if known else name, nullable, is_corrupt=not known, spelled=name)


def _tables(request: dict[str, Any]) -> bytes:
    """The names of the replicas right below a place."""
    options, others = read_store_options(request["options"])
    store = RetryingStore(kept_store(replica_url(others["path"]), options), threading.Event())
    return _json([name for name in find_replicas(store, levels=1) if name])


def _narrow(request: dict[str, Any]) -> bytes:
    return HeldPlan.read(request["about"]).narrowed(request["conditions"], request["slots"])


def _aggregate(request: dict[str, Any]) -> bytes:
    return _json(HeldPlan.read(request["about"]).aggregates(request["groups"], request["functions"]))


def _open(request: dict[str, Any]) -> bytes:
    queried, part = _part(request)
    (piece,) = part.pieces
    assert isinstance(piece, SealedPiece)
    return _json(open_for_java(queried, piece))


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


_ASKED: dict[str, Callable[[dict[str, Any]], bytes | PackedPlan]] = {
    "schema": _schema,
    "plan": _plan,
    "narrow": _narrow,
    "aggregate": _aggregate,
    "open": _open,
    "tables": _tables,
}


def _part(request: dict[str, Any]) -> tuple[QueriedLog, LogPart]:
    """The part of a log that a request is about, and what a query wants of the log."""
    queried, about = read_log(request["log"]), request["about"]
    row, extra = about[: PART.itemsize], about[PART.itemsize :]
    pieces: Sequence[Piece] = read_pieces(row, extra, queried.log)
    if "start" in request:
        pieces = tuple(cut_piece(piece, request["start"], request["stop"]) for piece in pieces)  # type: ignore[arg-type]
    return queried, LogPart(queried.log, pieces)


def _read(request: dict[str, Any], target: BinaryIO) -> None:
    import pyarrow  # noqa: PLC0415 - an extra

    fields = read_fields(request["schema"]) or [("sequence", TYPES["sequence"], True)]
    names = [name for name, _, _ in fields]
    asked = {name: nullable for name, _, nullable in fields if name != RECORDS}
    columns = [_column(name, nullable=nullable) for name, nullable in asked.items()]
    types = {field.name: field for field in arrow_schema(columns)}
    types[RECORDS] = pyarrow.field(RECORDS, pyarrow.int64(), nullable=False)
    schema = pyarrow.schema([types[name] for name in names])
    with pyarrow.ipc.new_stream(target, schema) as writer:  # Java expects a stream before an error, too
        queried, part = _part(request)
        if queried.needs_key and "key" not in map(str.lower, names):
            columns.append(_column("key", nullable=True))
        for batch in _batches(part, columns):
            held = _with_keys(batch, queried.keys) if queried.needs_key else batch
            ones = pyarrow.repeat(pyarrow.scalar(1, pyarrow.int64()), len(held))
            arrays = [ones if name == RECORDS else held.column(name) for name in names]
            writer.write_batch(pyarrow.record_batch(arrays, schema))


def _batches(part: LogPart, columns: list[Column]) -> Iterator[Any]:
    return read_partition(Partition((part,), 0), columns)


def _with_keys(batch: Any, wanted: Sequence[bytes] | None) -> Any:
    """The rows with any of the wanted keys. None: the rows that have a key."""
    import pyarrow  # noqa: PLC0415 - an extra
    from pyarrow import compute  # noqa: PLC0415 - an extra

    number = [name.lower() for name in batch.schema.names].index("key")
    keys = batch.column(number)
    if wanted is None:
        return batch.filter(compute.is_valid(keys))
    return batch.filter(compute.is_in(keys, pyarrow.array(wanted, pyarrow.binary())))


def _text(error: BaseException) -> bytes:
    notes = getattr(error, "__notes__", [])
    return "\n".join([f"{type(error).__name__}: {error}", *notes]).encode()


def _write(target: BinaryIO, data: bytes) -> None:
    target.write(len(data).to_bytes(4, "big") + data)


def main() -> None:
    """Serve standard input and output. Other code that writes to standard output reaches standard error instead."""
    target = os.fdopen(os.dup(1), "wb", buffering=1 << 16)
    os.dup2(2, 1)
    serve(sys.stdin.buffer, target)


if __name__ == "__main__":
    main()
