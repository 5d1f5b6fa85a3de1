"""The bytes of a checkpoint: a vector that other programs can compare with, and what a decoder refuses."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from litelog.codec.checksum import crc32c
from litelog.errors import CorruptObjectError
from litelog.objects.checkpoint import decode, encode, signed_text
from tests.builders.checkpoints import VECTOR, specification

if TYPE_CHECKING:
    from litelog.objects.checkpoint import Checkpoint

DIGEST = hashlib.sha256(b"abc").hexdigest()
SIGNED_VECTOR = replace(VECTOR, previous=DIGEST, next_key="ef" * 32, key="ab" * 32, signature="cd" * 64)


@pytest.mark.parametrize("checkpoint", [VECTOR, SIGNED_VECTOR, replace(VECTOR, next=None, segments=())])
def test_what_is_decoded_is_what_was_encoded(checkpoint: Checkpoint) -> None:
    assert decode("c", encode(checkpoint)) == checkpoint


def test_the_text_that_is_signed_is_all_but_the_signature_and_the_crc() -> None:
    fields = json.loads(encode(SIGNED_VECTOR))
    del fields["signature"], fields["crc"]
    assert signed_text(SIGNED_VECTOR) == b"litelog checkpoint\n" + json.dumps(fields, indent=1).encode()


def test_the_specification_has_the_bytes_of_the_vector() -> None:
    assert f"```json\n{encode(VECTOR).decode()}\n```" in specification()
    assert f"`{hashlib.sha256(encode(VECTOR)).hexdigest()}`" in specification()


def changed(**changes: object) -> bytes:
    """The file with other fields, and the CRC that fits them."""
    fields = json.loads(encode(SIGNED_VECTOR))
    del fields["crc"]
    fields = {name: value for name, value in {**fields, **changes}.items() if value is not ...}
    fields["crc"] = crc32c(json.dumps(fields, indent=1).encode())
    return json.dumps(fields, indent=1).encode()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "Expecting value"),
        (b"[]", "not a JSON object"),
        (encode(VECTOR)[:-1], "checkpoint"),
        (encode(VECTOR).replace(b'"next": 9', b'"next": 8'), "CRC-32C"),
        (changed(version=2), "version is not 1"),
        (changed(position="1/2/3"), "position"),
        (changed(time=-1), "time"),
        (changed(segments=[["a", 1]]), "segments"),
        (changed(segments=[["a", -1, DIGEST]]), "segments of a"),
        (changed(segments=[["a", 1, "no"]]), "segments of a"),
        (changed(segments={}), "segments"),
        (changed(previous="no"), "previous"),
        (changed(key="AB" * 32), "key"),
        (changed(signature="cd"), "signature"),
        (changed(signature=...), "signature of a checkpoint with that key"),
        (changed(signature=..., key=...), "next_key of a checkpoint that is not signed"),
        (changed(next_key=1), "next_key"),
        (changed(comment="not covered by a reader"), "has fields"),
        (changed(next=...), None),
    ],
)
def test_a_decoder_refuses_what_no_encoder_writes(body: bytes, words: str | None) -> None:
    if words is None:
        assert decode("c", body).next is None
        return
    with pytest.raises(CorruptObjectError, match=words) as raised:
        decode("c-1.json", body)
    assert str(raised.value).startswith("c-1.json: ")


def test_each_flipped_bit_is_noticed_or_changes_nothing() -> None:
    body = encode(VECTOR)
    for place in range(len(body)):
        flipped = bytearray(body)
        flipped[place] ^= 1
        try:
            found = decode("c", bytes(flipped))
        except CorruptObjectError:
            continue
        assert found == VECTOR, place
