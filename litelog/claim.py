"""Claims: the object that says who writes a generation, and what it continues."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from enum import StrEnum

from litelog.checksum import crc32c
from litelog.errors import CorruptObjectError
from litelog.layout import Fencing, claim_key
from litelog.position import ClaimName, Position, epoch_of, generation

VERSION = 1

_OPTIONAL = {"predecessor", "predecessor_end", "reason", "fencing"}
_NUMBERS = {"first", "shift", "time"}


class Relation(StrEnum):
    """What a generation is to its predecessor."""

    FIRST = "first"
    """There is none."""
    CONTINUES = "continues"
    """It holds every byte that the predecessor shipped; its index = the predecessor's + shift."""
    DIVERGED = "diverged"
    """The log no longer holds what the predecessor shipped; ``reason`` says why."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One owner's word that a generation is its own. Created once, before anything else of the generation."""

    log: str
    """The log's id, 32 hex digits."""
    format: str
    owner: str
    host: str
    generation: str
    first: int
    """The first index that this generation ships as WAL segments."""
    relation: Relation
    time: int
    """Microseconds since 1970."""
    predecessor: str | None = None
    """The generation before it."""
    predecessor_end: str | None = None
    """Where the predecessor stood when this was claimed: a position. Its terminal says where it ended."""
    shift: int = 0
    """For a generation that continues: what to add to the predecessor's index to get this one's."""
    reason: str | None = None
    """For a generation that diverged: why."""
    fencing: Fencing = Fencing.REQUIRED

    @property
    def epoch(self) -> int:
        return epoch_of(generation(self.generation))

    @property
    def is_isolated(self) -> bool:
        """Whether its name holds the generation, and its epoch may have other claims."""
        return self.fencing is Fencing.ISOLATED

    @property
    def is_of_spark(self) -> bool:
        """Whether a Spark writer made it: its generation may hold sealed segments that nobody is to read yet, or ever,
        and no snapshot."""
        return self.owner == spark_owner(self.log)

    @property
    def name(self) -> ClaimName:
        return ClaimName(self.epoch, generation(self.generation) if self.is_isolated else None)

    @property
    def key(self) -> str:
        return claim_key(*self.name)


def spark_owner(log: str) -> str:
    """The owner id of all Spark writers of a log. Nothing of theirs goes on by itself, so none needs fencing from the
    next; two at once are kept apart by the claim, which is of one generation."""
    return hashlib.sha256(f"litelog.spark {log}".encode()).hexdigest()[:32]


def encode(claim: Claim) -> bytes:
    """The object's bytes: JSON, always the same for the same claim, the CRC-32C of its fields as the last one."""
    fields = {"version": VERSION, **asdict(claim)}
    unsaid = {"fencing": Fencing.REQUIRED}
    stated = {name: value for name, value in fields.items() if value is not None and value != unsaid.get(name)}
    return _text({**stated, "crc": crc32c(_text(stated))})


def decode(key: str, body: bytes) -> Claim:
    """The claim in the object ``key``; CorruptObjectError names it and what is wrong."""
    try:
        claim = parse(body)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptObjectError(key, f"claim: {error}") from error
    if claim.key != key:
        raise CorruptObjectError(key, "epoch in the claim", key, claim.key)
    return claim


def parse(body: bytes | str) -> Claim:
    """The claim in ``body``; ValueError (or what JSON of another shape gives) if it is none."""
    fields = json.loads(body)
    if fields.get("version") != VERSION:
        raise ValueError(f"version is not {VERSION}")
    stated_crc = fields.pop("crc", None)  # absent where a person wrote the claim
    if stated_crc is not None and stated_crc != (crc := crc32c(_text(fields))):
        raise ValueError(f"CRC-32C is {crc}, expected {stated_crc}")
    values = {name: fields.get(name) for name in Claim.__slots__}
    for name, value in values.items():
        if not (isinstance(value, int if name in _NUMBERS else str) or (value is None and name in _OPTIONAL)):
            raise ValueError(f"{name} is {value!r}")
    fencing = Fencing.REQUIRED if values["fencing"] is None else Fencing(values["fencing"])
    claim = Claim(**{**values, "relation": Relation(values["relation"]), "fencing": fencing})
    generation(claim.generation)
    if claim.predecessor is not None:
        generation(claim.predecessor)
    if claim.predecessor_end is not None:
        Position.parse(claim.predecessor_end)
    return claim


def _text(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, indent=1).encode()
