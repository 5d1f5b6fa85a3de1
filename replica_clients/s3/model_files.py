"""Loads botocore's description of S3, once per process, and only what this package uses of it.

botocore describes every operation of S3, with its documentation, and the endpoints of all services. As Python objects
they take 13 MiB, and most of the time to create a client. What is kept here takes a tenth of that. The rest is decoded
one member at a time, and freed at once: objects that are kept would otherwise lie between freed ones, in memory that
cannot be returned.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from botocore.exceptions import DataNotFoundError
from botocore.loaders import JSONFileLoader, Loader

if TYPE_CHECKING:
    from collections.abc import Callable

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

CLIENTS = ("s3", "signin", "sso", "sso-oidc", "sts")
"""The services of which botocore makes clients here: S3, and those from which it gets credentials."""

_ENDPOINTS, _DESCRIPTION = f"{os.sep}endpoints", f"{os.sep}service-2"


class ServiceLoader(Loader):  # type: ignore[misc]  # botocore has no types
    """botocore's loader, for CLIENTS. To know all services, it would look into more than a thousand folders, which is a
    third of the time to create a client."""

    def __init__(self, data_path: str | None, files: ModelFiles) -> None:
        """``data_path``: more folders to search, as AWS_DATA_PATH has them."""
        paths = [] if data_path is None else data_path.split(os.pathsep)
        super().__init__(extra_search_paths=[os.path.expanduser(os.path.expandvars(path)) for path in paths])
        self.file_loader = files

    def list_available_services(self, type_name: str) -> list[str]:
        """Those of CLIENTS that a file of this type describes."""
        return [name for name in CLIENTS if self._has(name, type_name)]

    def _has(self, service: str, type_name: str) -> bool:
        try:
            return bool(self.list_api_versions(service, type_name))
        except DataNotFoundError:
            return False


class ModelFiles:
    """The file loader of a botocore session. Clients do not change what it returns, so all of them share it."""

    def __init__(self) -> None:
        self.exists = JSONFileLoader().exists
        self.load_file = cache(_load_file)


def _load_file(path: str) -> Any:
    """Load what botocore's own loader returns for ``path``, the name of a file without its ending, less the unused
    parts; all of it if they are not where they are expected. Raises JSONDecodeError."""
    if os.path.isfile(f"{path}.json"):
        with open(f"{path}.json", "rb") as file:
            content = file.read()
    elif os.path.isfile(f"{path}.json.gz"):
        with gzip.open(f"{path}.json.gz") as file:
            content = file.read()
    else:
        return None
    text = content.decode()
    with suppress(LookupError, ValueError):  # another botocore may describe them in another way
        if path.endswith(_ENDPOINTS):
            return _read_endpoints(text)
        if path.endswith(_DESCRIPTION):
            is_s3 = os.path.basename(os.path.dirname(os.path.dirname(path))) == "s3"
            return _read_service(text) if is_s3 else json.loads(text, object_pairs_hook=_without_documentation)
    return json.loads(text)


def _read_endpoints(text: str) -> dict[str, Any]:
    """The endpoints, only of SERVICES in each partition."""
    walk = _Walk(text)

    def value(_: str, start: int) -> tuple[Any, int]:
        return walk.value(start)

    def services(at: int) -> tuple[dict[str, Any], int]:
        return walk.members(at, value, SERVICES.__contains__)

    def partition(at: int) -> tuple[dict[str, Any], int]:
        return walk.members(at, lambda name, start: services(start) if name == "services" else walk.value(start))

    return walk.members(
        0, lambda name, start: walk.items(start, partition) if name == "partitions" else walk.value(start)
    )[0]


def _read_service(text: str) -> dict[str, Any]:
    """The description of a service with OPERATIONS only, and the shapes that these name, directly or not."""
    walk = _Walk(text)

    def value(_: str, start: int) -> tuple[Any, int]:
        return walk.value(start)

    def place(_: str, start: int) -> tuple[int, int]:
        return start, walk.value(start)[1]

    def member(name: str, start: int) -> tuple[Any, int]:
        if name == "operations":
            return walk.members(start, value, OPERATIONS.__contains__)
        return walk.members(start, place) if name == "shapes" else walk.value(start)

    service = _without_documentation([*walk.members(0, member)[0].items()])
    places, shapes = service["shapes"], dict[str, Any]()
    left = list(_named_shapes(service["operations"]))
    while left:
        name = left.pop()
        if name not in shapes:
            shapes[name], _ = walk.value(places[name])
            left.extend(_named_shapes(shapes[name]))
    return {**service, "shapes": {name: shapes[name] for name in places if name in shapes}}


class _Walk:
    """Walks through a text in JSON, and holds only the value that it reads. Documentation is empty in what it returns.
    Raises JSONDecodeError, or IndexError if the text is cut off."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._decode = json.JSONDecoder(object_pairs_hook=_without_documentation).raw_decode

    def value(self, at: int) -> tuple[Any, int]:
        """The value at ``at``, and the place after it."""
        return self._decode(self._text, at)

    def members(
        self,
        at: int,
        read: Callable[[str, int], tuple[Any, int]],
        is_kept: Callable[[str], bool] | None = None,
    ) -> tuple[dict[str, Any], int]:
        """The object at ``at``, less the members whose names are not kept, and the place after it. ``read``: reads the
        value of a member, by its name and its place."""
        found: dict[str, Any] = {}
        at = self._pass("{", at)
        while self._text[at] != "}":
            name, at = self.value(at)
            value, at = read(name, self._pass(":", at))
            if is_kept is None or is_kept(name):
                found[name] = value
            del value
            at = self._next(at)
        return found, at + 1

    def items(self, at: int, read: Callable[[int], tuple[Any, int]]) -> tuple[list[Any], int]:
        """The array at ``at``, and the place after it. ``read``: reads an element."""
        found: list[Any] = []
        at = self._pass("[", at)
        while self._text[at] != "]":
            value, at = read(at)
            found.append(value)
            at = self._next(at)
        return found, at + 1

    def _pass(self, mark: str, at: int) -> int:
        """The place of what follows ``mark``, which is next."""
        at = self._skip(at)
        if self._text[at : at + 1] != mark:
            raise json.JSONDecodeError(f"not {mark!r}", self._text, at)
        return self._skip(at + 1)

    def _next(self, at: int) -> int:
        """The place of the next member or element, or of the bracket that closes."""
        at = self._skip(at)
        return self._skip(at + 1) if self._text[at : at + 1] == "," else at

    def _skip(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        return at if found is None else found.end()


_SPACE = re.compile(r"[ \t\n\r]*")


def _without_documentation(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, with empty documentation. A member of that name that is not text is something else."""
    return {name: "" if name == "documentation" and isinstance(value, str) else value for name, value in pairs}


def _named_shapes(described: Any) -> list[str]:
    """The names of shapes in a part of a description: ``{"shape": name}``, at any depth."""
    if isinstance(described, list):
        return [name for value in described for name in _named_shapes(value)]
    if not isinstance(described, dict):
        return []
    names = [name for value in described.values() for name in _named_shapes(value)]
    shape = described.get("shape")
    return [*names, shape] if isinstance(shape, str) else names
