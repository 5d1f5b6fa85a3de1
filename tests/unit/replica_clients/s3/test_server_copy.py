"""A service copies objects by itself: the digest of each part is compared before the copy is visible."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto.server")

import litelog
from litelog.copying.execution import copy
from litelog.errors import CorruptionError, ExistsError, NotFoundError, StoreError
from replica_clients.file import open_store as open_folder
from replica_clients.memory import MemoryStore
from replica_clients.s3 import S3Store, open_store
from replica_clients.s3.errors import S3Error
from replica_clients.s3.server_copy import copy_parts, is_one_service
from replica_clients.s3.settings import read_settings
from tests.builders.stores import KilledError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.builders.servers import S3Server

pytestmark = pytest.mark.slow

KEY = "generations/0000000100000001/segments/0000000000000000.segment.lz4"
PART = 5 << 20
BODY = bytes(range(256)) * (28 << 10)  # 7 MiB


@pytest.fixture
def stores(server: S3Server) -> Iterator[tuple[S3Store, S3Store]]:
    """Two places of one service."""
    made = [open_store(f"s3://{server.make_bucket()}/a", server.options()) for _ in range(2)]
    yield made[0], made[1]
    for store in made:
        store.close()


def sent_bodies(store: S3Store) -> list[int]:
    """The sizes of the bodies that the store sends from now on."""
    sizes: list[int] = []
    client = store._connection._shared.client

    def note(request: Any, **_: Any) -> None:
        body = request.body
        sizes.append(0 if body is None else len(body) if isinstance(body, bytes) else -1)

    client.meta.events.register("before-send.s3", note)
    return sizes


def test_the_copy_has_the_same_bytes_and_none_of_them_is_sent(stores: tuple[S3Store, S3Store]) -> None:
    source, target = stores
    source.put(KEY, [BODY])
    sizes = sent_bodies(target)
    assert target.copy_from(source, KEY, [BODY[:1000], BODY[1000:]])
    assert target.open(KEY).read() == BODY
    assert sum(sizes) < 10_000


def test_a_large_object_is_copied_in_several_parts(stores: tuple[S3Store, S3Store]) -> None:
    source, target = stores
    source.put(KEY, [BODY])
    connection = target._connection
    assert copy_parts(source.settings, connection, KEY, [BODY], part_bytes=PART)
    assert target.open(KEY).read() == BODY
    source.put("a/b", [BODY])
    with pytest.raises(StoreError, match="part 2 differs"):
        copy_parts(source.settings, connection, "a/b", [BODY[:-1] + b"x"], part_bytes=PART)


def test_places_of_two_services_are_copied_by_this_process(server: S3Server) -> None:
    def place(**more: object) -> Any:
        return read_settings("s3://bucket/a", server.options(**more))

    assert is_one_service(place(), place(**{"storage-class": "STANDARD_IA"}))
    others = ({"endpoint": "http://elsewhere"}, {"access-key-id": "other"}, {"region": "eu-north-1"})
    assert not any(is_one_service(place(), place(**other)) for other in others)
    target = open_store(f"s3://{server.make_bucket()}/a", server.options())
    assert not target.copy_from(MemoryStore(), KEY, [BODY])
    target.close()


@pytest.mark.parametrize("status", [403, 501])
def test_a_service_without_such_copies_is_not_asked_again(
    stores: tuple[S3Store, S3Store], monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    source, target = stores
    source.put(KEY, [BODY])
    asked: list[str] = []
    request = target._connection.request

    def refuse(operation: str, key: str, method: str, **parameters: object) -> dict[str, Any]:
        asked.append(method)
        if method == "upload_part_copy":
            refusal = S3Error(operation, key, "AccessDenied", retryable=False)
            refusal.status = status
            raise refusal
        return request(operation, key, method, **parameters)

    monkeypatch.setattr(target._connection, "request", refuse)
    assert not target.copy_from(source, KEY, [BODY])
    assert not target.copy_from(source, KEY, [BODY])
    assert asked == ["create_multipart_upload", "upload_part_copy", "abort_multipart_upload"]


def test_a_bucket_that_encrypts_with_a_key_of_its_owner_is_copied_by_this_process(
    stores: tuple[S3Store, S3Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tags look like digests, and are none. The bucket's default says so: no setting of the replica does."""
    source, target = stores
    source.put(KEY, [BODY])
    request = target._connection.request

    def encrypt(operation: str, key: str, method: str, **parameters: object) -> dict[str, Any]:
        answer = request(operation, key, method, **parameters)
        if method == "upload_part_copy":
            return {**answer, "ServerSideEncryption": "aws:kms", "CopyPartResult": {"ETag": f'"{"7" * 32}"'}}
        return answer

    monkeypatch.setattr(target._connection, "request", encrypt)
    assert not target.copy_from(source, KEY, [BODY])
    with pytest.raises(NotFoundError):
        target.open(KEY)


def test_a_copied_replica_is_the_same_and_its_large_objects_are_not_sent(
    stores: tuple[S3Store, S3Store], tmp_path: Path
) -> None:
    source, target = stores
    with litelog.LogWriter(tmp_path / "log", fsync="never", segment_bytes=2 << 20) as writer:
        for number in range(4):
            writer.append(random.Random(number).randbytes(1 << 20))
    replica = str(tmp_path / "replica")
    with litelog.replicate(tmp_path / "log", replica, state_dir=tmp_path / "state", sync_interval=0.05) as running:
        assert running.wait_synced()
    copy(open_folder(replica, {}), source)
    sizes = sent_bodies(target)
    done = copy(source, target)
    held = [{info.key: store.open(info.key).read() for info in store.list("")} for store in (source, target)]
    assert held[0] == held[1]
    sent = sum(size for size in sizes if size > 0)
    assert done.bytes - sent > 1 << 20, "at least the sealed segments were copied by the service"
    assert copy(source, target).objects == 0


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 4))
def test_a_copy_that_is_killed_at_any_request_is_continued(
    stores: tuple[S3Store, S3Store], server: S3Server, monkeypatch: pytest.MonkeyPatch, at: int, after: bool
) -> None:
    """The requests: the upload begins, the part is copied, the upload is completed. Afterwards nothing is sent."""
    source, target = stores
    source.put(KEY, [BODY])
    dying = open_store(f"s3://{target.settings.bucket}/a", server.options())
    request, sent = dying._connection.request, list[str]()

    def die(operation: str, key: str, method: str, **parameters: object) -> dict[str, Any]:
        sent.append(method)
        if len(sent) > at or (len(sent) == at and not after):
            raise KilledError
        answer = request(operation, key, method, **parameters)
        if len(sent) == at:
            raise KilledError
        return answer

    monkeypatch.setattr(dying._connection, "request", die)
    with pytest.raises(KilledError):
        dying.copy_from(source, KEY, [BODY])
    if at == 3 and after:
        with pytest.raises(ExistsError):
            target.copy_from(source, KEY, [BODY])
    else:
        assert list(target.list("")) == []
        assert target.copy_from(source, KEY, [BODY])
    assert target.open(KEY).read() == BODY
    dying.close()


def test_a_key_that_is_taken_is_refused_and_unchanged(stores: tuple[S3Store, S3Store]) -> None:
    source, target = stores
    source.put(KEY, [BODY])
    target.put(KEY, [b"another writer's"])
    with pytest.raises(ExistsError):
        target.copy_from(source, KEY, [BODY])
    assert target.open(KEY).read() == b"another writer's"


def test_bytes_that_differ_from_the_verified_ones_are_never_visible(
    stores: tuple[S3Store, S3Store], server: S3Server
) -> None:
    source, target = stores
    source.put(KEY, [BODY])
    with pytest.raises(StoreError, match="the service copied other bytes than it gives: part 1 differs"):
        target.copy_from(source, KEY, [BODY[:-1] + b"x"])
    with pytest.raises(NotFoundError):
        target.open(KEY)
    assert "Uploads" not in server.admin.list_multipart_uploads(Bucket=target.settings.bucket), "nothing is left"


def test_an_error_of_the_check_stores_nothing(stores: tuple[S3Store, S3Store]) -> None:
    source, target = stores
    source.put(KEY, [BODY])

    def damaged() -> Iterator[bytes]:
        yield BODY[:1000]
        raise CorruptionError("damaged")

    with pytest.raises(CorruptionError, match="damaged"):
        target.copy_from(source, KEY, damaged())
    assert list(target.list("")) == []
    with pytest.raises(NotFoundError):
        target.copy_from(source, "generations/missing", [BODY])
