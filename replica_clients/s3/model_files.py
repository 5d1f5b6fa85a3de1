"""Loads botocore's description of S3, once per process, and only what this package uses of it.

botocore describes every operation of S3, with its documentation, and the endpoints of all services. As Python objects
they take 13 MiB, and most of the time to create a client. What is kept here takes a tenth of that.
"""

from __future__ import annotations

import gzip
import json
import os
from functools import cache
from typing import Any

from botocore.loaders import JSONFileLoader

OPERATIONS = frozenset({
    "AbortMultipartUpload",
    "CompleteMultipartUpload",
    "CreateMultipartUpload",
    "DeleteObject",
    "DeleteObjects",
    "GetBucketVersioning",
    "GetObject",
    "GetObjectLockConfiguration",
    "GetObjectRetention",
    "ListObjectVersions",
    "ListObjectsV2",
    "PutObject",
    "PutObjectRetention",
    "UploadPart",
    "UploadPartCopy",
    # botocore sends these by itself: for a bucket of another region, and for one with the suffix ``--x-s3``.
    "CreateSession",
    "HeadBucket",
})  # fmt: skip
"""The operations of S3 that are kept."""

SERVICES = frozenset({"s3", "sts", "sso", "portal.sso", "oidc", "signin"})
"""The services whose endpoints are kept: S3, and those from which botocore gets credentials."""

_ENDPOINTS, _DESCRIPTION = f"{os.sep}endpoints", f"{os.sep}service-2"
_OF_S3 = f"{os.sep}s3{os.sep}"


class ModelFiles:
    """The file loader of a botocore session. Clients do not change what it returns, so all of them share it."""

    def __init__(self) -> None:
        self.exists = JSONFileLoader().exists
        self.load_file = cache(_load_file)


def _load_file(path: str) -> Any:
    """Load what botocore's own loader returns for ``path``, the name of a file without its ending, less the unused
    parts."""
    if os.path.isfile(f"{path}.json"):
        with open(f"{path}.json", "rb") as file:
            content = file.read()
    elif os.path.isfile(f"{path}.json.gz"):
        with gzip.open(f"{path}.json.gz") as file:
            content = file.read()
    else:
        return None
    if path.endswith(_ENDPOINTS):
        return json.loads(content, object_pairs_hook=_with_few_services)
    if path.endswith(_DESCRIPTION):
        described = json.loads(content, object_pairs_hook=_without_documentation)
        return _with_few_operations(described) if _OF_S3 in path else described
    return json.loads(content)


def _with_few_services(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; of an object that has a member for each service, only those of SERVICES."""
    kept = dict(pairs)
    return {name: value for name, value in pairs if name in SERVICES} if kept.keys() >= {"s3", "sts"} else kept


def _without_documentation(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, with empty documentation. A member of that name that is not text is something else."""
    return {name: "" if name == "documentation" and isinstance(value, str) else value for name, value in pairs}


def _with_few_operations(service: dict[str, Any]) -> dict[str, Any]:
    """The description of a service with OPERATIONS only, and the shapes that these name, directly or not."""
    operations = {name: operation for name, operation in service["operations"].items() if name in OPERATIONS}
    shapes, needed = service["shapes"], set[str]()
    left = list(_named_shapes(operations))
    while left:
        name = left.pop()
        if name not in needed:
            needed.add(name)
            left.extend(_named_shapes(shapes[name]))
    return {**service, "operations": operations, "shapes": {name: shapes[name] for name in shapes if name in needed}}


def _named_shapes(described: Any) -> list[str]:
    """The names of shapes in a part of a description: ``{"shape": name}``, at any depth."""
    if isinstance(described, list):
        return [name for value in described for name in _named_shapes(value)]
    if not isinstance(described, dict):
        return []
    names = [name for value in described.values() for name in _named_shapes(value)]
    shape = described.get("shape")
    return [*names, shape] if isinstance(shape, str) else names
