"""What credentials permit in a bucket: found out with trial objects, and said without touching anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto")

from litelog.stores.access import Deed, describe_lock, summary
from replica_clients.s3 import open_store
from tests.builders.servers import permissions_checked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litelog.stores.access import Access
    from tests.builders.servers import S3Server

pytestmark = pytest.mark.xdist_group("s3_versions")
"""What moto loads for these takes 40 MiB: one worker pays."""

ALL = "s3:*"
PREFIX = "trials/0000000000000001/"


def make_bucket(server: S3Server, *, versions: bool = False, lock: bool = False, mode: str | None = None) -> str:
    bucket = server.make_bucket()
    if lock:
        place = {"LocationConstraint": server.admin.meta.region_name}
        server.admin.delete_bucket(Bucket=bucket)
        server.admin.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True, CreateBucketConfiguration=place)
    if versions:
        server.admin.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    if mode is not None:
        rule = {"DefaultRetention": {"Mode": mode, "Days": 2}}
        server.admin.put_object_lock_configuration(
            Bucket=bucket, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule}
        )
    server.admin.put_object(Bucket=bucket, Key="log/mine", Body=b"a user's")
    return bucket


def examine(server: S3Server, bucket: str, actions: Iterable[str]) -> Access:
    user = server.make_user(actions, bucket)
    with permissions_checked():
        store = open_store(f"s3://{bucket}/log", server.options(**user))
        found = store.examine(PREFIX)
        store.close()
    return found


def may(access: Access) -> dict[Deed, bool | None]:
    return {attempt.deed: attempt.may for attempt in access.attempts}


def left(server: S3Server, bucket: str) -> list[str]:
    found = server.admin.list_object_versions(Bucket=bucket)
    return [each["Key"] for kind in ("Versions", "DeleteMarkers") for each in found.get(kind, ())]


def test_a_thief_of_all_rights_may_do_everything_and_nothing_is_left(server: S3Server) -> None:
    bucket = make_bucket(server, versions=True)
    access = examine(server, bucket, [ALL])
    assert access.versions == "on"
    assert access.has_lock is False
    assert may(access) == {
        **dict.fromkeys(Deed, True),
        Deed.LOCK: False,
        Deed.BYPASS: False,
    }
    assert left(server, bucket) == ["log/mine"]
    assert server.admin.get_object(Bucket=bucket, Key="log/mine")["Body"].read() == b"a user's"


def test_a_bucket_without_versions_loses_what_is_deleted(server: S3Server) -> None:
    bucket = make_bucket(server)
    access = examine(server, bucket, [ALL])
    assert access.versions == "off"
    meanings = {attempt.deed: attempt.meaning for attempt in access.attempts}
    assert meanings[Deed.DELETE] == "what is deleted is gone"
    assert meanings[Deed.OVERWRITE] == "the earlier bytes are gone"
    assert may(access)[Deed.DELETE_VERSIONS] is False
    assert left(server, bucket) == ["log/mine"]


READS = ("s3:ListBucket", "s3:GetObject")


@pytest.mark.parametrize(
    ("actions", "permitted"),
    [
        (READS, {Deed.LIST, Deed.READ}),
        (("s3:GetObject",), {Deed.READ}),
        (("s3:ListBucket",), {Deed.LIST}),
        ((*READS, "s3:PutObject"), {Deed.LIST, Deed.READ, Deed.ADD, Deed.OVERWRITE}),
        ((*READS, "s3:DeleteObject"), {Deed.LIST, Deed.READ, Deed.DELETE}),
        (("s3:PutObject", "s3:DeleteObject"), {Deed.ADD, Deed.OVERWRITE, Deed.DELETE}),
    ],
)
def test_each_right_is_found_by_itself(server: S3Server, actions: tuple[str, ...], permitted: set[Deed]) -> None:
    bucket = make_bucket(server)
    access = examine(server, bucket, actions)
    assert {deed for deed, is_permitted in may(access).items() if is_permitted} == permitted
    assert {key for key in left(server, bucket) if key == "log/mine"} == {"log/mine"}


def test_what_may_not_be_asked_is_said_in_one_line(server: S3Server) -> None:
    access = examine(server, make_bucket(server), READS)
    assert access.versions is None
    said = summary(access)[-1]
    assert "grant s3:GetBucketVersioning" in said
    assert "\n" not in said


@pytest.mark.parametrize("mode", ["GOVERNANCE", "COMPLIANCE"])
def test_the_default_lock_of_the_bucket_is_told(server: S3Server, mode: str) -> None:
    access = examine(server, make_bucket(server, lock=True, mode=mode), [ALL])
    assert describe_lock(access) == f"on, {mode.lower()} for 2d by default"
    assert access.lock_seconds == 2 * 86400
    assert may(access)[Deed.LOCK] is True


def test_who_may_bypass_governance_is_found(server: S3Server) -> None:
    access = examine(server, make_bucket(server, lock=True), [ALL])
    assert may(access)[Deed.BYPASS] is True
    assert describe_lock(access).startswith("on, but objects are locked only if")


def test_the_result_is_json_for_programs(server: S3Server) -> None:
    told = examine(server, make_bucket(server, versions=True), [ALL]).as_json()
    assert told["versions"] == "on"
    assert told["object_lock"] is False
    thief = told["thief"]
    assert isinstance(thief, list)
    assert {each["deed"]: each["may"] for each in thief}["delete versions"] is True
