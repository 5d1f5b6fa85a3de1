"""The least policies: what each role gets, and that the documents show the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("boto3")

from litelog.stores.access import Role
from replica_clients.s3 import open_store

ROOT = Path(__file__).parents[4]


def policy(role: Role, *, deletes: bool = True, **options: object) -> list[tuple[object, object]]:
    store = open_store("s3://bucket/a/log", {"region": "eu-west-1", **options})
    statements = store.least_policy(role, deletes=deletes)["Statement"]
    store.close()
    assert isinstance(statements, list)
    return [(each["Action"], each["Resource"]) for each in statements]


OBJECTS = "arn:aws:s3:::bucket/a/log/*"
DENIED = ("s3:DeleteObjectVersion", OBJECTS)
"""In MinIO, the right to delete objects includes that to delete versions, unless that is denied."""


def test_each_role_gets_its_least_policy() -> None:
    lists = ("s3:ListBucket", "arn:aws:s3:::bucket")
    puts = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    assert policy(Role.DAEMON) == [lists, (puts, OBJECTS), DENIED]
    assert policy(Role.PRUNER) == [lists, (["s3:GetObject", "s3:DeleteObject"], OBJECTS), DENIED]
    assert policy(Role.READER) == [
        (["s3:ListBucket", "s3:ListBucketVersions"], "arn:aws:s3:::bucket"),
        (["s3:GetObject", "s3:GetObjectVersion"], OBJECTS),
    ]


def test_a_daemon_that_deletes_nothing_may_delete_its_trials_alone() -> None:
    assert policy(Role.DAEMON, deletes=False)[1:] == [
        (["s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"], OBJECTS),
        ("s3:DeleteObject", "arn:aws:s3:::bucket/a/log/trials/*"),
        DENIED,
    ]


def test_locks_and_keys_need_more_rights() -> None:
    locks = {"object-lock": "compliance", "retain": "30d", "legal-hold": "true"}
    (_, (actions, _), _) = policy(Role.DAEMON, **locks)
    assert isinstance(actions, list)
    assert actions[-3:] == ["s3:PutObjectRetention", "s3:GetObjectRetention", "s3:PutObjectLegalHold"]
    key = {"sse": "aws:kms", "sse-kms-key-id": "alias/mine"}
    assert policy(Role.DAEMON, **key)[-1] == (["kms:GenerateDataKey", "kms:Decrypt"], "arn:aws:kms:*:*:alias/mine")
    assert policy(Role.READER, **key)[-1] == ("kms:Decrypt", "arn:aws:kms:*:*:alias/mine")


@pytest.mark.parametrize("role", Role)
def test_a_prefix_with_signs_of_policies_means_itself(role: Role) -> None:
    """In a policy, ``*`` and ``?`` stand for any text, and ``${`` begins a variable: the rights would be for more."""
    store = open_store("s3://bucket/a*/b%3F/${c}", {"region": "eu-west-1"})
    statements = store.least_policy(role, deletes=False)["Statement"]
    store.close()
    assert isinstance(statements, list)
    begin = "arn:aws:s3:::bucket/a${*}/b${?}/${$}{c}/"
    assert {each["Resource"] for each in statements[1:]} <= {f"{begin}*", f"{begin}trials/*"}


@pytest.mark.parametrize(("document", "prefix"), [("README.md", "log"), ("etc/docs/s3.md", "events")])
def test_the_policy_of_a_document_is_the_daemons(document: str, prefix: str) -> None:
    text = (ROOT / document).read_text()
    shown = json.loads(text.split("cat > policy.json <<EOF\n")[1].split("\nEOF")[0].replace("$BUCKET", "bucket"))
    store = open_store(f"s3://bucket/{prefix}", {"region": "eu-west-1"})
    assert shown == store.least_policy(Role.DAEMON, deletes=True)
    store.close()
