"""Opens a mirror, which is restored or continued, and promotes a mirror to a log that writers append to."""

from __future__ import annotations

import logging
import os
import shlex
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias

from litelog.dataclass import dataclass
from litelog.errors import ConfigError, DivergedError, PrunedError, StoreError
from litelog.events import fields
from litelog.log.mirror_note import MirrorNote, is_mirror, mirror_note
from litelog.restore.choose_replica import describe
from litelog.restore.history_plan import Target
from litelog.restore.mirror import Mirror, set_aside
from litelog.restore.opened_restore import is_taken, opened_restore
from litelog.restore.output import OutputError
from litelog.restore.wal_restore import RestoreStoppedError
from litelog.stores.object_store import KnowsFolder
from litelog.stores.opening import opened_replica
from litelog.stores.registry import is_served, open_store, redact
from litelog.system.files import folder_id

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from litelog.errors import LitelogError
    from litelog.log.recovery import OnTrailing
    from litelog.objects.position import Position
    from litelog.restore.choose_replica import ReplicaChoice
    from litelog.restore.execution import RestoreProgress

_logger = logging.getLogger(__name__)

OnFork: TypeAlias = Literal["error", "new"]


@dataclass(frozen=True, slots=True)
class Promotion:
    """The contents of a promoted mirror."""

    folder: str
    source: str
    """The URL of the log that it was a mirror of."""
    position: Position
    """Its end, in the generation of the replica that it was compared with."""
    appended: int
    """Bytes that it lacked, and got from the replica."""
    trimmed: int
    """Bytes after its last whole commit that were cut off."""


@contextmanager
def opened_mirror(
    url: str,
    options: Mapping[str, object],
    folder: str,
    *,
    pattern: str | None = None,
    on_trailing: OnTrailing = "trim",
    replicas: Sequence[tuple[str, Mapping[str, object]]] = (),
    stop: threading.Event | None = None,
    progress: Callable[[RestoreProgress], None] | None = None,
) -> Iterator[Mirror]:
    """Open the mirror in ``folder``, which is restored first if there is nothing in it.

    Args:
        url: The log, as its daemon serves it.
        options: The options of the URL's store.
        folder: The mirror. A copy of the log that a restore made is continued, too.
        pattern: Which names are log segments, for formats that need a pattern.
        on_trailing: "trim" cuts off what a kill left after the last whole commit; "error" raises CorruptCommitError.
        replicas: URLs and options of the log's replicas, which the mirror follows while the daemon cannot be reached.
        stop: Ends a wait for the daemon or a replica, once it is set; None: only the time does.
        progress: Called during the restore.

    Raises:
        NothingToRestoreError: The log has no replica yet.
        LockedError: A writer or another mirror has the folder.
        OutputError: The folder is that of the log itself, or holds anything but a mirror or a copy of the log.
        RestoreStoppedError: ``stop`` was set during the restore. The next call continues it.
        CorruptCommitError, SequenceGapError, OutputError: As ``Mirror.recover``.
        ConfigError: ``url`` is not a log that a daemon serves.
        ConfigError, StoreError, CorruptObjectError, ReplicaGapError: As ``opened_restore``.
    """
    _require_served(url, options)
    folder = os.path.abspath(folder)
    with ExitStack() as stack:
        away = _why_away(url, options) if replicas else None
        addresses = [*replicas] if away is not None else [(url, options), *replicas]
        opened = stack.enter_context(opened_restore(addresses, Target(), pattern=pattern, stop=stop))
        choice, is_new = opened.choice, not is_taken(folder)
        is_copy = not is_new and not is_mirror(folder)
        if is_copy and away is None:
            _require_other_folder(url, options, folder)
        if is_copy:
            _require_copy(folder, redact(url), choice)
        if is_new:
            opened.run(folder, progress=progress, stop=stop)
        if replicas:
            _report_skipped(opened.skipped)
        client, *fallbacks = (
            stack.enter_context(opened_replica(*each, is_only=not replicas, stop=stop))
            for each in ((url, options), *replicas)
        )
        mirror = Mirror(
            client,
            folder,
            choice.plan,
            choice.log_format,
            pattern=pattern,
            is_restored=is_new,
            fallbacks=fallbacks,
            away=away,
            stop=stop,
        )
        stack.enter_context(mirror)
        if is_copy:
            mirror.adopt(choice.client, choice.plan)
        mirror.recover(on_trailing)
        yield mirror


@dataclass(frozen=True, slots=True)
class MirrorRules:
    """How a log is mirrored."""

    pattern: str | None = None
    """Which names are log segments, for formats that need a pattern."""
    on_fork: OnFork = "error"
    """What to do if the mirror cannot continue: "error" raises the reason; "new" renames it, and begins another one."""
    on_trailing: OnTrailing = "trim"
    """As ``opened_mirror``."""
    replicas: tuple[tuple[str, Mapping[str, object]], ...] = ()
    """As ``opened_mirror``."""


def keep_mirror(
    source: tuple[str, Mapping[str, object]],
    folder: str,
    rules: MirrorRules,
    use: Callable[[Mirror], None],
    *,
    stop: threading.Event | None = None,
    opening: Callable[[], AbstractContextManager[Callable[[RestoreProgress], None] | None]],
    note_aside: Callable[[str, Exception], None],
) -> None:
    """Open a mirror, and call ``use`` with it. With ``on_fork="new"``, begin another one after a fork.

    Args:
        source: The log as its daemon serves it: URL and options.
        folder: The mirror.
        rules: How to mirror.
        use: Mirrors until it has had enough.
        stop: As ``opened_mirror``.
        opening: Entered while a mirror is opened or restored. Gives a function that is called during the restore.
        note_aside: Called with the new path of a mirror that was renamed, and with the reason.

    Raises as ``opened_mirror``, and as ``use``. After ``stop`` was set, a request that fails while the mirror is opened
    is a RestoreStoppedError, too.
    """
    while True:
        try:
            with ExitStack() as stack:
                with opening() as progress:
                    opened = opened_mirror(
                        *source,
                        folder,
                        pattern=rules.pattern,
                        on_trailing=rules.on_trailing,
                        replicas=rules.replicas,
                        stop=stop,
                        progress=progress,
                    )
                    mirror = stack.enter_context(_stoppable(opened, stop))
                use(mirror)
        except (DivergedError, PrunedError) as error:
            if rules.on_fork == "error":
                _add_advice(error, source[0], folder, rules)
                raise
            note_aside(set_aside(folder), error)
        else:
            return


def _add_advice(error: LitelogError, url: str, folder: str, rules: MirrorRules) -> None:
    """Let a fork's message name the source, and say what to type. Its kind is for programs, and stays."""
    pattern = () if rules.pattern is None else ("--pattern", rules.pattern)
    replicas = (word for replica, _ in rules.replicas for word in ("--replica", redact(replica)))
    command = shlex.join(["litelog", "mirror", "--on-fork", "new", *pattern, *replicas, redact(url), folder])
    said = f"so {folder} cannot continue as a mirror of {redact(url)}; to set it aside and begin another one: {command}"
    error.args = (f"{error}: {said}",)


@contextmanager
def _stoppable(opened: AbstractContextManager[Mirror], stop: threading.Event | None) -> Iterator[Mirror]:
    """Open a mirror. Raise RestoreStoppedError if a request was not repeated since ``stop`` was set."""
    with ExitStack() as stack:
        try:
            mirror = stack.enter_context(opened)
        except StoreError as error:
            if stop is None or not stop.is_set():
                raise
            raise RestoreStoppedError(str(error)) from error
        yield mirror


def promote(
    folder: str, replicas: Sequence[tuple[str, Mapping[str, object]]], *, on_trailing: OnTrailing = "trim"
) -> Promotion:
    """Make a mirror a log to which writers append. First append what the log's replicas have more of it.

    The replica may have more than the mirror, and those records were acknowledged as replicated. So the replicas are
    needed: without them, the next owner of a replica would begin a new history.

    Args:
        folder: The mirror. Nothing else may mirror into it or write to it.
        replicas: URLs and options of the log's replicas, not through its daemon.
        on_trailing: As ``opened_mirror``.

    Raises:
        ConfigError: The folder is not a mirror, or its note is damaged; or a replica is named by its daemon's URL.
        DivergedError: The mirror holds what the replicas do not continue. It stays a mirror.
        LockedError, OutputError, StoreError, CorruptObjectError, ReplicaGapError: As ``opened_mirror``.
    """
    folder = os.path.abspath(folder)
    note = _read_note(folder)
    for url, options in replicas:
        _require_claimable(url, options)
    with opened_restore(replicas, Target(), pattern=note.pattern) as opened:
        choice = opened.choice
        with Mirror(choice.client, folder, choice.plan, choice.log_format, pattern=note.pattern) as mirror:
            trimmed = mirror.recover(on_trailing)
            position = mirror.join()
            try:
                mirror_note(folder).remove()
            except OSError as error:
                raise OutputError(folder, error.strerror or str(error)) from error
            return Promotion(folder, note.source, position, mirror.appended, trimmed)


def _read_note(folder: str) -> MirrorNote:
    note = mirror_note(folder).read()
    if not os.path.lexists(folder):
        raise ConfigError(f"{folder}: no such folder")
    if note is None:
        reason = "its note is damaged; run litelog mirror again" if is_mirror(folder) else "is not a mirror"
        raise ConfigError(f"{folder}: {reason}")
    return note


def _require_claimable(url: str, options: Mapping[str, object]) -> None:
    """Raise ConfigError if ``url`` is a replica that is read through its daemon. Makes no request."""
    store = open_store(url, options)
    store.close()
    if is_served(store):
        advice = "name the replica itself, such as s3://bucket/orders: the next daemon claims it"
        raise ConfigError(f"{redact(url)}: is the log at its daemon, and not a replica to write to; {advice}")


def _why_away(url: str, options: Mapping[str, object]) -> StoreError | None:
    """Why the daemon does not answer a single request; None if it does. A restore would repeat requests for a while."""
    store = open_store(url, options)
    try:
        next(iter(store.list("")), None)
    except StoreError as error:
        return error
    finally:
        store.close()
    return None


def _require_served(url: str, options: Mapping[str, object]) -> None:
    """Raise ConfigError if ``url`` is a replica that is not read through a daemon. Makes no request."""
    store = open_store(url, options)
    store.close()
    if not is_served(store):
        advice = f"litelog restore --follow {shlex.quote(redact(url))} -o FOLDER keeps a copy of a replica up to date"
        raise ConfigError(f"{redact(url)}: is not a log that a daemon serves (http://HOST:PORT/logs/NAME); {advice}")


def _require_copy(folder: str, url: str, choice: ReplicaChoice) -> None:
    """Raise OutputError unless a folder without a mirror's note may hold a copy of the log, by the names in it."""
    try:
        orders = {name: choice.log_format.segment_order(name) for name in os.listdir(folder)}
    except OSError as error:
        raise OutputError(folder, f"is not a folder for a mirror: {error.strerror or error}") from error
    planned = [file.name for file in choice.plan.all_files]
    held = sorted((order, name) for name, order in orders.items() if order is not None)
    advice = "name a new folder for the mirror"
    if not any(name in planned for _, name in held):
        raise OutputError(folder, f"is not empty, and holds no log segment of {url}: {advice}")
    first = choice.log_format.segment_order(planned[0]) or ()
    other = next((name for order, name in held if order >= first and name not in planned), None)
    if other is not None:
        raise OutputError(folder, f"holds {other}, which the replica of {url} does not have: {advice}")


def _report_skipped(skipped: Sequence[tuple[str, str]]) -> None:
    """Report the replicas that could not be followed now if the daemon were away."""
    for url, reason in skipped:
        _logger.warning("skipped %s", describe(url, reason), extra=fields("replica-skipped", replica=url))


def _require_other_folder(url: str, options: Mapping[str, object], folder: str) -> None:
    """Raise OutputError if ``folder`` is that of the served log: as a mirror it would keep its own writers out."""
    store = open_store(url, options)
    try:
        known = store.find_folder_id() if isinstance(store, KnowsFolder) else None
    finally:
        store.close()
    if known is not None and known == folder_id(folder):
        raise OutputError(folder, f"is the folder of {url} itself: a mirror needs another folder")
