"""The least policies, on servers that enforce them: each role does its work, and is refused all else.

moto's checks run everywhere. MinIO's run where it and its command ``mc`` are installed (tests/README.md).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto")

import boto3

from litelog import Config, LogConfig, ReplicaConfig, Replicator
from litelog.config.entries import RetentionConfig
from litelog.errors import StoreError
from litelog.objects.layout import is_trial, parse_sealed, parse_wal
from litelog.stores.access import Deed, Role
from litelog.system.clock import SystemClock
from replica_clients.s3 import open_store
from tests.builders.log_builder import make_log
from tests.builders.minio_users import MinioUsers, find_lacking_users
from tests.builders.real_servers import KEY_ID, MINIO, REGION, SECRET, started
from tests.builders.restoring import files_in
from tests.builders.servers import ACCESS_KEY_ID, SECRET_ACCESS_KEY, permissions_checked, permissions_ignored, s3_server
from tests.builders.servers import REGION as MOTO_REGION
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.builders.log_builder import LogBuilder

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.xdist_group("s3_versions")]

LACKING = find_lacking_users()
HOURS = 3600 * 1_000_000
SECOND = timedelta(seconds=1)


@dataclass
class Service:
    """A server with users."""

    endpoint: str
    region: str
    administrator: dict[str, str]
    make_user: Callable[[Mapping[str, object]], dict[str, str]]
    judges_batches: bool
    """Whether the right to delete is judged by key in a request for many. moto wants it for the whole bucket."""

    def client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.administrator["access-key-id"],
            aws_secret_access_key=self.administrator["secret-access-key"],
        )

    def options(self, user: Mapping[str, str], **more: object) -> dict[str, object]:
        return {"endpoint": self.endpoint, "region": self.region, **user, **more}


@pytest.fixture(scope="module")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    if LACKING is not None:
        pytest.skip(LACKING)
    server = started(MINIO, tmp_path_factory.mktemp("minio"))
    try:
        administrator = {"access-key-id": KEY_ID, "secret-access-key": SECRET}
        yield Service(server.endpoint, REGION, administrator, MinioUsers(server).make, judges_batches=True)
    finally:
        server.end()


@pytest.fixture(scope="module")
def moto() -> Iterator[Service]:
    with s3_server() as server, server.emptied():
        administrator = {"access-key-id": ACCESS_KEY_ID, "secret-access-key": SECRET_ACCESS_KEY}

        def make(policy: Mapping[str, object]) -> dict[str, str]:
            with permissions_ignored():
                return server.make_user_with(policy)

        yield Service(server.endpoint, MOTO_REGION, administrator, make, judges_batches=False)


class Earlier(SystemClock):
    """The machine's clock, three hours late: what a daemon ships with it is old at once."""

    def now(self) -> int:
        return super().now() - 3 * HOURS


@dataclass
class World:
    """A bucket, a log, and users with the least policies."""

    service: Service
    bucket: str
    log: LogBuilder
    folder: Path
    lock: Mapping[str, object]
    keeps: bool
    """Whether the bucket keeps versions."""

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/a/log"

    def user(self, role: Role, *, deletes: bool = True) -> dict[str, object]:
        """The options of a new user with a role's policy."""
        more = self.lock if role is Role.DAEMON else {}
        store = open_store(self.url, self.service.options(self.service.administrator, **more))
        policy = store.least_policy(role, deletes=deletes)
        store.close()
        return self.service.options(self.service.make_user(policy), **more)

    def ship(self, options: Mapping[str, object], *, no_delete: bool = False) -> None:
        replica = ReplicaConfig(
            url=self.url,
            options=dict(options),
            snapshot_segments=1,
            no_delete=no_delete,
            retention=RetentionConfig(max_snapshots=1),
        )
        config = Config(logs=(LogConfig(path=self.log.folder, replicas=(replica,)),))
        Replicator(config, state_dir=str(self.folder / "state"), host="here", clock=Earlier()).run(once=True)

    def run(self, options: Mapping[str, object], *words: str) -> subprocess.CompletedProcess[str]:
        """Run a verb with a user's credentials."""
        replica = {"url": self.url, "options": dict(options)}
        config = self.folder / f"{words[0]}.yml"
        config.write_text(json.dumps({"logs": [{"path": self.log.folder, "replicas": [replica]}]}))
        command = [sys.executable, "-m", "litelog_cli", *words, "--config", str(config)]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)

    def listed(self) -> list[str]:
        with permissions_ignored():
            found = self.service.client().list_objects_v2(Bucket=self.bucket, Prefix="a/log/").get("Contents", ())
        return [each["Key"].removeprefix("a/log/") for each in found]

    def may(self, options: Mapping[str, object]) -> set[Deed]:
        """What ``check`` finds that a user may do."""
        store = open_store(self.url, options)
        access = store.examine("trials/0000000000000001/")
        store.close()
        return {attempt.deed for attempt in access.attempts if attempt.may}

    def refuses(self, options: Mapping[str, object], act: Callable[[Any], object]) -> bool:
        """Whether the service refuses what a user does with its store, for lack of a right."""
        store = open_store(self.url, options)
        try:
            act(store)
        except StoreError as error:
            return "grant s3:" in error.reason
        finally:
            store.close()
        return False


PLACES = [("moto", "versions"), *(("minio", kind) for kind in ("plain", "versions", "lock"))]


@pytest.fixture(params=PLACES, ids="-".join)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    name, kind = request.param
    service: Service = request.getfixturevalue(name)
    bucket = f"bucket-{abs(hash((request.node.name, str(tmp_path)))) % 10**12}"
    client = service.client()
    place = {} if service.region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": MOTO_REGION}}
    client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=kind == "lock", **place)
    if kind != "plain":
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    log = make_log(tmp_path / "log")
    for _ in range(3):
        log.roll(1)
        log.append(2)
    lock = {"object-lock": "compliance", "retain": "1d"} if kind == "lock" else {}
    made = World(service, bucket, log, tmp_path, lock, kind != "plain")
    with permissions_checked():
        yield made


def other(store: Any) -> object:
    """Put an object of another replica in the same bucket."""
    return store._connection.request("put", "other", "put_object", Key="b/other", Body=b"x")


def test_a_daemon_ships_seals_snapshots_and_reads(world: World) -> None:
    daemon = world.user(Role.DAEMON)
    if not world.keeps:  # the long listing takes a minute of moto's time
        check = world.run(daemon, "check", world.url)
        assert check.returncode == 0, check.stdout + check.stderr
    for _ in range(2):
        world.ship(daemon)
        world.log.roll(1)
        world.log.append(1)
    world.ship(daemon)
    assert {parse_sealed(key) is not None for key in world.listed()} == {True, False}
    read = world.run(daemon, "generations", world.url)
    assert read.returncode == 0, read.stderr
    assert {Deed.DELETE_VERSIONS, Deed.BYPASS}.isdisjoint(world.may(daemon))
    assert world.refuses(daemon, other)


def test_a_daemon_without_the_right_to_delete_ships_too(world: World) -> None:
    daemon = world.user(Role.DAEMON, deletes=False)
    world.ship(daemon, no_delete=True)
    key = next(key for key in world.listed() if parse_wal(key) is not None)
    assert world.refuses(daemon, lambda store: store.delete([key]))
    assert key in world.listed()
    assert not world.service.judges_batches or not any(map(is_trial, world.listed()))


def test_a_reader_restores_reads_and_verifies(world: World) -> None:
    world.ship(world.user(Role.DAEMON))
    reader = world.user(Role.READER)
    restored = world.run(reader, "restore", world.url, "-o", str(world.folder / "restored"))
    assert restored.returncode == 0, restored.stderr
    assert files_in(world.folder / "restored") == world.log.files()
    assert world.run(reader, "cat", world.url, "--from", "0", "--json").stdout.count("\n") == 9
    verified = world.run(reader, "verify", world.url, "--json")
    assert verified.returncode == 0, verified.stderr
    report = json.loads(verified.stdout)
    assert report["anomaly_counts"] == {}
    assert "ListBucketVersions" not in str(report["versions_error"])
    if world.lock:
        later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        before = world.run(reader, "verify", world.url, "--as-of", later)
        assert before.returncode == 0, before.stderr
    assert world.may(reader) == {Deed.LIST, Deed.READ}
    for act in (lambda store: store.put("x", [b"y"]), lambda store: store.delete([world.listed()[0]]), other):
        assert world.refuses(reader, act)
    refused = world.run(reader, "check", world.url)
    assert (refused.returncode, "grant s3:PutObject" in refused.stdout) == (1, True)


def test_a_pruner_prunes_and_writes_nothing(world: World) -> None:
    daemon = world.user(Role.DAEMON, deletes=False)
    for _ in range(3):
        world.ship(daemon, no_delete=True)
        world.log.roll(1)
        world.log.append(1)
    before = world.listed()
    pruner = world.user(Role.PRUNER)
    words = ("prune", world.url, "--as-pruner", "--max-snapshots", "1", "--json")
    planned = world.run(pruner, *words)
    assert planned.returncode == 0, planned.stderr
    assert world.listed() == before
    pruned = world.run(pruner, *words, "--confirm")
    assert pruned.returncode == 0, pruned.stderr
    plan = json.loads(pruned.stdout)
    assert plan["deleted_objects"] == len(plan["removals"]) > 3
    assert len(world.listed()) == len(before) - plan["deleted_objects"]
    for act in (lambda store: store.put("x", [b"y"]), other):
        assert world.refuses(pruner, act)
    assert Deed.DELETE_VERSIONS not in world.may(pruner)
    reader = world.user(Role.READER)
    restored = world.run(reader, "restore", world.url, "-o", str(world.folder / "restored"))
    assert restored.returncode == 0, restored.stderr
    assert world.run(reader, "verify", world.url).returncode == 0


def versions(world: World) -> list[dict[str, str]]:
    """The keys and versions of all objects of the replica, as they were put first."""
    with permissions_ignored():
        found = world.service.client().list_object_versions(Bucket=world.bucket, Prefix="a/log/")["Versions"]
    return [{"Key": each["Key"], "VersionId": each["VersionId"]} for each in found]


def test_a_thief_of_the_daemons_credentials_is_named_and_what_he_hid_is_restored(world: World) -> None:
    if not world.keeps:
        pytest.skip("the bucket keeps no versions: what a thief deletes there is gone")
    daemon = world.user(Role.DAEMON)
    world.ship(daemon)
    when = datetime.now(UTC) + timedelta(seconds=2)
    wait_until(lambda: datetime.now(UTC) > when)
    before = versions(world)
    store = open_store(world.url, daemon)
    keys = world.listed()
    for key in keys[1:]:
        store.put(key, [b"what a thief writes"], create_only=False)
    for key in keys:
        store.delete([key])
    for each in before:
        with pytest.raises(StoreError, match="no permission"):
            store._connection.request("delete", each["Key"], "delete_object", **each)
    store.close()
    reader = world.user(Role.READER)
    said = world.run(reader, "verify", world.url, "--json")
    assert said.returncode != 0
    lost = world.run(reader, "restore", world.url, "-o", str(world.folder / "lost"))
    assert lost.returncode != 0
    words = ("restore", world.url, "-o", str(world.folder / "restored"), "--as-of", (when - SECOND).isoformat())
    restored = world.run(reader, *words)
    assert restored.returncode == 0, restored.stderr
    assert files_in(world.folder / "restored") == world.log.files()


def test_locks_hold_against_who_may_do_everything_but_end_them(world: World) -> None:
    """Compliance: not even the administrator deletes a version before its time."""
    if not world.lock or not world.service.judges_batches:
        pytest.skip("only MinIO's bucket with a lock")
    daemon = world.user(Role.DAEMON)
    world.ship(daemon)
    administrator = world.service.options(world.service.administrator)
    store = open_store(world.url, administrator)
    of_the_log = [each for each in versions(world) if "/trials/" not in each["Key"]]
    assert of_the_log
    for each in of_the_log:
        with pytest.raises(StoreError):
            store._connection.request("delete", "", "delete_object", **each, BypassGovernanceRetention=True)
    store.close()
    for retain in ("2d", "1d"):  # the shorter time leaves the longer locks as they are
        locked = open_store(world.url, {**daemon, "retain": retain})
        assert locked.locks is not None
        for key, _ in list(locked.locks.list("")):
            locked.locks.extend(key)
        locked.close()
    client = world.service.client()
    ends = [client.head_object(Bucket=world.bucket, Key=f"a/log/{key}") for key in world.listed()]
    later = datetime.now(UTC) + timedelta(days=1, hours=23)
    assert all(each["ObjectLockRetainUntilDate"] > later for each in ends)
