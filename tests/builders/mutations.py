"""Changes one field of an object, and computes all checksums and the chain of digests again.

Only the field's value shows the change. Each ``Mutation`` is a replica with one changed object; every later object that
names its digest is changed too.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from litelog.codec.checksum import crc32c
from litelog.codec.lz4_frames import compress_frames, decompress_frames, skippable_frame
from litelog.objects import sealed_segment
from litelog.objects.layout import parse_claim, parse_sealed, parse_snapshot, parse_wal

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD, TRAILER = sealed_segment._HEAD.size, sealed_segment._TRAILER.size
NUMBERS = (-1, 0, 1, 2, 7, 1 << 31, 1 << 53, (1 << 63) - 1, 1 << 63, 1 << 64)
OTHERS: tuple[Any, ...] = (None, True, False, 1.0, "", "x", "../x", "\ud800", "a\x1b[2Jb", [], [0], {}, ...)
"""``...``: the field is left out."""


@dataclass(frozen=True)
class Mutation:
    """One changed field."""

    key: str
    """The changed object's key."""
    path: tuple[str | int, ...]
    value: Any
    objects: dict[str, bytes]

    def __str__(self) -> str:
        return f"{self.key} {'.'.join(map(str, self.path))} = {'left out' if self.value is ... else repr(self.value)}"


def mutations(objects: dict[str, bytes]) -> Iterator[tuple[str, tuple[str | int, ...], Any]]:
    """(key, path, value) of every change."""
    for key, body in objects.items():
        document = open_object(key, body)[0]
        for path, held in _fields(document):
            for value in _values(path, held, objects, key):
                if value is ... or value != held or type(value) is not type(held):
                    yield key, path, value


def mutate(objects: dict[str, bytes], key: str, path: tuple[str | int, ...], value: Any) -> Mutation:
    """The replica with that change."""
    document, rest = open_object(key, objects[key])
    changed = deepcopy(document)
    holder = changed
    for step in path[:-1]:
        holder = holder[step]
    if value is ...:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return Mutation(key, path, value, _name_again(objects, key, close_object(key, changed, rest)))


def open_object(key: str, body: bytes) -> tuple[Any, bytes]:
    """An object's document, without its checksum, and the object's other bytes."""
    if parse_claim(key):
        fields = json.loads(body)
        fields.pop("crc")
        return fields, b""
    if parse_snapshot(key):
        return json.loads(decompress_frames(body, 1 << 30)), b""
    if parse_wal(key):
        size = int.from_bytes(body[4:8], "little")
        fields = json.loads(body[8 : 8 + size])
        fields.pop("header_crc")
        return fields, body[8 + size :]
    assert parse_sealed(key)
    size = int.from_bytes(body[-12:-8], "little")
    return json.loads(decompress_frames(body[-size + HEAD : -TRAILER], 1 << 30)), body[:-size]


def close_object(key: str, document: Any, rest: bytes) -> bytes:
    """The object with this document, its checksum and its other bytes: the inverse of ``open_object``."""
    if parse_claim(key):
        return json.dumps({**document, "crc": crc32c(json.dumps(document, indent=1).encode())}, indent=1).encode()
    text = json.dumps(document, separators=(",", ":")).encode()
    if parse_snapshot(key):
        return b"".join(compress_frames(text))
    if parse_wal(key):
        return skippable_frame(b'%s,"header_crc":%d}' % (text[:-1], crc32c(text))) + rest
    framed = b"".join(compress_frames(text))
    size = HEAD + len(framed) + TRAILER
    whole = skippable_frame(framed + sealed_segment._TRAILER.pack(1, 0, size, 0, b"seal"))
    return rest + whole[:-8] + crc32c(whole[:-8]).to_bytes(4, "little") + b"seal"


def _name_again(objects: dict[str, bytes], key: str, body: bytes) -> dict[str, bytes]:
    """All objects, after the change of one. Each object that names its digest gets the new one, and so on."""
    made = dict(objects)
    digests = {sha256(objects[key]).hexdigest(): sha256(body).hexdigest()}
    made[key] = body
    for other in sorted(objects, key=_order):
        if other == key or parse_claim(other) or parse_sealed(other):
            continue
        document, rest = open_object(other, objects[other])
        name = "chain" if parse_snapshot(other) else "previous"
        if document.get(name) in digests:
            document[name] = digests[document[name]]
            made[other] = close_object(other, document, rest)
            digests[sha256(objects[other]).hexdigest()] = sha256(made[other]).hexdigest()
    return made


def _order(key: str) -> tuple[Any, ...]:
    """Sorts the objects of a generation so that each follows those that it names.

    A snapshot comes after the WAL segments before it."""
    if (snapshot := parse_snapshot(key)) is not None:
        return (snapshot[0], snapshot[1], -1)
    position = parse_wal(key)
    return ("", 0, 0) if position is None else (position.generation, position.index, position.offset)


def _fields(document: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    members = enumerate(document) if isinstance(document, list) else document.items()
    for name, value in members:
        yield (*path, name), value
        if isinstance(value, dict | list):
            yield from _fields(value, (*path, name))


def _values(path: tuple[str | int, ...], held: Any, objects: dict[str, bytes], key: str) -> Iterator[Any]:
    yield from NUMBERS
    yield from OTHERS
    if type(held) is int:
        yield from (held + 1, held - 1, held + 256)
    if isinstance(held, list):
        yield from (held[:-1], [*held, *held[-1:]], held[::-1])
    if isinstance(held, str):
        yield from (held[:-1], held + "0", held[::-1])
    for other, body in objects.items():  # the same field of other objects of the same kind
        if other != key and other.split("/")[0:4:2] == key.split("/")[0:4:2] and other[-16:] == key[-16:]:
            try:
                value = open_object(other, body)[0]
                for step in path:
                    value = value[step]
            except (LookupError, TypeError):
                continue
            yield value
