"""The tree of litelog's errors, and the exit code that each one ends a command with.

Every error of litelog that reaches a program derives from LitelogError. An error that only one module raises is defined
there, as a subclass of one of these.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.installation import install_command

if TYPE_CHECKING:
    from collections.abc import Sequence


class ExitCode(IntEnum):
    """The exit status of a command."""

    DONE = 0
    FAILURE = 1
    USAGE = 2
    NOTHING_TO_RESTORE = 3
    FINAL_SYNC_FAILED = 4
    FENCED = 5
    CORRUPTION = 6


class LitelogError(Exception):
    """The base of all errors here. Its message says what happened and, if anything can be done, what to do."""

    exit_code: ExitCode = ExitCode.FAILURE
    lines: Sequence[str] = ()
    """The lines of a message that has several: one for each problem."""


class ConfigError(LitelogError):
    """The configuration or the command line asks for something that does not exist or does not fit."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True, slots=True)
class ConfigMistake:
    """An error in a configuration file."""

    line: int
    """Its line, from 1 on."""
    column: int
    """Its column, from 1 on."""
    key: str
    """The path of its key, such as ``logs[0].path``; empty if it is about the whole file."""
    message: str


class InvalidConfigError(ConfigError):
    """A configuration is invalid. ``problems`` has one line for each error in it, which names the error's place. For a
    configuration file, ``mistakes`` has the same errors with line, column and key."""

    def __init__(self, source: str, problems: list[str], mistakes: Sequence[ConfigMistake] = ()) -> None:
        self.source = source
        self.problems = problems
        self.mistakes = mistakes
        count = "1 error" if len(problems) == 1 else f"{len(problems)} errors"
        self.lines = [f"{source}: {count} in the configuration", *(f"  {problem}" for problem in problems)]
        super().__init__("\n".join(self.lines))


class UnknownSchemeError(ConfigError):
    """No replica client is installed for a URL's scheme. ``hint`` says what an installed client for it still needs."""

    def __init__(self, scheme: str, known: list[str], extra: str | None = None, hint: str = "") -> None:
        self.scheme = scheme
        self.known = known
        self.hint = hint
        install = f"{scheme}:// needs packages that are missing; run: {install_command(extra)}" if extra else ""
        package = re.search(r'(?:[Ii]nstall|requires) "?([A-Za-z0-9_.-]+)', hint)
        named = f"{package[1]}: pip install {package[1]}" if package else hint
        needed = f"{scheme}:// needs {named}" if hint else install
        super().__init__(needed or f"no replica client for {scheme}:// (known: {', '.join(known)})")


class UnknownFormatError(ConfigError):
    """No log format of that name is installed. ``key``: the object that names the format, if any."""

    def __init__(self, name: str, known: list[str], key: str = "") -> None:
        self.name = name
        self.known = known
        self.key = key
        where = f"{key}: " if key else ""
        super().__init__(f"{where}no log format {name!r} (known: {', '.join(known)})")


class OutputExistsError(LitelogError):
    """The output of a restore exists already; nothing was changed."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path}: exists already; choose another output, or move it away (nothing was changed)")


class NothingToRestoreError(LitelogError):
    """The replica holds nothing that matches the request."""

    exit_code = ExitCode.NOTHING_TO_RESTORE


class NoReplicaError(NothingToRestoreError):
    """A URL holds no replica. ``why`` says what it holds instead, if that is known."""

    def __init__(self, url: str, why: str = "") -> None:
        self.url = url
        super().__init__(why or f"{url}: no replica there")


class EmptyLogError(NothingToRestoreError):
    """The replica exists, but holds nothing of its log yet: no records to read, and nothing to
    restore."""


class FinalSyncError(LitelogError):
    """The last sync at shutdown did not reach every replica."""

    exit_code = ExitCode.FINAL_SYNC_FAILED


class NotReplicatedError(LitelogError):
    """Configured logs could not be replicated."""


class StoreError(LitelogError):
    """A replica's store failed: the operation, the key, and what the store said.

    ``retryable``: whether the same request may succeed later without a person's help. ``retry_after``: how many seconds
    the store asks to wait.
    """

    def __init__(
        self, operation: str, key: str, reason: str, *, retryable: bool = True, retry_after: float | None = None
    ) -> None:
        self.operation = operation
        self.key = key
        self.reason = reason
        self.retryable = retryable
        self.retry_after = retry_after
        self.place: str | None = None
        """The replica's URL, if the message begins with it."""
        super().__init__(f"{f'{operation} {key}'.rstrip()}: {reason}")

    def __str__(self) -> str:
        return super().__str__() if self.place is None else f"{self.place}: {super().__str__()}"


class NotFoundError(StoreError):
    """No object has that key."""

    def __init__(self, key: str, operation: str = "open") -> None:
        super().__init__(operation, key, "no such object", retryable=False)


class ExistsError(StoreError):
    """A create-only put found the key taken. Nothing was written."""

    def __init__(self, key: str) -> None:
        super().__init__("put", key, "exists already", retryable=False)


class PrunedError(LitelogError):
    """Retention removed the object that a reader needs next. ``position`` is the requested position."""

    def __init__(self, position: str) -> None:
        self.position = position
        super().__init__(f"{position}: no longer in the replica (retention removed it)")


class GenerationMismatchError(LitelogError):
    """A WAL segment or position was given to an iterator over another generation."""

    def __init__(self, expected: str, actual: str) -> None:
        self.expected = expected
        self.actual = actual
        super().__init__(f"generation {actual} in an iterator over {expected}")


class SegmentOrderError(LitelogError):
    """A WAL segment was appended out of order. ``expected`` and ``actual`` are positions; ``what`` names the rule."""

    def __init__(self, what: str, expected: str, actual: str) -> None:
        self.what = what
        self.expected = expected
        self.actual = actual
        super().__init__(f"{actual}: {what} (expected {expected})")


class OtherLogError(LitelogError):
    """A replica belongs to another log than the current one."""

    def __init__(self, replica: str, expected: str, actual: str) -> None:
        self.replica = replica
        self.expected = expected
        self.actual = actual
        super().__init__(f"{replica}: holds log {actual}, not {expected}; give each log its own replica URL")


class FencedError(LitelogError):
    """This owner may not write to this replica, or may no longer do so: another owner has it."""

    exit_code = ExitCode.FENCED


class ForeignClaimError(FencedError):
    """The newest claim is another owner's, and no takeover was requested."""

    def __init__(self, replica: str, owner: str, host: str, generation: str, why: str) -> None:
        self.replica = replica
        self.owner = owner
        self.host = host
        self.generation = generation
        super().__init__(
            f"{replica}: generation {generation} belongs to owner {owner} on {host}: {why}; "
            "if no other daemon writes there, run again with --takeover"
        )


class NotACopyError(FencedError):
    """The target of a copy holds what its replica does not: another replica, or what a daemon wrote to the copy.

    ``key`` is the first object that differs, and ``what`` says how.
    """

    def __init__(self, target: str, replica: str, key: str, what: str) -> None:
        self.target = target
        self.replica = replica
        self.key = key
        self.what = what
        super().__init__(f"{target}: is not a copy of {replica} ({key}: {what}); choose an empty target")


class ReplicaLockedError(FencedError):
    """Another process on this host owns the replica: it holds the lock of the state folder."""

    def __init__(self, path: str, what: str) -> None:
        self.path = path
        super().__init__(f"{what} is in use by another process (lock {path})")


class ConsumerMovedError(FencedError):
    """Another process has moved the position of this consumer. ``next`` is the sequence at which it is now."""

    def __init__(self, name: str, following: int | None) -> None:
        self.name = name
        self.next = following
        place = "the first record" if following is None else f"sequence {following}"
        super().__init__(
            f"consumer {name} was moved to {place} by another process, so nothing was committed; give each process "
            "its own consumer, or run one at a time"
        )


class LockedError(LitelogError):
    """Another process on this host uses a folder: it holds the lock. It may end at any time, so try again later."""

    def __init__(self, path: str, what: str) -> None:
        self.path = path
        super().__init__(f"{what} is in use by another process (lock {path})")


class CorruptionError(LitelogError):
    """Bytes are not what their writer promised."""

    exit_code = ExitCode.CORRUPTION


class CorruptCommitError(CorruptionError):
    """A commit in a log segment fails a check. Offsets are bytes from the log segment's start."""

    def __init__(self, path: str, offset: int, what: str, expected: object, actual: object) -> None:
        self.path = path
        self.offset = offset
        self.what = what
        self.expected = expected
        self.actual = actual
        super().__init__(f"{path}: corrupt commit at offset {offset}: {what} is {actual}, expected {expected}")


class SequenceGapError(CorruptionError):
    """The next commit does not follow the one before it."""

    def __init__(self, path: str, offset: int, expected: int, actual: int) -> None:
        self.path = path
        self.offset = offset
        self.expected = expected
        self.actual = actual
        super().__init__(f"{path}: gap at offset {offset}: sequence {actual} follows, expected {expected}")


class WrongFormatError(CorruptionError):
    """A log segment is not of the format that it was opened as."""

    exit_code = ExitCode.FAILURE

    def __init__(self, path: str, format_name: str, reason: str) -> None:
        self.path = path
        self.format_name = format_name
        super().__init__(f"{path}: not a log segment of format {format_name}: {reason}")


class CorruptObjectError(CorruptionError):
    """An object of a replica fails a check."""

    def __init__(self, key: str, what: str, expected: object = None, actual: object = None) -> None:
        self.key = key
        self.what = what
        self.expected = expected
        self.actual = actual
        detail = "" if expected is None else f" is {actual}, expected {expected}"
        super().__init__(f"{key}: {what}{detail}")


class EncryptedError(ConfigError):
    """A replica, or an object in it, is encrypted, and no identity was given to read it."""

    def __init__(self, place: str) -> None:
        self.place = place
        super().__init__(
            f"{place}: is encrypted; name the file of your identity: --identity FILE, the variable LITELOG_IDENTITY or "
            "identity-file in the configuration"
        )


class WrongIdentityError(ConfigError):
    """None of the given identities reads a generation."""

    def __init__(self, key: str, identities: str, recipients: Sequence[str]) -> None:
        self.key = key
        readers = ", ".join(recipients)
        super().__init__(f"{key}: {identities} does not read this generation; its recipients are {readers}")


class DowngradeError(ConfigError):
    """A generation without encryption follows an encrypted one, and nothing says that it may."""

    def __init__(self, key: str, encrypted: str, advice: str) -> None:
        self.key = key
        super().__init__(f"{key}: is not encrypted, but {encrypted} before it is; {advice}")


class NotEnoughMemoryError(LitelogError):
    """An object of a replica needs more memory than this process may use. The object may be intact."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"{key}: not enough memory to read it; allow this process more")


class UnknownVersionError(LitelogError):
    """A newer litelog wrote the object. It may be intact, but this version does not read it."""

    def __init__(self, key: str, what: str, known: int, actual: object) -> None:
        self.key = key
        self.known = known
        self.actual = actual
        advice = "read it with the litelog that wrote it"
        super().__init__(f"{key}: version of its {what} is {actual}, expected {known}: {advice}")


class ReplicaGapError(CorruptionError):
    """A generation lacks an object between two existing ones."""

    def __init__(self, position: str, found: str | None = None) -> None:
        self.position = position
        self.found = found
        following = f" (the next one there is {found})" if found else ""
        super().__init__(f"{position}: missing from the replica{following}")


class SourceError(LitelogError):
    """The log at the source cannot be read."""


class SourceSyncError(SourceError):
    """The source cannot be synced, so it is unknown which of its bytes are durable. The log is frozen."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class SourceMissingError(SourceError):
    """The log's folder is missing, or holds no log segment."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class DivergedError(SourceError):
    """The source no longer continues what was shipped: the history forks here."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")

    def reason_in(self, folder: str) -> str:
        """The reason, which names the file if the history forks at a file of ``folder``."""
        parent, _, name = self.path.rpartition("/")
        return f"{name}: {self.reason}" if parent == folder.rstrip("/") and name else self.reason


class LogError(LitelogError):
    """An operation on a log was refused."""


class ClosedError(LogError):
    """The object was closed."""


class DependencyError(LogError):
    """An append was to follow another one, which failed; nothing was written."""

    def __init__(self, log: str, cause: BaseException | None) -> None:
        self.log = log
        why = "was cancelled" if cause is None else f"failed: {cause}"
        super().__init__(f"{log}: nothing was appended, as what the append waited for {why}")


class SequenceConflictError(LogError):
    """``append(expected_sequence=)`` named another sequence than the next one; nothing was written."""

    def __init__(self, expected: int, actual: int) -> None:
        self.expected = expected
        self.actual = actual
        super().__init__(f"expected to append at sequence {expected}, but the next one is {actual}")


class StaleEpochError(LogError):
    """The given epoch is below the log's newest one; nothing was written."""

    def __init__(self, epoch: int, newest: int) -> None:
        self.epoch = epoch
        self.newest = newest
        super().__init__(f"epoch {epoch} is stale: the log is at {newest}")


class PoisonedError(LogError):
    """An earlier write or fsync failed, so this writer cannot know what is durable. Open the log again."""


class ConsumerStateError(LogError):
    """The position of a consumer cannot be read or written."""


class OffsetJumpError(LogError):
    """The records that come next are gone from every source. The next ``read`` continues with ``next``."""

    def __init__(self, requested: int, following: int) -> None:
        self.requested = requested
        self.next = following
        super().__init__(f"the records {requested} to {following - 1} are gone everywhere; the next one is {following}")


class TruncatedError(LogError):
    """The requested sequence precedes the first available one."""

    def __init__(self, requested: int, first_available: int) -> None:
        self.requested = requested
        self.first_available = first_available
        super().__init__(f"sequence {requested} was truncated; the first available is {first_available}")


class NotYetAvailableError(LogError):
    """The reader is at the head and was asked not to wait."""
