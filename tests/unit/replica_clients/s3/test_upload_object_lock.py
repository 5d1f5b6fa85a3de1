"""Objects that the store refuses to delete for a while, in a bucket with Object Lock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto")

from litelog.errors import ConfigError, NotFoundError, StoreError
from litelog.objects.layout import trial_prefix
from replica_clients.s3 import open_store
from replica_clients.s3.settings import read_settings
from replica_clients.s3.store import S3Store
from tests.builders.servers import Answer, ScriptedServer, error_answer

if TYPE_CHECKING:
    from tests.builders.servers import Request, S3Server

LARGE = 11 << 20

pytestmark = pytest.mark.xdist_group("s3_versions")
"""What moto loads for these takes 40 MiB: one worker pays."""


@pytest.fixture
def bucket(server: S3Server, request: pytest.FixtureRequest) -> str:
    name = f"locked-{abs(hash(request.node.name)) % 10**9}"
    place = {"LocationConstraint": server.admin.meta.region_name}
    server.admin.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True, CreateBucketConfiguration=place)
    return name


def lock(server: S3Server, bucket: str, key: str) -> dict[str, Any]:
    found: dict[str, Any] = server.admin.head_object(Bucket=bucket, Key=key)
    return found


def test_default_options_replicate_into_a_bucket_with_a_default_retention(server: S3Server, bucket: str) -> None:
    rule = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}
    server.admin.put_object_lock_configuration(
        Bucket=bucket, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule}
    )
    store = open_store(f"s3://{bucket}/log", server.options())
    store.put("small", [b"x"])
    assert store.open("small").read() == b"x"


@pytest.mark.parametrize("mode", ["governance", "compliance"])
def test_each_object_is_locked_for_the_given_time(server: S3Server, bucket: str, mode: str) -> None:
    options = server.options(**{"object-lock": mode, "retain": "30d"})
    store = S3Store(read_settings(f"s3://{bucket}/log", options), single_bytes=1 << 20, part_bytes=5 << 20)
    store.put("small", [b"x"])
    store.put("large", [bytes(LARGE)])
    assert store.open("large").read() == bytes(LARGE)
    found = lock(server, bucket, "log/small")  # moto forgets the lock of an object that comes in parts
    assert found["ObjectLockMode"] == mode.upper()
    left = found["ObjectLockRetainUntilDate"].astimezone(UTC) - datetime.now(UTC)
    assert timedelta(days=29, hours=23) < left <= timedelta(days=30)


def test_uploads_in_parts_state_the_lock_when_they_begin() -> None:
    def answer(request: Request) -> Answer:
        return error_answer(400, "InvalidRequest") if "uploads" in request.path else Answer()

    with ScriptedServer(answer) as server:
        options = {"endpoint": server.endpoint, "region": "eu-west-1", "access-key-id": "a", "secret-access-key": "b"}
        locked = {"object-lock": "compliance", "retain": "1d", "legal-hold": "true"}
        store = S3Store(read_settings("s3://bucket/log", {**options, **locked}), single_bytes=1)
        with pytest.raises(StoreError):
            store.put("large", [bytes(2)])
        store.close()
    (request,) = server.requests
    assert "uploads" in request.path
    assert request.headers["x-amz-object-lock-mode"] == "COMPLIANCE"
    assert request.headers["x-amz-object-lock-legal-hold"] == "ON"
    assert "x-amz-object-lock-retain-until-date" in request.headers


@pytest.mark.parametrize("single_bytes", [1 << 20, 0])
def test_the_objects_of_trials_are_not_locked(single_bytes: int) -> None:
    """A check puts a thousand of them: they would stay, and cost, for as long as the log's own objects."""
    with ScriptedServer(lambda _: error_answer(400, "InvalidRequest")) as server:
        options = {"endpoint": server.endpoint, "region": "eu-west-1", "access-key-id": "a", "secret-access-key": "b"}
        locked = {"object-lock": "compliance", "retain": "1d", "legal-hold": "true"}
        store = S3Store(read_settings("s3://bucket/log", {**options, **locked}), single_bytes=single_bytes)
        with pytest.raises(StoreError):
            store.put(f"{trial_prefix(1)}x", [b"x"])
        store.close()
    (request,) = server.requests
    assert [name for name in request.headers if name.lower().startswith("x-amz-object-lock")] == []


def test_a_legal_hold_is_set(server: S3Server, bucket: str) -> None:
    store = open_store(f"s3://{bucket}/log", server.options(**{"legal-hold": "true"}))
    store.put("small", [b"x"])
    assert lock(server, bucket, "log/small")["ObjectLockLegalHoldStatus"] == "ON"


@pytest.mark.parametrize("mode", ["governance", "compliance"])
def test_a_lock_is_extended(server: S3Server, bucket: str, mode: str) -> None:
    url, options = f"s3://{bucket}/log", server.options(**{"object-lock": mode, "retain": "1d"})
    open_store(url, options).put("small", [b"x"])
    before = lock(server, bucket, "log/small")["ObjectLockRetainUntilDate"]
    locks = open_store(url, {**options, "retain": "3d"}).locks
    assert locks is not None
    ((key, put),) = locks.list("")
    assert (key, abs(put / 1_000_000 - datetime.now(UTC).timestamp()) < 60) == ("small", True)
    locks.extend("small")
    after = lock(server, bucket, "log/small")
    assert after["ObjectLockMode"] == mode.upper()
    assert timedelta(days=1, hours=23) < after["ObjectLockRetainUntilDate"] - before < timedelta(days=2, hours=1)


def test_without_a_time_there_are_no_locks_to_extend(server: S3Server, bucket: str) -> None:
    assert open_store(f"s3://{bucket}/log", server.options(**{"legal-hold": "true"})).locks is None


def test_locks_of_more_than_a_page_are_listed(server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replica_clients.s3.locks.MAX_PAGE_KEYS", 2)
    store = open_store(f"s3://{bucket}/log", server.options(**{"object-lock": "governance", "retain": "1d"}))
    for name in "abcde":
        store.put(name, [b"x"])
    assert store.locks is not None
    assert [key for key, _ in store.locks.list("")] == list("abcde")


@pytest.mark.parametrize(
    ("status", "code", "error", "message"),
    [
        (404, "NoSuchKey", NotFoundError, "nothing"),
        (405, "MethodNotAllowed", NotFoundError, "nothing"),
        (403, "AccessDenied", StoreError, "grant s3:PutObjectRetention on bucket/log/"),
    ],
)
def test_a_lock_that_is_not_extended_is_an_error(status: int, code: str, error: type[Exception], message: str) -> None:
    """405 is the answer for a delete marker."""
    with ScriptedServer(lambda _: error_answer(status, code)) as server:
        options = {"endpoint": server.endpoint, "region": "eu-west-1", "access-key-id": "a", "secret-access-key": "b"}
        store = open_store("s3://bucket/log", {**options, "object-lock": "governance", "retain": "1d"})
        assert store.locks is not None
        with pytest.raises(error, match=message):
            store.locks.extend("nothing")
        store.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"object-lock": "governance"}, "object-lock and retain go together"),
        ({"retain": "30d"}, "object-lock and retain go together"),
        ({"object-lock": "forever", "retain": "30d"}, "object-lock must be one of governance, compliance"),
        ({"object-lock": "governance", "retain": "30"}, "retain must be a duration with a unit"),
        ({"object-lock": "governance", "retain": "long"}, "retain must be a duration such as 30d"),
        ({"object-lock": "governance", "retain": "0d"}, "retain must be a duration with a unit"),
        ({"legal-hold": "perhaps"}, "legal-hold must be true or false"),
    ],
)
def test_settings_that_lock_nothing_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_settings("s3://bucket/log", options)
