"""The object of a consumer's position: what is written is read, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from litelog.errors import CorruptObjectError, UnknownVersionError
from litelog.objects.consumer_position import ConsumerPosition, Evidence, PositionObject, decode, encode
from litelog.objects.layout import consumer_key, consumer_prefix, parse_consumer

POSITIONS = [
    PositionObject("billing", ConsumerPosition(1, None, 0)),
    PositionObject("a.b-c_9", ConsumerPosition(7, 12, 1_700_000_000_000_000, Evidence(11, 1, 0xFFFFFFFF), "0af3")),
    PositionObject("billing", ConsumerPosition(9, None, 5), deleted=True, place="00ff00ff00ff00ff"),
]


@pytest.mark.parametrize("found", POSITIONS)
def test_a_position_is_read_as_it_was_written(found: PositionObject) -> None:
    body = encode(found)
    assert decode(found.key, body) == found
    assert encode(decode(found.key, body)) == body
    assert parse_consumer(found.key) == (found.consumer, found.position.revision)


def test_the_bytes_are_those_of_the_specification() -> None:
    assert encode(POSITIONS[1]).decode().splitlines() == [
        "{",
        ' "version": 1,',
        ' "consumer": "a.b-c_9",',
        ' "revision": 7,',
        ' "next": 12,',
        ' "updated": 1700000000000000,',
        ' "evidence": {',
        '  "sequence": 11,',
        '  "size": 1,',
        '  "crc": 4294967295',
        " },",
        ' "move": "0af3",',
        f' "crc": {json.loads(encode(POSITIONS[1]))["crc"]}',
        "}",
    ]
    assert POSITIONS[1].key == "consumers/a.b-c_9/0000000000000007.json"


@pytest.mark.parametrize("found", POSITIONS[1:])
def test_a_flipped_bit_is_never_another_position(found: PositionObject) -> None:
    body = encode(found)
    for number in range(8 * len(body)):
        damaged = bytearray(body)
        damaged[number // 8] ^= 1 << number % 8
        try:
            read = decode(found.key, bytes(damaged))
        except (CorruptObjectError, UnknownVersionError):
            continue
        assert read == found  # white space


def test_an_object_under_another_key_is_refused() -> None:
    found = POSITIONS[0]
    with pytest.raises(CorruptObjectError, match="consumer and revision in the object"):
        decode(consumer_key("audit", 1), encode(found))
    with pytest.raises(CorruptObjectError, match="consumer and revision in the object"):
        decode(consumer_key("billing", 2), encode(found))
    with pytest.raises(CorruptObjectError, match="revision is 0"):
        decode(found.key, encode(replace(found, position=replace(found.position, revision=0))))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-a", "ä", "a" * 101, "a\n"])
def test_a_name_that_is_no_part_of_a_key_has_none(name: str) -> None:
    with pytest.raises(ValueError, match="not a name of a consumer"):
        consumer_prefix(name)
    assert parse_consumer(f"consumers/{name}/{1:016x}.json") is None


@pytest.mark.parametrize("key", ["consumers/a/1.json", f"consumers/a/{'f' * 16}.json", f"consumers/{1:016x}.json"])
def test_other_keys_are_no_positions(key: str) -> None:
    assert parse_consumer(key) is None
