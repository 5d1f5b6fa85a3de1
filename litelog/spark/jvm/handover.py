"""Writes a plan for the columnar reader: sealed segments that Java may read, and parts that only Python reads."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.encryption.identities import find_identity_file
from litelog.formats.capabilities import extra_columns
from litelog.formats.litelog import LitelogFormat
from litelog.spark.jvm.conditions import QueriedLog
from litelog.spark.jvm.part_rows import PartRows, is_plain
from litelog.spark.jvm.pickles import pickled, unpickled
from litelog.spark.options import Mode
from litelog.spark.scan.partitions import SealedPiece
from litelog.spark.scan.schema import type_of
from litelog.spark.scan.task import kept_store, open_log_format
from litelog.stores.object_store import Signing
from litelog.stores.registry import local_folder, scheme_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from litelog.spark.scan.partitions import Partition, PlannedLog
    from litelog.spark.scan.schema import Column

MAX_PLAN_BYTES = 64 << 20
"""The longest plan that is passed as an option. If a plan is longer, Python reads its logs."""

SIGNED_SECONDS = 3600
"""How long a signed URL of one object is valid. Python reads what Java did not read in this time."""

_KINDS = {"long": "bigint", "integer": "int"}
"""Names of types in JSON that have another name in the language of CREATE TABLE."""


def describe_columns(columns: Sequence[Column]) -> str:
    """The columns as Java expects them: in the language of CREATE TABLE."""
    return describe_fields((column.title, type_of(column), column.nullable) for column in columns)


def describe_fields(fields: Iterable[tuple[str, str, bool]]) -> str:
    """The same, for columns given by name, type, and whether they may be null."""
    quoted = ((name.replace("`", "``"), kind, nullable) for name, kind, nullable in fields)
    return ", ".join(f"`{name}` {kind}{'' if nullable else ' NOT NULL'}" for name, kind, nullable in quoted)


def read_fields(schema: str) -> list[tuple[str, str, bool]]:
    """The columns of a schema that Java has written as JSON: name, type, and whether there may be nulls."""
    fields = json.loads(schema)["fields"]
    kinds = (field["type"] if isinstance(field["type"], str) else json.dumps(field["type"]) for field in fields)
    named = (_KINDS.get(kind, kind) for kind in kinds)
    return [(field["name"], kind, field["nullable"]) for field, kind in zip(fields, named, strict=True)]


@dataclass(frozen=True, slots=True)
class PackedPlan:
    """A plan for Java: facts about all of it as JSON, with their length before them (u32, little-endian), then the rows
    of its parts, and their extra bytes. ``ReadPlan.java`` describes the facts."""

    facts: dict[str, Any]
    rows: PartRows

    @property
    def nbytes(self) -> int:
        """The bytes of the plan."""
        return len(self._head()) + self.rows.nbytes

    def chunks(self) -> Iterator[bytes]:
        """Yield the plan. Its rows are made while they are taken."""
        yield self._head()
        for rows in self.rows.arrays():
            yield rows.tobytes()
        yield from self.rows.extras

    def _head(self) -> bytes:
        text = json.dumps(self.facts).encode()
        return len(text).to_bytes(4, "little") + text


def hand_over(partitions: Sequence[Partition], columns: Sequence[Column]) -> PackedPlan:
    """Describe a plan for Java."""
    rows = PartRows()
    held: dict[int, tuple[int, PlannedLog, bool]] = {}
    for task, partition in enumerate(partitions):
        for part in partition.parts:
            if id(part.log) not in held:
                held[id(part.log)] = (len(held), part.log, is_readable(part.log))
            number, _, readable = held[id(part.log)]
            rows.add(task, number, part, is_readable=readable)
    rows.close()
    logs = [log for _, log, _ in held.values()]
    facts = {
        "schema": describe_columns(columns),
        "logs": [describe_log(QueriedLog(log)) for log in logs],
        "taken": [],
        **_what_holds(logs),
        "parts": rows.count,
    }
    return PackedPlan(facts, rows)


def _what_holds(logs: Sequence[PlannedLog]) -> dict[str, bool]:
    """The facts that hold for all logs. ``strict``: a row is a record. ``timed``, ``valued``: each record has a
    timestamp, and a value. ``by_sequence``, ``by_timestamp``: tasks can apply conditions on that column."""
    strict = all(log.mode is Mode.FAILFAST for log in logs)
    formats = [open_log_format(log.format, log.pattern) for log in logs]
    return {
        "strict": strict,
        "timed": all(one.has_timestamps for one in formats),
        "valued": not any(extra_columns(one) for one in formats),
        "by_sequence": strict and all(not log.divisible and log.committed is None for log in logs),
        "by_timestamp": strict and all(log.format == LitelogFormat.name for log in logs),
    }


def is_columnar(partitions: Sequence[Partition]) -> bool:
    """Whether Java may read any of the partitions by itself."""
    parts = (part for partition in partitions for part in partition.parts)
    return any(
        isinstance(piece, SealedPiece) and is_plain(piece) and is_readable(part.log)
        for part in parts
        for piece in part.pieces[:1]
    )


def pack_plan(partitions: Sequence[Partition], columns: Sequence[Column]) -> str | None:
    """A plan as the option ``plan`` holds it, compressed; None if it is too long."""
    compress = zlib.compressobj(1)
    packed = [compress.compress(chunk) for chunk in hand_over(partitions, columns).chunks()]
    text = base64.b64encode(b"".join([*packed, compress.flush()])).decode()
    return text if len(text) <= MAX_PLAN_BYTES else None


def describe_log(queried: QueriedLog) -> str:
    """The log as Java passes it on to Python workers."""
    return base64.b64encode(pickled(queried)).decode()


def read_log(described: str) -> QueriedLog:
    """The log that ``describe_log`` described."""
    found = unpickled(base64.b64decode(described))
    assert isinstance(found, QueriedLog)
    return found


def is_readable(log: PlannedLog) -> bool:
    """Whether Java may read sealed segments of the log: those in folders, and in stores that sign URLs."""
    if log.folder is not None or log.format != LitelogFormat.name or log.mode is not Mode.FAILFAST:
        return False
    return object_url(log, log.replica_claim.key) is not None


def object_url(log: PlannedLog, key: str) -> str | None:
    """The URL by which Java reads an object of the replica: of a file, or a signed one, which anyone can use for an
    hour. None if Java can read none of its objects: it does not decrypt."""
    if find_identity_file(log.store) is not None:
        return None
    store = kept_store(log.url, log.store)
    if isinstance(store, Signing):
        return store.sign(key, SIGNED_SECONDS)
    folder = local_folder(store.url) if scheme_of(log.url) == "file" else None
    return None if folder is None else Path(folder, key).absolute().as_uri()


def cut_piece(piece: SealedPiece, start: int, stop: int) -> SealedPiece:
    """The part of a sealed piece in bytes [start, stop) of the log segment, on commit boundaries."""
    return replace(piece, start=start, stop=stop, follows=piece.follows if start == 0 else None)
