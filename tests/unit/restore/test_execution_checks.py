"""Each check of a restore by itself: the objects have a single fault, which only that check can find."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any, BinaryIO

import pytest

from litelog.codec.lz4_frames import compress_frame, skippable_frame, walk_frames
from litelog.errors import CorruptionError, CorruptObjectError, LitelogError
from litelog.formats.lines import LinesFormat
from litelog.objects.layout import parse_wal, sealed_key, wal_key
from litelog.restore.execution import restore
from litelog.restore.history_plan import Target, find_plan
from litelog.stores.object_store import ObjectReplicaClient
from tests.builders.replica_builder import FORMAT, ReplicaBuilder, client_of, make_log, make_segment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from litelog.stores.object_store import ByteRange
    from replica_clients.memory import MemoryStore

LOG = make_log([[1, 1, 1], [2, 1]])
OTHER = make_segment(0, [1, 1, 1], tag=b"q")
"""The first log segment's shape, with other records."""


def restored(objects: dict[str, bytes], folder: Path, target: Target | None = None) -> None:
    client = client_of(objects)
    restore(client, find_plan(client, target or Target(), FORMAT), str(folder), log_format=FORMAT)


@pytest.fixture
def newest() -> tuple[str, dict[str, bytes]]:
    """A WAL segment that no other object describes."""
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship(LOG[0].data, LOG[0].name)
    return wal_key(built.positions[-1]), builder.objects()


def test_other_bytes_under_a_wal_segments_header_are_found(tmp_path: Path) -> None:
    """The log holds lines: all commits that end with their own CRC-32C have the same CRC-32C, whatever they hold."""
    builder = ReplicaBuilder(LinesFormat("*"))
    built = builder.add()
    key = wal_key(built.ship(b"one\ntwo\n", "log"))
    objects = builder.objects()
    head = next(walk_frames(objects[key]))
    client = client_of({**objects, key: objects[key][: head.end] + compress_frame(b"one\ntoo\n")})
    plan = find_plan(client, Target(), builder.format)
    with pytest.raises(CorruptObjectError, match="CRC-32C"):
        restore(client, plan, str(tmp_path / "out"), log_format=builder.format)


def test_a_frame_whose_own_checksum_is_another_is_found(newest: tuple[str, dict[str, bytes]], tmp_path: Path) -> None:
    key, objects = newest
    body = bytearray(objects[key])
    body[-1] ^= 1
    with pytest.raises(CorruptObjectError, match="checksum"):
        restored({**objects, key: bytes(body)}, tmp_path / "out")


def test_a_frame_with_other_commits_is_found_in_a_partial_read_of_a_sealed_segment(tmp_path: Path) -> None:
    builder = ReplicaBuilder()
    built = builder.add(builder.claim(first=1), start=False)
    built.start([built.seal_unshipped(0, LOG[0])])
    objects, key = builder.objects(), sealed_key(built.name, 0)
    first = next(walk_frames(objects[key]))
    other = compress_frame(OTHER.data[: OTHER.ends[0]])
    assert len(other) == first.end
    objects[key] = other + objects[key][first.end :]
    with pytest.raises(CorruptObjectError, match="CRC-32C of the bytes of frame 0"):
        restored(objects, tmp_path / "out", Target(sequence=1))


@pytest.mark.slow
@pytest.mark.parametrize("sealed", [False, True])
def test_any_byte_of_a_commit_that_its_checksum_speaks_of_is_found(tmp_path: Path, sealed: bool) -> None:
    """The writer shipped the damaged bytes with checksums that match them."""
    segment = LOG[0]
    for at in range(segment.ends[0], segment.ends[1]):
        bad = bytearray(segment.data)
        bad[at] ^= 1
        builder = ReplicaBuilder()
        if sealed:
            built = builder.add(builder.claim(first=1), start=False)
            try:
                built.start([built._put_sealed(0, segment.name, bytes(bad), 3, marks=[(len(bad), built.clock)])])
            except CorruptionError:
                continue
        else:
            built = builder.add()
            built.ship(bytes(bad), segment.name, described=segment.data)
        with pytest.raises(CorruptionError):
            restored(builder.objects(), tmp_path / f"{at}")
        assert not (tmp_path / f"{at}").exists()


def test_part_of_a_commit_at_the_end_of_a_wal_segment_is_found(tmp_path: Path) -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    torn = LOG[0].data[: LOG[0].ends[1] + 20]
    built.ship(torn, LOG[0].name, described=LOG[0].data[: LOG[0].ends[1]])
    with pytest.raises(CorruptionError, match="whole commit"):
        restored(builder.objects(), tmp_path / "out")


def test_a_wal_segment_may_not_begin_with_another_sequence_than_follows(tmp_path: Path) -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship(LOG[0].data, LOG[0].name, final=True)
    gap = make_segment(LOG[0].next + 2, [1])
    built._next = LOG[0].next + 2
    built.ship(gap.data, gap.name)
    with pytest.raises(LitelogError, match=r"gap|sequence"):
        restored(builder.objects(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_content_that_is_shorter_or_longer_than_a_header_says_is_found(
    newest: tuple[str, dict[str, bytes]], tmp_path: Path
) -> None:
    key, objects = newest
    body = objects[key]
    head = next(walk_frames(body))
    for number, data in enumerate((LOG[0].data[: LOG[0].ends[1]], LOG[0].data + LOG[1].data)):
        objects[key] = body[: head.end] + compress_frame(data)
        with pytest.raises(CorruptObjectError, match="length"):
            restored(objects, tmp_path / f"{number}")


def test_a_second_header_in_a_wal_segment_is_found(newest: tuple[str, dict[str, bytes]], tmp_path: Path) -> None:
    key, objects = newest
    objects[key] += skippable_frame(b"{}")
    with pytest.raises(CorruptObjectError, match="one header"):
        restored(objects, tmp_path / "out")


def test_part_of_a_commit_at_the_end_of_a_sealed_segment_is_found(tmp_path: Path) -> None:
    builder = ReplicaBuilder()
    built = builder.add(builder.claim(first=1), start=False)
    torn = LOG[0].data[: LOG[0].ends[1] + 20]
    built.start([built._put_sealed(0, LOG[0].name, torn, 2, marks=[(len(torn), built.clock)])])
    with pytest.raises(CorruptionError, match="whole commit"):
        restored(builder.objects(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


class FlippedOnce:
    """A store that flips a bit near the end of its first answer for each WAL segment."""

    enforces_create_only = True

    def __init__(self, inner: MemoryStore) -> None:
        self.url, self.inner, self.flipped = inner.url, inner, set()

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        if parse_wal(key) is None or byte_range is not None or key in self.flipped:
            return self.inner.open(key, byte_range)
        self.flipped.add(key)
        with self.inner.open(key) as stream:
            body = bytearray(stream.read())
        body[-10] ^= 1
        return BytesIO(bytes(body))

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[Any]:
        return self.inner.list(prefix, start_after)


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [1, 4])
def test_bytes_that_change_in_transit_are_read_again(tmp_path: Path, parallelism: int) -> None:
    """The next object names a digest that differs from that of the bytes in the first answer."""
    builder = ReplicaBuilder()
    built = builder.add()
    for segment in LOG:
        built.ship_segment(segment, cuts=[0])
    store = FlippedOnce(client_of(builder.objects()).store)
    client = ObjectReplicaClient(store)
    plan = find_plan(client, Target(), FORMAT)
    result = restore(client, plan, str(tmp_path / "out"), log_format=FORMAT, parallelism=parallelism)
    assert len(store.flipped) == result.objects == 4
    assert result.repaired == ()
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {
        segment.name: segment.data for segment in LOG
    }
