"""A process that plans and reads for the columnar reader. ``PythonWorker.java`` starts it and sends the requests.

A request is JSON, with its length before it (u32, big-endian), and then the plan that it is about, if it states
``plan_bytes``. The answer to a read is an Arrow stream. Each other
answer has its length before it: a plan has the form of ``PackedPlan``, and all others are JSON. After the answer comes
the error, as text with its length before it. The text is empty if there was no error.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from base64 import b64decode
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO

from litelog.errors import LitelogError
from litelog.spark.jvm.handover import PackedPlan, cut_piece, describe_columns, hand_over
from litelog.spark.jvm.narrowing import HeldPlan
from litelog.spark.jvm.opening import open_for_java
from litelog.spark.jvm.part_rows import LEAST, MOST, read_pieces
from litelog.spark.jvm.pickles import unpickled
from litelog.spark.options import Range, parse_options
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

    from litelog.spark.scan.partitions import Piece


def serve(source: BinaryIO, target: BinaryIO) -> None:
    """Answer requests until the source ends."""
    while head := source.read(4):
        request = json.loads(source.read(int.from_bytes(head, "big")))
        request["plan"] = source.read(request.get("plan_bytes", 0))
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
    columns = asked_columns(options, request["schema"])
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
    return HeldPlan.read(request["plan"]).narrowed(request["bounds"], request["slots"])


def _totals(request: dict[str, Any]) -> bytes:
    return _json(HeldPlan.read(request["plan"]).totals(request["bounds"], request["totals"]))


def _open(request: dict[str, Any]) -> bytes:
    part = _part(request)
    (piece,) = part.pieces
    assert isinstance(piece, SealedPiece)
    return _json(open_for_java(part.log, piece))


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


_ASKED: dict[str, Callable[[dict[str, Any]], bytes | PackedPlan]] = {
    "schema": _schema,
    "plan": _plan,
    "narrow": _narrow,
    "totals": _totals,
    "open": _open,
    "tables": _tables,
}


def _part(request: dict[str, Any]) -> LogPart:
    """The part of a log that a request is about, narrowed to the bounds of the query, except for keys."""
    pickled, row, extra = (b64decode(request[name]) for name in ("log", "row", "extra"))
    bounds, log = request["bounds"], unpickled(pickled)
    pieces: Sequence[Piece] = read_pieces(row, extra, log)
    if "start" in request:
        pieces = tuple(cut_piece(piece, request["start"], request["stop"]) for piece in pieces)  # type: ignore[arg-type]
    first, last, since, until = (bounds[name] for name in ("first", "last", "since", "until"))
    wanted = log.range
    if (first, last) != (LEAST, MOST):
        wanted = wanted.narrow(max(0, first), max(0, last + 1))
    times = Range(since=None if since == LEAST else since, until=None if until == MOST else until + 1)
    return LogPart(replace(log, range=wanted.within_times(times)), pieces)


def _read(request: dict[str, Any], target: BinaryIO) -> None:
    import pyarrow  # noqa: PLC0415 - an extra

    keys, needs_key = request["bounds"]["keys"], request["bounds"]["needs_key"]
    keyed = keys is not None or needs_key
    columns = [_column(name, nullable=nullable) for name, _, nullable in request["columns"]]
    names = [name for name, _, _ in request["columns"]]
    if keyed and "key" not in map(str.lower, names):
        columns.append(_column("key", nullable=True))
    with pyarrow.ipc.new_stream(target, arrow_schema(columns[: len(names)])) as writer:
        for batch in _batches(_part(request), columns):
            held = _with_keys(batch, keys) if keyed else batch
            writer.write_batch(held.select(names))


def _batches(part: LogPart, columns: list[Column]) -> Iterator[Any]:
    return read_partition(Partition((part,), 0), columns)


def _with_keys(batch: Any, wanted: list[str] | None) -> Any:
    """The rows with one of the wanted keys, each byte of which is a character. None: those that have a key."""
    import pyarrow  # noqa: PLC0415 - an extra
    from pyarrow import compute  # noqa: PLC0415 - an extra

    number = [name.lower() for name in batch.schema.names].index("key")
    keys = batch.column(number)
    if wanted is None:
        return batch.filter(compute.is_valid(keys))
    values = pyarrow.array([key.encode("latin-1") for key in wanted], pyarrow.binary())
    return batch.filter(compute.is_in(keys, values))


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
