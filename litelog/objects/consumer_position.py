"""The position of a consumer, and the object that holds it in a replica: JSON with a CRC-32C, one object a move.

Specified in litelog/objects/README.md#position-of-a-consumer.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from litelog.codec.checksum import crc32c
from litelog.codec.decoding import JsonLimits, naming, parse_json, require_fields
from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, UnknownVersionError
from litelog.objects.fields import COUNT, CRC, SEQUENCE, flag, number, optional, read_all, require, text
from litelog.objects.layout import MAX_REVISION, consumer_key

if TYPE_CHECKING:
    from litelog.objects.fields import Reader

VERSION = 1

LIMITS = JsonLimits(size=16 << 10, values=64, texts=64, containers=8, depth=2)
"""Far above any position's object."""

MOST_MOVE = 100
"""The most characters of a move's id."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A record that a consumer has processed, by which a log that was rewound is recognised."""

    sequence: int
    size: int
    """How many sequences it takes: 1, or a number of bytes if sequences count bytes."""
    crc: int
    """CRC-32C of its contents."""

    @property
    def end(self) -> int:
        """The sequence after it."""
        return self.sequence + self.size


@dataclass(frozen=True, slots=True)
class ConsumerPosition:
    """How far a consumer has processed its log."""

    revision: int
    """Rises with each move of the position. The compare-and-set compares it."""
    next: int | None
    """The sequence of the first record that is not processed; None: the first record of the log."""
    updated: int
    """When it was moved, in microseconds since 1970."""
    evidence: Evidence | None = None
    """The newest known record before ``next``; None if none is known."""
    move: str | None = None
    """The random id of the move: the mover recognises a move whose answer was lost."""


@dataclass(frozen=True, slots=True)
class PositionObject:
    """A replica's object about a consumer."""

    consumer: str
    position: ConsumerPosition
    deleted: bool = False
    """The consumer was deleted at this revision."""
    place: str | None = None
    """``place_of`` the replica in which it was moved. A copy of the replica has the same object."""

    @property
    def key(self) -> str:
        return consumer_key(self.consumer, self.position.revision)


def encode(found: PositionObject) -> bytes:
    """The object's bytes: the same for the same position, with the CRC-32C of the other fields as the last field."""
    position = found.position
    stated: dict[str, object] = {"version": VERSION, "consumer": found.consumer, **position_fields(position)}
    stated = {name: value for name, value in stated.items() if value is not None}
    if found.place is not None:
        stated["place"] = found.place
    if found.deleted:
        stated["deleted"] = True
    return _text({**stated, "crc": crc32c(_text(stated))})


def decode(key: str, body: bytes) -> PositionObject:
    """The position in the object ``key``. Raises CorruptObjectError, which names the key, and UnknownVersionError."""
    with naming(key, "consumer's position"):
        fields = require_fields(parse_json(body, LIMITS))
        version = fields.get("version")
        if type(version) is int and version > VERSION:
            raise UnknownVersionError(key, "position", VERSION, version)
        require(type(version) is int and version == VERSION, "version", version)
        stated = CRC("crc", fields.pop("crc", None))
        if stated != (crc := crc32c(_text(fields))):
            raise ValueError(f"CRC-32C is {crc}, expected {stated}")
        found = PositionObject(position=read_position(fields), **read_all(_OBJECT, fields))
    if found.key != key:
        raise CorruptObjectError(key, "consumer and revision in the object", key, found.key)
    return found


def place_of(url: str) -> str:
    """Make the text by which a position names the replica in which it was moved: a digest of its URL."""
    return hashlib.sha256(url.encode(errors="surrogateescape")).hexdigest()[:16]


def position_fields(position: ConsumerPosition) -> dict[str, object]:
    """A position as JSON values, None included."""
    evidence = position.evidence
    return {
        "revision": position.revision,
        "next": position.next,
        "updated": position.updated,
        "evidence": None
        if evidence is None
        else {"sequence": evidence.sequence, "size": evidence.size, "crc": evidence.crc},
        "move": position.move,
    }


def read_position(fields: dict[str, Any]) -> ConsumerPosition:
    """The position in a JSON object. Raises ValueError."""
    return ConsumerPosition(**read_all(_POSITION, fields))


def read_evidence(_name: str, value: object) -> Evidence:
    """The evidence in a JSON object. Raises ValueError."""
    return Evidence(**read_all(_EVIDENCE, require_fields(value)))


def read_move(name: str, value: object) -> str:
    """The id of a move. Raises ValueError."""
    found = text(name, value)
    require(0 < len(found) <= MOST_MOVE, name, value)
    return found


_EVIDENCE: dict[str, Reader[Any]] = {"sequence": SEQUENCE, "size": number(1), "crc": CRC}
_POSITION: dict[str, Reader[Any]] = {
    "revision": number(1, MAX_REVISION + 1),
    "next": optional(SEQUENCE),
    "updated": COUNT,
    "evidence": optional(read_evidence),
    "move": optional(read_move),
}
_OBJECT: dict[str, Reader[Any]] = {
    "consumer": text,
    "deleted": optional(flag, default=False),
    "place": optional(text),
}


def _text(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, indent=1).encode()
