from __future__ import annotations

import io
import random

import pytest

from litelog.encryption.chunks import (
    CHUNK_BYTES,
    MAGIC,
    RECORD_BYTES,
    ObjectCipher,
    decrypted_size,
    encrypted_size,
    locate,
)
from litelog.errors import CorruptObjectError
from litelog.stores.encrypted_store import EncryptedStore
from litelog.stores.object_store import ByteRange
from replica_clients.memory import MemoryStore
from tests.builders.encrypted import GenerationFolder

SIZES = [0, 1, 100, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES, 20 * CHUNK_BYTES + 17]


def content_of(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.fixture
def folder() -> GenerationFolder:
    return GenerationFolder(MemoryStore("mine"))


def stored(folder: GenerationFolder, key: str) -> bytes:
    return folder.inner.open(folder.root + key).read()


def replace(folder: GenerationFolder, key: str, body: bytes) -> None:
    folder.inner.put(folder.root + key, [body], create_only=False)


@pytest.mark.parametrize("size", SIZES)
def test_an_object_comes_back_and_its_size_follows_from_that_of_the_encrypted_one(folder, size: int) -> None:
    content = content_of(size)
    folder.put("a", [content[:77], content[77:70000], content[70000:]])
    body = stored(folder, "a")
    assert len(body) == encrypted_size(size)
    assert decrypted_size("a", len(body)) == size
    assert folder.open("a").read() == content
    assert [(info.key, info.size) for info in folder.list("")] == [("a", size)]
    assert body[:8] == body[-8:] == MAGIC
    assert size < 100 or content[:100] not in body


@pytest.mark.parametrize("size", range(2, 70))
def test_a_size_that_no_object_has_is_refused(size: int) -> None:
    possible = {encrypted_size(plain) for plain in range(70)}
    if size in possible:
        assert encrypted_size(decrypted_size("a", size)) == size
    else:
        with pytest.raises(CorruptObjectError, match="no encrypted object has"):
            decrypted_size("a", size)


@pytest.mark.parametrize("size", [*SIZES, CHUNK_BYTES - 5, CHUNK_BYTES - 8])
def test_a_range_that_begins_at_or_after_the_end_is_empty(folder, size: int) -> None:
    folder.put("a", [content_of(size)])
    for start in {size, size + 1, size + CHUNK_BYTES, -(-size // CHUNK_BYTES) * CHUNK_BYTES, 1 << 40} - {0}:
        for length in (None, 0, 1, CHUNK_BYTES, 1 << 30):
            with folder.open("a", ByteRange(start, length)) as stream:
                assert [stream.read(7), stream.read()] == [b"", b""], (start, length)


def test_an_object_that_is_cut_off_is_no_empty_one(folder) -> None:
    folder.put("a", [content_of(2 * CHUNK_BYTES)])
    body = stored(folder, "a")
    for size in (0, 3, len(MAGIC), len(MAGIC) + RECORD_BYTES - 1, len(MAGIC) + RECORD_BYTES, len(body) - 1):
        replace(folder, "a", body[:size])
        for start in (0, CHUNK_BYTES - 1):
            with pytest.raises(CorruptObjectError):
                folder.open("a", ByteRange(start)).read()


def test_any_range_is_read_by_itself_with_no_more_than_its_chunks(folder) -> None:
    content = content_of(5 * CHUNK_BYTES + 123)
    folder.put("a", [content])
    chosen = random.Random(1)
    for _ in range(300):
        start = chosen.randrange(len(content) + 10)
        length = chosen.choice([None, 0, 1, 50, CHUNK_BYTES, chosen.randrange(len(content))])
        end = None if length is None else start + length
        assert folder.open("a", ByteRange(start, length)).read() == content[start:end], (start, length)
        if length:
            place = locate(start, length)
            assert place.length is not None
            assert place.length <= (length // CHUNK_BYTES + 2) * RECORD_BYTES + len(MAGIC)


def test_reads_of_any_size_give_the_same_bytes(folder) -> None:
    content = content_of(40 * CHUNK_BYTES + 5)
    folder.put("a", [content])
    for size in (1000, CHUNK_BYTES, CHUNK_BYTES + 1, 7 * CHUNK_BYTES + 3):
        with folder.open("a") as stream:
            assert b"".join(iter(lambda stream=stream, size=size: stream.read(size), b"")) == content


def test_a_body_gives_the_same_bytes_for_each_attempt_and_other_ones_for_each_put() -> None:
    cipher = ObjectCipher("a", bytes(32))
    body = cipher.encrypt([b"one", b"two"])
    assert b"".join(body) == b"".join(body)
    assert b"".join(body) != b"".join(cipher.encrypt([b"one", b"two"]))


@pytest.mark.parametrize("size", [5, CHUNK_BYTES, CHUNK_BYTES + 5])
def test_each_flipped_bit_is_named(folder, size: int) -> None:
    folder.put("a", [content_of(size)])
    body = stored(folder, "a")
    places = range(len(body)) if size == 5 else random.Random(2).sample(range(len(body)), 100)
    for place in places:
        changed = bytearray(body)
        changed[place] ^= 1 << place % 8
        replace(folder, "a", bytes(changed))
        with pytest.raises(CorruptObjectError, match="/a: "):
            folder.open("a").read()


@pytest.mark.parametrize("kept", [0, 1, 7, 8, 9, 30, RECORD_BYTES, 8 + RECORD_BYTES, 16 + RECORD_BYTES, -8, -1])
def test_an_object_that_is_cut_off_is_named(folder, kept: int) -> None:
    folder.put("a", [content_of(2 * CHUNK_BYTES + 100)])
    replace(folder, "a", stored(folder, "a")[:kept])
    with pytest.raises(CorruptObjectError, match="/a: "):
        folder.open("a").read()


def test_an_object_that_is_cut_between_two_chunks_and_closed_again_is_named(folder) -> None:
    folder.put("a", [content_of(3 * CHUNK_BYTES)])
    replace(folder, "a", stored(folder, "a")[: 8 + 2 * RECORD_BYTES] + MAGIC)
    with pytest.raises(CorruptObjectError, match="encrypted chunk 1 is not authentic"):
        folder.open("a").read()


def test_bytes_after_an_object_are_named(folder) -> None:
    folder.put("a", [content_of(100)])
    for more in (b"x", bytes(100), MAGIC):
        body = stored(folder, "a")
        replace(folder, "a", body + more)
        with pytest.raises(CorruptObjectError, match="/a: "):
            folder.open("a").read()
        replace(folder, "a", body)


def test_chunks_that_change_places_are_named(folder) -> None:
    folder.put("a", [content_of(3 * CHUNK_BYTES)])
    body = stored(folder, "a")
    one, two = body[8 : 8 + RECORD_BYTES], body[8 + RECORD_BYTES : 8 + 2 * RECORD_BYTES]
    replace(folder, "a", body[:8] + two + one + body[8 + 2 * RECORD_BYTES :])
    with pytest.raises(CorruptObjectError, match="encrypted chunk 0 is not authentic"):
        folder.open("a").read()


def test_chunks_of_two_versions_of_an_object_are_not_mixed(folder) -> None:
    content = content_of(3 * CHUNK_BYTES)
    folder.put("a", [content])
    before = stored(folder, "a")
    folder.put("a", [content], create_only=False)
    replace(folder, "a", before[: 8 + RECORD_BYTES] + stored(folder, "a")[8 + RECORD_BYTES :])
    with pytest.raises(CorruptObjectError, match="encrypted chunk 1 is of another object"):
        folder.open("a").read()


def test_an_object_under_another_key_is_named(folder) -> None:
    folder.put("a", [b"mine"])
    replace(folder, "b", stored(folder, "a"))
    with pytest.raises(CorruptObjectError, match="/b: encrypted chunk 0 is not authentic"):
        folder.open("b").read()


@pytest.mark.parametrize("other", [{"epoch": 2}, {"log": "00" * 16}])
def test_an_object_of_another_generation_or_log_is_named(folder, other: dict) -> None:
    other = GenerationFolder(MemoryStore("other"), **other)
    other.put("a", [b"mine"])
    replace(folder, "a", stored(other, "a"))
    with pytest.raises(CorruptObjectError, match="/a: encrypted chunk 0 is not authentic"):
        folder.open("a").read()


def test_an_object_that_is_not_encrypted_is_named(folder) -> None:
    replace(folder, "a", b"plain text, and long enough for a chunk or two")
    for byte_range in (None, ByteRange(0, 10), ByteRange(3, None)):
        with pytest.raises(CorruptObjectError, match="/a: "):
            folder.open("a", byte_range).read()


def test_a_stream_that_gives_few_bytes_at_a_time_is_an_end_only_at_its_end(folder) -> None:
    content = content_of(2 * CHUNK_BYTES + 9)
    folder.put("a", [content])

    class Buffered(MemoryStore):
        def open(self, key: str, byte_range: ByteRange | None = None) -> io.BufferedReader:
            return io.BufferedReader(folder.inner.open(key, byte_range), 16)

    store = EncryptedStore(Buffered("mine"), folder.store._keys)
    assert store.open(folder.root + "a").read() == content
