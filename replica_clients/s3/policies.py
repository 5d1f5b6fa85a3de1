"""The least policies for users of a replica in S3, as IAM documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.objects.layout import TRIALS
from litelog.stores.access import Role

if TYPE_CHECKING:
    from replica_clients.s3.settings import S3Settings

_BUCKET = {Role.READER: ["s3:ListBucket", "s3:ListBucketVersions"]}
_OBJECTS = {
    Role.DAEMON: ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
    Role.READER: ["s3:GetObject", "s3:GetObjectVersion"],
    Role.PRUNER: ["s3:GetObject", "s3:DeleteObject"],
}
_LITERAL = str.maketrans({sign: f"${{{sign}}}" for sign in "*?$"})
"""How a policy writes a sign that has a meaning in policies."""
_KMS = {Role.DAEMON: ["kms:GenerateDataKey", "kms:Decrypt"]}


def least_policy(settings: S3Settings, role: Role, *, deletes: bool = True) -> dict[str, object]:
    """The policy, for the bucket and prefix of the settings. Locks and keys that the settings name need more rights.

    ``deletes``: whether a daemon deletes anything but the objects of its trials.

    The right to list is for the whole bucket: S3 says that an object is missing only to those who may list the bucket
    without a condition. To others a missing object looks forbidden. A role that may delete objects is denied
    the deletion of versions, since in MinIO the first right includes the second one otherwise.
    """
    bucket = f"arn:aws:s3:::{settings.bucket}"
    objects = f"{bucket}/{settings.prefix.translate(_LITERAL)}"
    actions = list(_OBJECTS[role])
    trials = role is Role.DAEMON and not deletes
    if trials:
        actions.remove("s3:DeleteObject")
    if role is Role.DAEMON:
        actions += ["s3:PutObjectRetention", "s3:GetObjectRetention"] if settings.object_lock else []
        actions += ["s3:PutObjectLegalHold"] if settings.legal_hold else []
    statements = [_allow(_BUCKET.get(role, ["s3:ListBucket"]), bucket), _allow(actions, f"{objects}*")]
    if trials:
        statements.append(_allow(["s3:DeleteObject"], f"{objects}{TRIALS}*"))
    if role is not Role.READER:
        statements.append({"Effect": "Deny", "Action": "s3:DeleteObjectVersion", "Resource": f"{objects}*"})
    if settings.sse_kms_key_id:
        statements.append(_allow(_KMS.get(role, ["kms:Decrypt"]), _key_arn(settings.sse_kms_key_id)))
    return {"Version": "2012-10-17", "Statement": statements}


def _allow(actions: list[str], resource: str) -> dict[str, object]:
    return {"Effect": "Allow", "Action": actions if len(actions) > 1 else actions[0], "Resource": resource}


def _key_arn(key: str) -> str:
    return key if key.startswith("arn:") else f"arn:aws:kms:*:*:{key if '/' in key else f'key/{key}'}"
