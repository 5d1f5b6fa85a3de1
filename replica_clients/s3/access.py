"""Finds out what credentials permit in a bucket, with its own trial objects, and how the bucket protects objects.

The trials put an object, read it, put it again, delete it, delete its versions, lock another one for a minute, and try
to end that lock. A holder of the credentials could do the same with every object below the prefix that the policy
names. Nothing else is touched. The bucket's own settings are asked for and never changed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.errors import NotFoundError, StoreError
from litelog.stores.access import Access, Attempt, Deed
from replica_clients.s3.errors import S3Error
from replica_clients.s3.upload import put_single

if TYPE_CHECKING:
    from replica_clients.s3.clients import S3Connection

LOCK_SECONDS = 60
"""How long a trial object stays locked. A store may refuse a time that is nearly over."""

BODY = b"a trial of litelog check: it may be deleted"

NEVER_TRIED = "rights to change the bucket itself: its versions, lock, lifecycle rules and policy (never tried)"

_DENIED = frozenset({"AccessDenied", "403", "Forbidden", "AllAccessDisabled"})
_NO_LOCK = frozenset({"ObjectLockConfigurationNotFoundError", "NoSuchObjectLockConfiguration"})
_UNKNOWN_THERE = frozenset({"NotImplemented", "XNotImplemented", "MethodNotAllowed"})
_LOCKS_NOTHING = frozenset({"InvalidRequest", "InvalidBucketState"})
_VERSIONS = "versions"
_DAYS = {"Days": 1, "Years": 365}


@dataclass(slots=True)
class _Found:
    """The known facts about the bucket."""

    versions: str | None = None
    has_lock: bool | None = None
    lock_mode: str | None = None
    lock_seconds: float | None = None
    not_asked: list[str] = field(default_factory=list)


class AccessTrial:
    """One examination. ``prefix``: where its objects lie, below the store's own prefix."""

    def __init__(self, connection: S3Connection, prefix: str) -> None:
        self._connection = connection
        self._key = f"{prefix}thief"
        self._locked = f"{prefix}locked"
        self._listed = prefix
        self._found = _Found()
        self._attempts: list[Attempt] = []
        self._versions: list[tuple[str, str]] = []
        """(key, version) of what was put, and of delete markers."""
        self._is_marker = False
        """Whether the last of them is a delete marker."""

    def run(self) -> Access:
        """Ask and try. Raises StoreError if the store does not answer."""
        found = self._found
        self._ask_versioning()
        self._ask_lock()
        try:
            may_list = self._try(Deed.LIST, "list", "list_objects_v2", Prefix=self._root + self._listed, MaxKeys=1)
            self._note(Deed.LIST, may_list, "sees the keys and sizes of all objects" if may_list else "")
            self._write(may_list=bool(may_list))
            self._lock()
        finally:
            self._clean()
        return Access(
            found.versions,
            found.has_lock,
            found.lock_mode,
            found.lock_seconds,
            tuple(self._attempts),
            (*found.not_asked, NEVER_TRIED),
        )

    @property
    def _root(self) -> str:
        return self._connection.settings.prefix

    @property
    def _keeps(self) -> bool:
        """Whether the bucket is known to keep what is deleted or overwritten."""
        return self._found.versions == "on"

    def _ask_versioning(self) -> None:
        try:
            answer = self._connection.request("versioning", "", "get_bucket_versioning")
        except S3Error as error:
            self._not_asked(_VERSIONS, error)
            return
        self._found.versions = {"Enabled": "on", "Suspended": "suspended"}.get(answer.get("Status", ""), "off")

    def _ask_lock(self) -> None:
        found = self._found
        try:
            answer = self._connection.request("lock settings", "", "get_object_lock_configuration")
        except S3Error as error:
            if error.code in _NO_LOCK:
                found.has_lock = False
            else:
                self._not_asked("object lock", error)
            return
        configuration = answer.get("ObjectLockConfiguration", {})
        found.has_lock = configuration.get("ObjectLockEnabled") == "Enabled"
        rule: dict[str, Any] = configuration.get("Rule", {}).get("DefaultRetention", {})
        if rule.get("Mode"):
            found.lock_mode = str(rule["Mode"]).lower()
            found.lock_seconds = 86400.0 * sum(days * int(rule.get(unit, 0)) for unit, days in _DAYS.items())

    def _not_asked(self, what: str, error: S3Error) -> None:
        if error.retryable:
            raise error
        reason = "the store does not know the request" if error.code in _UNKNOWN_THERE else error.reason
        self._found.not_asked.append(f"{what} ({reason})")

    def _write(self, *, may_list: bool) -> None:
        """Try to add, read, overwrite and delete an object."""
        added = self._put(self._key)
        self._note(Deed.ADD, added, "fills the bucket, and adds claims: a daemon then stops, which status shows")
        may_read = self._read(added=bool(added), may_list=may_list)
        self._note(Deed.READ, may_read, "reads all that is not encrypted (etc/docs/encryption.md)")
        overwritten = self._put(self._key) if added else added
        kept = "the earlier version stays, and --as-of reads it" if self._keeps else "the earlier bytes are gone"
        self._note(Deed.OVERWRITE, overwritten, kept)
        deleted = self._delete(self._key)
        hidden = "hides objects only: --as-of reads them" if self._keeps else "what is deleted is gone"
        self._note(Deed.DELETE, deleted, hidden)
        self._delete_versions(tried=bool(deleted or added))

    def _delete_versions(self, *, tried: bool) -> None:
        """Try to delete a delete marker for good, which no lock protects, or else a version."""
        if self._found.versions == "off" or (tried and not self._versions):
            self._attempts.append(Attempt(Deed.DELETE_VERSIONS, False, "there are no earlier versions"))
            return
        if not self._versions:
            self._attempts.append(Attempt(Deed.DELETE_VERSIONS, None, "not tried, as no object could be put"))
            return
        key, version = self._versions[-1]
        may = self._delete_version(key, version)
        if may is False and not self._is_marker and self._found.has_lock is not False:
            self._attempts.append(Attempt(Deed.DELETE_VERSIONS, None, "refused, perhaps only as the object is locked"))
            return
        self._note(Deed.DELETE_VERSIONS, may, "deletes for good what is not locked")

    def _lock(self) -> None:
        """Try to lock an object, and to end that lock early."""
        if self._found.has_lock is False:
            for deed in (Deed.LOCK, Deed.BYPASS):
                self._attempts.append(Attempt(deed, False, "the bucket has no Object Lock"))
            return
        until = datetime.now(UTC) + timedelta(seconds=LOCK_SECONDS)
        locked = self._put(self._locked, ObjectLockMode="GOVERNANCE", ObjectLockRetainUntilDate=until)
        if locked:
            self._found.has_lock = True
        self._note(Deed.LOCK, locked, "makes objects stay, and cost, for longer; it ends no lock")
        key, version = self._versions[-1] if self._versions else ("", "")
        if not locked or key != self._locked:
            self._attempts.append(Attempt(Deed.BYPASS, None, "not tried, as these credentials lock no object"))
            return
        may = self._delete_version(self._locked, version, BypassGovernanceRetention=True)
        self._note(Deed.BYPASS, may, "ends locks of mode governance, and not those of mode compliance")

    def _put(self, key: str, **lock: object) -> bool | None:
        """Whether an object may be put; None if it failed otherwise."""
        try:
            answer = put_single(self._connection, key, BODY, **lock)
        except S3Error as error:
            if lock and error.code in _LOCKS_NOTHING:
                self._found.has_lock = False
                return False
            return self._refused(Deed.LOCK if lock else Deed.ADD, error)
        version = answer.get("VersionId")
        if version:
            self._versions.append((key, str(version)))
        if self._found.versions is None:
            self._found.versions = "on" if version else "off"
            self._found.not_asked = [each for each in self._found.not_asked if not each.startswith(_VERSIONS)]
        return True

    def _read(self, *, added: bool, may_list: bool) -> bool | None:
        """Whether objects may be read. Without an object: whether the store says that one is missing."""
        settings = self._connection.settings
        key = settings.sse_customer_key
        customer = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": key} if key else {}
        try:
            found = self._connection.request("open", self._key, "get_object", Key=self._root + self._key, **customer)
            found["Body"].close()
        except NotFoundError:
            return None if added else True
        except S3Error as error:
            return self._refused(Deed.READ, error) if added or may_list else None
        return True

    def _delete(self, key: str) -> bool | None:
        try:
            answer = self._connection.request("delete", key, "delete_object", Key=self._root + key)
        except S3Error as error:
            return self._refused(Deed.DELETE, error)
        if answer.get("DeleteMarker") and (version := answer.get("VersionId")):
            self._versions.append((key, str(version)))
            self._is_marker = True
        return True

    def _delete_version(self, key: str, version: str, **more: object) -> bool | None:
        may = self._try(
            Deed.DELETE_VERSIONS, "delete", "delete_object", Key=self._root + key, VersionId=version, **more
        )
        if may:
            self._versions.remove((key, version))
        return may

    def _try(self, deed: Deed, operation: str, method: str, **parameters: object) -> bool | None:
        try:
            self._connection.request(operation, self._key, method, **parameters)
        except S3Error as error:
            return self._refused(deed, error)
        return True

    def _refused(self, deed: Deed, error: S3Error) -> bool | None:
        """False if the store refused for lack of a right; None if that is unknown."""
        if error.code in _DENIED:
            return False
        if error.retryable:
            raise error
        self._found.not_asked.append(f"{deed} ({error.reason})")
        return None

    def _note(self, deed: Deed, may: bool | None, meaning: str) -> None:
        """Add a result. ``meaning``: what it means if the deed is permitted."""
        self._attempts.append(Attempt(deed, may, meaning if may else ""))

    def _clean(self) -> None:
        """Delete what the trials put, if that is permitted: versions, or else what readers see."""
        stay = False
        for key, version in self._versions:
            try:
                self._connection.request("delete", key, "delete_object", Key=self._root + key, VersionId=version)
            except StoreError:
                stay = True
        if stay or self._found.versions != "on":
            for key in (self._key, self._locked):
                with suppress(StoreError):
                    self._connection.request("delete", key, "delete_object", Key=self._root + key)
