"""Claims. A claim is the object that names the owner who writes a generation, and what the generation continues.

Specified in litelog/objects/README.md#claim.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from litelog.codec.checksum import crc32c
from litelog.codec.decoding import JsonLimits, naming, parse_json, require_fields
from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, UnknownFormatError
from litelog.objects.fields import CRC, Reader, number, optional, parsed, read_all, refuse, sha256, text
from litelog.objects.layout import Fencing, claim_key
from litelog.objects.position import MAX_INDEX, ClaimName, Generation, Position, epoch_of, generation

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.formats import LogFormat

VERSION = 1

ENCRYPTED_VERSION = 2
"""Of the claim of an encrypted generation, so that an earlier litelog refuses it."""

LIMITS = JsonLimits(size=64 << 10, values=256, texts=256, containers=8, depth=3)
"""Limits of the JSON. A claim has eighteen fields; a reason may name folders and files, each of a few KiB."""

MAX_RECIPIENTS = 64
"""How many recipients an encrypted generation may have."""

MAX_TRANSACTIONS = 32
"""How many applications' transactions a claim carries: those that wrote last."""


class Writer(StrEnum):
    """The kind of program that writes a generation."""

    DAEMON = "daemon"
    """Writes the first snapshot and WAL segments before any sealed segment."""
    BATCH = "batch"
    """Writes sealed segments first, and the snapshot that names them last. So the generation may hold sealed segments
    that no reader may use yet, or ever, and no snapshot."""


class Relation(StrEnum):
    """The relation of a generation to its predecessor."""

    FIRST = "first"
    """The generation has no predecessor."""
    CONTINUES = "continues"
    """It holds every byte that the predecessor shipped. Its index is the predecessor's plus ``shift``."""
    DIVERGED = "diverged"
    """The log no longer holds what the predecessor shipped. ``reason`` says why."""


@dataclass(frozen=True, slots=True)
class Encryption:
    """How the objects of a generation are encrypted."""

    recipients: tuple[str, ...]
    """The recipients who can read them: public keys, and the names of other kinds."""
    keys: tuple[str, ...]
    """The generation's key, wrapped for the recipients: ``<kind>:<base64>``."""
    mac: str = ""
    """Proves, to those who have the key, that the claim was made by one who had it; empty while it is computed."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One owner's statement that a generation is its own. Created once, before any other object of the generation."""

    log: str
    """The log's id, 32 hex digits."""
    format: str
    owner: str
    host: str
    generation: Generation
    first: int
    """The first index that this generation ships as WAL segments."""
    relation: Relation
    time: int
    """Microseconds since 1970."""
    predecessor: Generation | None = None
    """The preceding generation."""
    predecessor_end: Position | None = None
    """The position of the predecessor when this was claimed. The predecessor's terminal shows where it ended."""
    shift: int = 0
    """If the generation continues: the number to add to the predecessor's index to get this one's."""
    reason: str | None = None
    """If the generation diverged: why."""
    shared_end: Position | None = None
    """If the generation diverged: where in it the log segment ends that the log still shares with the predecessor.
    Readers take the generation once it has come that far. None if the two share no log segment from ``first`` on."""
    fencing: Fencing = Fencing.REQUIRED
    predecessor_file: str | None = None
    """The file name of the log segment with which the predecessor ended then. Shows whether ``shift`` is right."""
    transactions: tuple[tuple[str, int], ...] = ()
    """(Id, newest version) of each application whose writes count once, the last one to write at the end. Each claim
    carries those of its predecessor on, so a version that this or an earlier generation holds is known from here."""
    encryption: Encryption | None = None
    """How the generation's objects are encrypted; None if they are not."""

    @property
    def epoch(self) -> int:
        return epoch_of(self.generation)

    @property
    def is_isolated(self) -> bool:
        """Whether the claim's name holds the generation, so that its epoch may have other claims."""
        return self.fencing is Fencing.ISOLATED

    @property
    def writer(self) -> Writer:
        """The kind of program that made it. All batch writers of a log have one owner id, which no daemon has."""
        return Writer.BATCH if self.owner == batch_owner(self.log) else Writer.DAEMON

    @property
    def merges(self) -> bool:
        """Whether the generation holds log segments of its predecessor in fewer, merged ones. Then ``shift`` maps only
        those after the last merged one, and the predecessor's end. Those before the first one keep their index."""
        return self.shift != 0 and self.writer is Writer.BATCH

    @property
    def name(self) -> ClaimName:
        return ClaimName(self.epoch, self.generation if self.is_isolated else None)

    @property
    def key(self) -> str:
        return claim_key(*self.name)


def batch_owner(log: str) -> str:
    """The owner id of all batch writers of a log, which are Spark jobs. They put no WAL segments, so they can share an
    id. Each job names its data in a generation that it alone has claimed."""
    return hashlib.sha256(f"litelog.spark {log}".encode()).hexdigest()[:32]


def open_claimed_format(claim: Claim, open_named: Callable[[str], LogFormat]) -> LogFormat:
    """The format that a claim names, from ``open_named``. An UnknownFormatError also names the claim."""
    try:
        return open_named(claim.format)
    except UnknownFormatError as error:
        raise UnknownFormatError(error.name, error.known, claim.key) from None


def encode(claim: Claim) -> bytes:
    """The object's bytes: JSON, the same for the same claim, with the CRC-32C of the other fields as the last field."""
    stated = _stated(claim)
    return _text({**stated, "crc": crc32c(_text(stated))})


def authenticated_text(claim: Claim) -> bytes:
    """The text that the code in an encrypted generation's claim authenticates: all fields but the code and the CRC."""
    assert claim.encryption is not None
    return _text(_stated(replace(claim, encryption=replace(claim.encryption, mac=""))))


def _stated(claim: Claim) -> dict[str, object]:
    stated: dict[str, object] = {"version": VERSION if claim.encryption is None else ENCRYPTED_VERSION}
    stated |= {name: value for name in Claim.__slots__ if (value := getattr(claim, name)) is not None}
    for name in ("predecessor_end", "shared_end"):
        if name in stated:
            stated[name] = str(stated[name])
    if claim.fencing is Fencing.REQUIRED:
        del stated["fencing"]
    if claim.transactions:
        stated["transactions"] = dict(claim.transactions)
    else:
        del stated["transactions"]
    if claim.encryption is not None:
        found = claim.encryption
        stated["encryption"] = {"recipients": found.recipients, "keys": found.keys, "mac": found.mac}
    return stated


def add_transaction(
    transactions: tuple[tuple[str, int], ...], application: str, version: int
) -> tuple[tuple[str, int], ...]:
    """The transactions with one more, without that application's earlier one, and at most MAX_TRANSACTIONS."""
    others = tuple(one for one in transactions if one[0] != application)
    return (*others, (application, version))[-MAX_TRANSACTIONS:]


def decode(key: str, body: bytes) -> Claim:
    """The claim in the object ``key``. A CorruptObjectError names the key and what is wrong."""
    with naming(key, "claim"):
        claim = parse(body)
    if claim.key != key:
        raise CorruptObjectError(key, "epoch in the claim", key, claim.key)
    return claim


def parse(body: bytes | str) -> Claim:
    """Decode the claim in ``body``. Raises ValueError if it is not a claim.

    Checks the checksum, all types and ranges, and that the fields fit each other. What other objects must say of the
    generation is checked where they are read.
    """
    fields = require_fields(parse_json(body.encode() if isinstance(body, str) else body, LIMITS))
    version = ENCRYPTED_VERSION if "encryption" in fields else VERSION
    if type(fields.get("version")) is not int or fields["version"] != version:
        raise ValueError(f"version is not {version}")
    stated = CRC("crc", fields.pop("crc", None))
    if stated != (crc := crc32c(_text(fields))):
        raise ValueError(f"CRC-32C is {crc}, expected {stated}")
    claim = Claim(**read_all(_FIELDS, fields))
    _check_relation(claim)
    return claim


def _transactions(name: str, value: object) -> tuple[tuple[str, int], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict) or not 0 < len(value) <= MAX_TRANSACTIONS:
        refuse(name, value)
    return tuple((text(f"{name} of", key), _VERSION(f"{name} of {key}", version)) for key, version in value.items())


def _encryption(name: str, value: object) -> Encryption | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        refuse(name, value)
    parts = read_all(_ENCRYPTION, value)
    return Encryption(parts["recipients"], parts["keys"], parts["mac"])


def _texts(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= MAX_RECIPIENTS:
        refuse(name, value)
    return tuple(text(name, each) for each in value)


_ENCRYPTION: dict[str, Reader[Any]] = {"recipients": _texts, "keys": _texts, "mac": sha256}

_VERSION = number()

_FIELDS: dict[str, Reader[Any]] = {
    "log": text,
    "format": text,
    "owner": text,
    "host": text,
    "generation": parsed(generation),
    "first": number(below=MAX_INDEX),
    "relation": parsed(Relation),
    "time": number(),
    "predecessor": optional(parsed(generation)),
    "predecessor_end": optional(parsed(Position.parse)),
    "shift": number(1 - MAX_INDEX, MAX_INDEX),
    "reason": optional(text),
    "shared_end": optional(parsed(Position.parse)),
    "fencing": optional(parsed(Fencing), Fencing.REQUIRED),
    "predecessor_file": optional(text),
    "transactions": _transactions,
    "encryption": _encryption,
}


def _check_relation(claim: Claim) -> None:
    """Check that the fields on the predecessor fit the relation to it."""
    older = claim.predecessor
    if (older is None) != (claim.relation is Relation.FIRST):
        refuse(f"predecessor of a claim with relation {claim.relation}", older)
    if older is not None and epoch_of(older) >= claim.epoch:
        refuse(f"predecessor of a claim of epoch {claim.epoch}", older)
    if claim.shift and claim.relation is not Relation.CONTINUES:
        refuse(f"shift of a claim with relation {claim.relation}", claim.shift)
    if claim.predecessor_file is not None and claim.predecessor_end is None:
        refuse("predecessor_file of a claim without predecessor_end", claim.predecessor_file)
    if claim.predecessor_end is not None and claim.predecessor_end.generation != older:
        refuse(f"predecessor_end of a claim with predecessor {older}", str(claim.predecessor_end))
    _check_shared_end(claim)


def _check_shared_end(claim: Claim) -> None:
    shared = claim.shared_end
    if shared is not None and claim.relation is not Relation.DIVERGED:
        refuse(f"shared_end of a claim with relation {claim.relation}", str(shared))
    if shared is not None and (shared.generation != claim.generation or shared.index < claim.first):
        refuse(f"shared_end of generation {claim.generation} with first {claim.first}", str(shared))


def _text(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, indent=1).encode()
