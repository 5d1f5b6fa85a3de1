"""Checkpoints: what a replica held, so that a later state can be compared with it.

A checkpoint is a file that is kept elsewhere, or an object of the replica: a numbered one, which continues the one
before it (``objects/checkpoint_chain.py``).

Specified in litelog/objects/README.md#checkpoint.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from litelog.codec.checksum import crc32c
from litelog.codec.decoding import JsonLimits, naming, parse_json, require_fields
from litelog.dataclass import dataclass
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
    require,
    sha256,
    text,
)
from litelog.objects.position import Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VERSION = 1
NUMBERED_VERSION = 2
"""The version of a checkpoint with a number."""

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
    """The contents of a replica at a moment."""

    log: str
    """The log's id, 32 hex digits."""
    format: str
    position: Position
    """The end of the replica's latest history."""
    time: int
    """When that was, in microseconds since 1970."""
    segments: tuple[CheckpointSegment, ...]
    """All log segments of the history, oldest first. With a number: those after the ``earlier`` ones."""
    next: int | None = None
    """The sequence after the last record; None without records."""
    previous: str | None = None
    """SHA-256 of the checkpoint's bytes that this one continues; None if it continues none."""
    number: int | None = None
    """Its number in the replica, from 1; None for a file that is kept elsewhere."""
    earlier: int = 0
    """How many log segments of the history precede ``segments``: checkpoints before this one state them."""
    history: str | None = None
    """The digest of these, which ``fold`` makes; None if there are none."""
    reason: str | None = None
    """Why the history begins again with this checkpoint; None if it continues the one before, or is the first."""
    next_key: str | None = None
    """The public key, in hex, that the signer trusts as its own from now on; None without another key."""
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
    version = NUMBERED_VERSION if "number" in fields else VERSION
    if type(fields.get("version")) is not int or fields["version"] != version:
        raise ValueError(f"version is not {version}")
    stated = CRC("crc", fields.pop("crc", None))
    if stated != (crc := crc32c(_text(fields))):
        raise ValueError(f"CRC-32C is {crc}, expected {stated}")
    checkpoint = Checkpoint(**read_all(_FIELDS, fields))
    if (checkpoint.key is None) != (checkpoint.signature is None):
        refuse("signature of a checkpoint with that key", checkpoint.signature)
    if checkpoint.next_key is not None and checkpoint.key is None:
        refuse("next_key of a checkpoint that is not signed", checkpoint.next_key)
    _check_number(checkpoint)
    if _text(_stated(checkpoint)) != _text(fields):  # else a signature would not cover all that the file says
        raise ValueError("has fields that a checkpoint does not have, or in another order")
    return checkpoint


def fold(history: str | None, segments: Iterable[CheckpointSegment]) -> str | None:
    """The digest of a history: each log segment is added to the digest of those before it. None for no log segments.

    It is the SHA-256, hex, of the JSON list ``[digest before it, file, length, SHA-256]``, without spaces; the first
    one's digest before is empty.
    """
    for segment in segments:
        stated = [history or "", segment.file, segment.length, segment.digest]
        history = hashlib.sha256(json.dumps(stated, separators=(",", ":")).encode()).hexdigest()
    return history


def _check_number(checkpoint: Checkpoint) -> None:
    """Refuse fields that contradict the number."""
    number = checkpoint.number
    if number is None:
        for name in ("earlier", "history", "reason"):
            require(
                not getattr(checkpoint, name), f"{name} of a checkpoint without a number", getattr(checkpoint, name)
            )
        return
    require(bool(checkpoint.segments), "segments of a checkpoint with a number", [])
    require((checkpoint.history is None) == (checkpoint.earlier == 0), "history", checkpoint.history)
    require(checkpoint.earlier == 0 or checkpoint.previous is not None, "earlier without previous", checkpoint.earlier)
    begins_again = checkpoint.previous is not None and checkpoint.earlier == 0 and checkpoint.reason is not None
    require(checkpoint.reason is None or begins_again, "reason", checkpoint.reason)


def _stated(checkpoint: Checkpoint) -> dict[str, object]:
    stated: dict[str, object] = {
        "version": VERSION if checkpoint.number is None else NUMBERED_VERSION,
        "log": checkpoint.log,
        "format": checkpoint.format,
        "number": checkpoint.number,
        "position": str(checkpoint.position),
        "time": checkpoint.time,
        "next": checkpoint.next,
        "previous": checkpoint.previous,
        "reason": checkpoint.reason,
        "earlier": None if checkpoint.number is None else checkpoint.earlier,
        "history": checkpoint.history,
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
    "number": optional(number(1, 1 << 63)),
    "earlier": optional(COUNT, 0),
    "history": optional(sha256),
    "reason": optional(text),
    "next_key": optional(_hex(_KEY_DIGITS)),
    "key": optional(_hex(_KEY_DIGITS)),
    "signature": optional(_hex(_SIGNATURE_DIGITS)),
}
