"""The memory of uploads has one bound for the whole process, not one for each upload."""

from __future__ import annotations

import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("boto3")

from litelog.errors import StoreError
from litelog.system.buffers import Room
from replica_clients.s3.settings import read_settings
from replica_clients.s3.upload import LEAST_PART_BYTES, Parts, S3Upload, choose_part_bytes
from replica_clients.s3.upload import PART_BYTES as USUAL_PART_BYTES
from tests.builders.stores import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica_clients.s3.clients import S3Connection

PART_BYTES = 1 << 20
BUFFER_BYTES = PART_BYTES // 16
UPLOADS = 8
PARTS = 6
ROOM = 4


class CountingRoom(Room):
    """Counts the bytes that are taken at the same time."""

    most = 0

    def take(self, size: int) -> None:
        super().take(size)
        self.most = max(self.most, self.used)


class SlowStore:
    """The part of a connection that an upload uses. It stores no part before as many are under way as there is room
    for, so that uploads hold the most memory that they can."""

    settings = read_settings("s3://bucket", {"region": "x"})
    failures = cast("Any", type("Failures", (), {"reading": lambda *_: nullcontext()}))

    def __init__(self, failing: str = "") -> None:
        self.requests: list[str] = []
        self._full = threading.Event()
        self._failing = failing
        self._lock = threading.Lock()

    def request(self, operation: str, key: str, method: str, **parameters: object) -> dict[str, object]:
        with self._lock:
            self.requests.append(method)
            if self.requests.count("upload_part") + self.requests.count("put_object") >= ROOM:
                self._full.set()
        if method in {"upload_part", "put_object"}:
            assert self._full.wait(WAIT_SECONDS)
        if method == self._failing:
            raise StoreError(operation, key, "injected", retryable=False)
        return {"UploadId": "u", "ETag": "e"}


def buffers(parts: float) -> Iterator[bytes]:
    """Buffers that are made as they are taken."""
    for number in range(int(parts * 16)):
        yield bytes([number % 251]) * BUFFER_BYTES


def put_all(store: SlowStore, room: Room, parts: float = PARTS) -> list[BaseException | None]:
    upload = S3Upload(cast("S3Connection", store), 1 << 30, PART_BYTES, room)
    with ThreadPoolExecutor(UPLOADS) as pool:
        running = [pool.submit(upload.put, f"key{n}", buffers(parts), True) for n in range(UPLOADS)]
        return [future.exception() for future in running]


def test_many_uploads_at_once_hold_no_more_than_the_room() -> None:
    """The test measures the interpreter's allocations, not the room's own count."""
    store, room = SlowStore(), CountingRoom(ROOM * PART_BYTES)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        assert put_all(store, room) == [None] * UPLOADS
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    buffers_held = UPLOADS * 2 * BUFFER_BYTES
    assert ROOM * PART_BYTES <= peak - before < (ROOM + 1) * PART_BYTES + buffers_held
    assert (room.most, room.used) == (ROOM * PART_BYTES, 0)
    assert store.requests.count("upload_part") == UPLOADS * PARTS


def test_small_objects_that_are_made_as_they_go_count_too() -> None:
    store, room = SlowStore(), CountingRoom(ROOM * PART_BYTES)
    assert put_all(store, room, 0.5) == [None] * UPLOADS
    assert store.requests == ["put_object"] * UPLOADS
    assert (room.most, room.used) == (ROOM * PART_BYTES, 0)


@pytest.mark.parametrize("failing", ["create_multipart_upload", "upload_part", "complete_multipart_upload"])
def test_uploads_that_fail_give_their_room_back(failing: str) -> None:
    room = CountingRoom(ROOM * PART_BYTES)
    store = SlowStore(failing)
    store._full.set()
    errors = put_all(store, room)
    assert [type(error) for error in errors] == [StoreError] * UPLOADS
    assert room.used == 0


@pytest.mark.parametrize("good", [0, 0.5, 1, 2.5])
def test_a_body_that_cannot_be_made_gives_its_room_back(good: float) -> None:
    def broken() -> Iterator[bytes]:
        yield from buffers(good)
        raise OSError("the log is gone")

    room, store = CountingRoom(PART_BYTES), SlowStore()
    store._full.set()
    with pytest.raises(OSError, match="the log is gone"):
        S3Upload(cast("S3Connection", store), 1 << 30, PART_BYTES, room).put("key", broken(), True)
    assert room.used == 0


def test_a_part_is_dropped_once() -> None:
    room = CountingRoom(PART_BYTES)
    with Parts([b"x"], 10, room).take() as part:
        part.drop()
    assert room.used == 0


@pytest.mark.parametrize(
    ("room", "size"),
    [(1, LEAST_PART_BYTES), (6 << 20, 6 << 20), (8 << 20, USUAL_PART_BYTES), (16 << 20, USUAL_PART_BYTES)],
)
def test_parts_are_smaller_where_there_is_little_room(room: int, size: int) -> None:
    assert choose_part_bytes(Room(room)) == size
