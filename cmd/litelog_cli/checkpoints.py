"""Handles the checkpoints of ``verify``: reads the expected one, compares it with the replica, and writes a new one."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from litelog.dataclass import dataclass
from litelog.errors import ConfigError, CorruptionError, ExitCode, NothingToRestoreError, OutputExistsError
from litelog.units import format_count, format_second
from litelog_cli.output import echo, json_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from litelog.checkpoints.held_history import CheckpointComparison
    from litelog.checkpoints.signing import SigningKey
    from litelog.formats import LogFormat
    from litelog.objects.checkpoint import Checkpoint
    from litelog.objects.checkpoint_chain import StoredCheckpoint
    from litelog.objects.position import Position
    from litelog.stores.replica_client import ReplicaClient


_OPTIONS = (
    click.option(
        "--expect-at-least",
        "expected",
        metavar="FILE|POSITION",
        help="Report if the replica holds less than this checkpoint, or other bytes, or has not come to this position.",
    ),
    click.option(
        "--trusted-key",
        "trusted_keys",
        metavar="PEM_FILE",
        multiple=True,
        help="Public Ed25519 key. Repeatable. One of these keys must have signed the checkpoint of --expect-at-least, "
        "or, without that option, the checkpoints in the replica. PEM_FILE may also be a checkpoint with a --next-key "
        "that is signed with a key before it: then that next key is trusted as well.",
    ),
    click.option(
        "--save-checkpoint",
        metavar="FILE",
        help="If all is well, write a checkpoint: what the replica holds, to compare with it later.",
    ),
    click.option("--sign-key", metavar="PEM_FILE", help="Sign that checkpoint with this private Ed25519 key."),
    click.option("--next-key", metavar="PEM_FILE", help="State there that this public key is the signer's, too."),
)


def checkpoint_options(command: Any) -> Any:
    """Give a command the options about checkpoints."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """The options of ``verify`` that are about checkpoints."""

    expected: str | None
    """A checkpoint's file, or a position."""
    trusted_keys: tuple[str, ...]
    save: str | None
    sign_key: str | None
    next_key: str | None

    def given(self) -> str | None:
        """The first of the options that is given; None if none is."""
        named = {
            "--expect-at-least": self.expected,
            "--trusted-key": self.trusted_keys,
            "--save-checkpoint": self.save,
            "--sign-key": self.sign_key,
            "--next-key": self.next_key,
        }
        return next((option for option, value in named.items() if value), None)


@dataclass(frozen=True, slots=True)
class CheckpointTask:
    """The checks of a replica, and the checkpoint to write if the replica is sound."""

    expected: Checkpoint | Position | None
    known: StoredCheckpoint | None
    """The expected checkpoint, if it is a copy of one in the replica."""
    trusted: Sequence[str]
    """Public keys, in hex, of which one must have signed the checkpoints in the replica."""
    digest: str | None
    """SHA-256 of the expected checkpoint's file."""
    save: str | None
    key: SigningKey | None
    next_key: str | None
    """Another public key of the signer, in hex."""

    @property
    def compares_contents(self) -> bool:
        """Whether the task relies on bytes that the verification has read: a position alone does not."""
        return self.digest is not None or bool(self.trusted) or self.save is not None


def read_task(options: CheckpointOptions) -> CheckpointTask | None:
    """Read the keys, and the expected checkpoint; None if no option is given.

    Raises:
        UsageError: Options are missing or contradict each other.
        ConfigError: A file cannot be read, or is not a key.
        CorruptObjectError: The expected checkpoint is damaged, or no trusted key has signed it.
        OutputExistsError: The checkpoint to write exists.
    """
    if options.given() is None:
        return None
    from litelog.objects.checkpoint import Checkpoint
    from litelog.objects.checkpoint_chain import as_stored

    if options.sign_key is not None and options.save is None:
        raise click.UsageError("--sign-key needs --save-checkpoint FILE")
    if options.next_key is not None and options.sign_key is None:
        raise click.UsageError("--next-key needs --sign-key PEM_FILE")
    if options.save is not None and os.path.lexists(options.save):
        raise OutputExistsError(options.save)
    if options.save is not None and not os.path.isdir(os.path.dirname(os.path.abspath(options.save))):
        raise ConfigError(f"--save-checkpoint {options.save}: no such folder")
    expected, body = (None, None) if options.expected is None else _read_expected(options)
    known, trusted = None, []
    if body is not None and isinstance(expected, Checkpoint) and expected.number is not None:
        known = as_stored(options.expected or "", body)
    if options.trusted_keys:
        from litelog.checkpoints.signing import read_trusted_keys

        trusted = read_trusted_keys(options.trusted_keys)
    digest = None if body is None else hashlib.sha256(body).hexdigest()
    key = next_key = None
    if options.sign_key is not None:
        from litelog.checkpoints.signing import SigningKey, read_trusted_key

        key = SigningKey(options.sign_key)
        next_key = None if options.next_key is None else read_trusted_key(options.next_key)
    return CheckpointTask(expected, known, trusted, digest, options.save, key, next_key)


def _read_expected(options: CheckpointOptions) -> tuple[Checkpoint | Position, bytes | None]:
    from litelog.objects.checkpoint import LIMITS, decode
    from litelog.objects.position import Position
    from litelog.system.files import read_regular

    name = options.expected or ""
    try:
        position = Position.parse_given(name)
    except ValueError:
        pass
    else:
        return position, None
    try:
        body = read_regular(name, LIMITS.size)
    except OSError as error:
        raise ConfigError(f"--expect-at-least {name}: neither a position nor a checkpoint: {error.strerror}") from error
    checkpoint = decode(name, body)
    if not options.trusted_keys:
        checkpoint = replace(checkpoint, next_key=None, key=None, signature=None)  # no trusted key shows whose they are
    elif checkpoint.number is None:
        from litelog.checkpoints.signing import read_trusted_keys, require_signed

        require_signed(name, checkpoint, read_trusted_keys(options.trusted_keys))
    return checkpoint, body


def _compare(
    task: CheckpointTask, client: ReplicaClient, formats: Callable[[str], LogFormat]
) -> CheckpointComparison | None:
    """Compare a replica with what is expected; None if nothing is. Raises StoreError."""
    from litelog.checkpoints.held_history import CheckpointComparison, HeldHistory
    from litelog.checkpoints.replica_checkpoints import compare_with_own
    from litelog.objects.checkpoint import Checkpoint
    from litelog.objects.position import Position

    expected = task.expected
    known = task.known if isinstance(expected, Checkpoint) else expected
    if task.trusted and (expected is None or known is not None):
        return compare_with_own(client, formats, task.trusted, known)
    if expected is None:
        return None
    try:
        history = HeldHistory(client, formats)
        return history.compare(expected) if isinstance(expected, Checkpoint) else history.reach(expected)
    except (NothingToRestoreError, CorruptionError) as error:
        position = expected.position if isinstance(expected, Checkpoint) else expected
        time = None if isinstance(expected, Position) else expected.time
        return CheckpointComparison(position, time, None, 0, 0, (f"cannot be compared: {error}",))


@dataclass(frozen=True, slots=True)
class CheckpointOutcome:
    """The outcome of a task."""

    comparison: CheckpointComparison | None = None
    saved: str | None = None
    """The checkpoint's file that was written."""
    unsaved: str | None = None
    """The checkpoint's file that was not written, as the replica is not sound, or not as expected."""

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the comparison."""
        if self.comparison is None:
            return ExitCode.DONE
        if self.comparison.differences:
            return ExitCode.CORRUPTION
        return ExitCode.FAILURE if self.comparison.is_unjudged else ExitCode.DONE

    def as_json(self) -> dict[str, Any]:
        """The outcome as JSON values, for programs."""
        found = self.comparison
        compared = None if found is None else {**found.as_json(), "time": json_time(found.time)}
        return {"checkpoint": compared, "saved_checkpoint": self.saved}

    def show(self) -> None:
        """Print the outcome for people; the last line is the verdict of the comparison."""
        if self.saved is not None:
            echo(f"wrote the checkpoint {self.saved}")
        if self.unsaved is not None:
            echo(f"the checkpoint {self.unsaved} was not written")
        for line in _lines(self.comparison) if self.comparison is not None else ():
            echo(line)


def follow_task(
    task: CheckpointTask | None, client: ReplicaClient, pattern: str | None, following: int | None, *, is_sound: bool
) -> CheckpointOutcome:
    """Compare a replica that was verified just now with what is expected. If it is sound and as expected, write the
    new checkpoint.

    Args:
        task: What to do; None: nothing.
        client: The replica.
        pattern: The pattern for the names of log segments, if its format needs one.
        following: The sequence after the replica's last record.
        is_sound: Whether the verification found nothing wrong.

    Raises:
        OutputExistsError: The new checkpoint's file exists.
        CorruptionError, StoreError: The replica can no longer be read.
        OSError: The file cannot be written.
    """
    if task is None:
        return CheckpointOutcome()
    from litelog.formats.registry import open_stored_format

    formats = partial(open_stored_format, pattern=pattern)
    comparison = _compare(task, client, formats)
    if task.save is None:
        return CheckpointOutcome(comparison)
    if not is_sound or CheckpointOutcome(comparison).exit_code is not ExitCode.DONE:
        return CheckpointOutcome(comparison, unsaved=task.save)
    _save(task, task.save, client, formats, following)
    return CheckpointOutcome(comparison, saved=task.save)


def _save(
    task: CheckpointTask,
    path: str,
    client: ReplicaClient,
    formats: Callable[[str], LogFormat],
    following: int | None,
) -> None:
    from litelog.checkpoints.held_history import HeldHistory
    from litelog.objects.checkpoint import encode
    from litelog.system.clock import SystemClock

    checkpoint = HeldHistory(client, formats).checkpoint(SystemClock().now(), following, task.digest)
    _write_new(path, encode(checkpoint if task.key is None else task.key.sign(checkpoint, task.next_key)))


def _write_new(path: str, body: bytes) -> None:
    """Write a new file, whole and synced, or none. Raises OutputExistsError, and OSError."""
    from litelog.system.files import sync_folder

    temporary = f"{path}.tmp"
    with suppress(FileNotFoundError):
        os.unlink(temporary)  # of a run that was killed
    with os.fdopen(os.open(temporary, _FILE_FLAGS, 0o644), "wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise OutputExistsError(path) from None
    finally:
        os.unlink(temporary)
    sync_folder(os.path.dirname(os.path.abspath(path)))


def _lines(comparison: CheckpointComparison) -> Iterator[str]:
    for difference in comparison.differences:
        yield f"not as expected: the replica {difference}"
    if comparison.time is None:
        of = "its own checkpoints" if comparison.position is None else str(comparison.position)
    else:
        number = "" if comparison.number is None else f" {comparison.number}"
        of = f"the checkpoint{number} of {format_second(comparison.time)}"
    older = f"; {format_count(comparison.dropped, 'older one')} no longer in the replica" if comparison.dropped else ""
    if comparison.differences:
        yield f"{of}: {format_count(len(comparison.differences), 'difference')}"
    elif comparison.is_unjudged and not comparison.dropped:
        others = format_count(comparison.chain - 1, "other")
        yield f"{of}, signed by {comparison.signer}: it continues {others}; no replica is here to compare with them"
    elif comparison.is_unjudged:
        yield f"{of}: the replica no longer holds any of it: give a newer checkpoint"
    elif comparison.time is None:
        yield f"{of} is reached"
    else:
        signer = "" if comparison.signer is None else f", signed by {comparison.signer}"
        segments = format_count(comparison.compared, "log segment")
        yield f"{of}{signer}: the replica holds the bytes of its {segments}{older}"
