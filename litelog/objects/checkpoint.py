"""Checkpoints: what a replica held, in a file that is kept elsewhere, so that a later state can be compared with it.

Specified in litelog/objects/README.md#checkpoint.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from litelog.codec.checksum import crc32c
from litelog.codec.decoding import JsonLimits, naming, parse_json, require_fields
from litelog.objects.fields import (
    COUNT,
    CRC,
    SEQUENCE,
    Reader,
    number,
    optional,
    parsed,
    read_all,
    refuse,
    sha256,
    text,
)
from litelog.objects.position import Position

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1

LIMITS = JsonLimits(size=256 << 20, values=4 << 20, texts=4 << 20, containers=1 << 20, depth=3)
"""Limits of the JSON: a million log segments."""

SIGNED = b"litelog checkpoint\n"
"""Precedes the text that is signed, so that the signature of a checkpoint is not valid for any other text."""

_SIGNATURE_DIGITS, _KEY_DIGITS = 128, 64


@dataclass(frozen=True, slots=True)
class CheckpointSegment:
    """A log segment, or the beginning of the newest one."""

    file: str
    length: int
    digest: str
    """SHA-256 of its bytes."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a replica held at a moment."""

    log: str
    """The log's id, 32 hex digits."""
    format: str
    position: Position
    """Where the replica's latest history ended."""
    time: int
    """When that was, in microseconds since 1970."""
    segments: tuple[CheckpointSegment, ...]
    """All log segments of the history, oldest first."""
    next: int | None = None
    """The sequence after the last record; None without records."""
    previous: str | None = None
    """SHA-256 of the checkpoint file with which this state was compared before: this one continues it."""
    next_key: str | None = None
    """The public key, in hex, that the signer trusts as its own from now on; None if there is no other one."""
    key: str | None = None
    """The public Ed25519 key of the signer, in hex; None if it is not signed."""
    signature: str | None = None
    """The signature, in hex."""


def signed_text(checkpoint: Checkpoint) -> bytes:
    """The bytes that a checkpoint's signature is over."""
    return SIGNED + _text(_stated(replace(checkpoint, signature=None)))


def encode(checkpoint: Checkpoint) -> bytes:
    """The file's bytes: JSON, the same for the same checkpoint, with the CRC-32C of the other fields as the last
    field."""
    stated = _stated(checkpoint)
    return _text({**stated, "crc": crc32c(_text(stated))})


def decode(name: str, body: bytes) -> Checkpoint:
    """The checkpoint in the file ``name``. A CorruptObjectError names it, and what is wrong. Does not check the
    signature."""
    with naming(name, "checkpoint"):
        return _parse(body)


def _parse(body: bytes) -> Checkpoint:
    fields = require_fields(parse_json(body, LIMITS))
    if type(fields.get("version")) is not int or fields["version"] != VERSION:
        raise ValueError(f"version is not {VERSION}")
    stated = CRC("crc", fields.pop("crc", None))
    if stated != (crc := crc32c(_text(fields))):
        raise ValueError(f"CRC-32C is {crc}, expected {stated}")
    checkpoint = Checkpoint(**read_all(_FIELDS, fields))
    if (checkpoint.key is None) != (checkpoint.signature is None):
        refuse("signature of a checkpoint with that key", checkpoint.signature)
    if checkpoint.next_key is not None and checkpoint.key is None:
        refuse("next_key of a checkpoint that is not signed", checkpoint.next_key)
    if _text(_stated(checkpoint)) != _text(fields):  # else a signature would not cover all that the file says
        raise ValueError("has fields that a checkpoint does not have, or in another order")
    return checkpoint


def _stated(checkpoint: Checkpoint) -> dict[str, object]:
    stated: dict[str, object] = {
        "version": VERSION,
        "log": checkpoint.log,
        "format": checkpoint.format,
        "position": str(checkpoint.position),
        "time": checkpoint.time,
        "next": checkpoint.next,
        "previous": checkpoint.previous,
        "segments": [[each.file, each.length, each.digest] for each in checkpoint.segments],
        "next_key": checkpoint.next_key,
        "key": checkpoint.key,
        "signature": checkpoint.signature,
    }
    return {name: value for name, value in stated.items() if value is not None}


def _text(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, indent=1).encode()


def _segments(name: str, value: object) -> tuple[CheckpointSegment, ...]:
    if not isinstance(value, list):
        refuse(name, value)
    return tuple(_segment(name, each) for each in value)


def _segment(name: str, value: object) -> CheckpointSegment:
    if not isinstance(value, list) or len(value) != len(CheckpointSegment.__slots__):
        refuse(name, value)
    file, length, digest = value
    where = f"{name} of {text(name, file)}"
    return CheckpointSegment(text(name, file), COUNT(where, length), sha256(where, digest))


def _hex(digits: int) -> Reader[str]:
    def read(name: str, value: object) -> str:
        found = text(name, value)
        if len(found) != digits or not set(found) <= set("0123456789abcdef"):
            refuse(name, value)
        return found

    return read


_FIELDS: dict[str, Reader[Any]] = {
    "log": text,
    "format": text,
    "position": parsed(Position.parse),
    "time": number(),
    "segments": _segments,
    "next": optional(SEQUENCE),
    "previous": optional(sha256),
    "next_key": optional(_hex(_KEY_DIGITS)),
    "key": optional(_hex(_KEY_DIGITS)),
    "signature": optional(_hex(_SIGNATURE_DIGITS)),
}
