"""Restores several logs, some at a time. A log that cannot be restored does not stop the others."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import LitelogError, NothingToRestoreError, OutputExistsError
from litelog.restore.execution import PARALLELISM
from litelog.restore.opened_restore import is_taken, opened_restore, require_free
from litelog.restore.output import OutputError
from litelog.restore.wal_restore import RestoreStoppedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from litelog.restore.execution import RestoreProgress, RestoreResult
    from litelog.restore.opened_restore import OpenedRestore
    from litelog.restore.plan import RestorePlan, Target

LOGS_AT_ONCE = 4
"""How many logs are restored at a time: while some wait for a store, others decompress."""


@dataclass(frozen=True, slots=True)
class LogRestore:
    """A log to restore, and where to."""

    log: str
    """The log's folder, as the configuration names it."""
    replicas: tuple[tuple[str, Mapping[str, object]], ...]
    """Their URLs and options."""
    output: str
    """The folder to create, with the folders above it."""
    pattern: str | None = None
    """Which names are log segments, for formats that need a pattern."""


@dataclass(frozen=True, slots=True)
class RestoreRules:
    """How each of the logs is restored. The fields are the arguments of ``restore``."""

    target: Target
    parallelism: int = PARALLELISM
    delta: bool = False
    check_space: bool = True
    dry_run: bool = False
    """Make the plans, and change nothing."""
    if_not_exists: bool = False
    """Leave logs alone whose folder exists already and is not empty."""
    if_replica_exists: bool = False
    """Leave logs out whose replicas hold nothing to restore."""


@dataclass(frozen=True, slots=True)
class RestoreOutcome:
    """The outcome of one log: exactly one of ``result``, ``plan``, ``left`` and ``error``."""

    restore: LogRestore
    result: RestoreResult | None = None
    plan: RestorePlan | None = None
    """With ``dry_run``: what would be restored."""
    left: str = ""
    """Why there was nothing to do; this is not an error."""
    error: LitelogError | None = None
    skipped: tuple[tuple[str, str], ...] = ()
    """The replicas that could not be restored from: the URL, and the reason."""


def restore_one(log: LogRestore, target: Target, *, delta: bool) -> RestoreResult:
    """Restore one log. The arguments are those of ``restore``.

    Raises:
        OutputExistsError: The output exists and is not an empty folder; not with ``delta``.
        LitelogError: As ``opened_restore`` and ``restore`` raise it.
    """
    rules = RestoreRules(target, delta=delta)
    with _opened(log, rules) as opened:
        return _run(opened, log, rules)


def restore_each(
    logs: Sequence[LogRestore], rules: RestoreRules, at_once: int = LOGS_AT_ONCE
) -> Iterator[RestoreOutcome]:
    """Restore logs, and yield what became of each, in their order. Errors are in the outcomes.

    If the caller ends the iteration early, restores that are running stop at their next object and leave nothing.
    """
    stopped = threading.Event()
    with ThreadPoolExecutor(at_once, "restore-log") as pool:
        try:
            yield from pool.map(lambda log: _restore(log, rules, stopped), logs)
        finally:
            stopped.set()
            pool.shutdown(cancel_futures=True)


def _restore(log: LogRestore, rules: RestoreRules, stopped: threading.Event) -> RestoreOutcome:
    def check_stop(_: RestoreProgress) -> None:
        if stopped.is_set():
            raise RestoreStoppedError("the restore was stopped")

    output = log.output
    if rules.if_not_exists and is_taken(output):
        return RestoreOutcome(log, left=f"{output}: exists already")
    try:
        with _opened(log, rules) as opened:
            if rules.dry_run:
                return RestoreOutcome(log, plan=opened.plan, skipped=opened.skipped)
            result = _run(opened, log, rules, check_stop)
            return RestoreOutcome(log, result=result, skipped=opened.skipped)
    except OutputExistsError as error:
        return RestoreOutcome(log, **({"left": str(error)} if rules.if_not_exists else {"error": error}))
    except NothingToRestoreError as error:
        return RestoreOutcome(log, **({"left": str(error)} if rules.if_replica_exists else {"error": error}))
    except LitelogError as error:
        return RestoreOutcome(log, error=error)


def _opened(log: LogRestore, rules: RestoreRules) -> AbstractContextManager[OpenedRestore]:
    if not (rules.delta or rules.dry_run):
        require_free(log.output)
    return opened_restore(log.replicas, rules.target, pattern=log.pattern)


def _run(
    opened: OpenedRestore,
    log: LogRestore,
    rules: RestoreRules,
    progress: Callable[[RestoreProgress], None] | None = None,
) -> RestoreResult:
    _make_parent(log.output)
    return opened.run(
        log.output,
        parallelism=rules.parallelism,
        progress=progress,
        delta=rules.delta,
        check_space=rules.check_space,
    )


def _make_parent(output: str) -> None:
    parent = os.path.dirname(os.path.abspath(output))
    try:
        os.makedirs(parent, exist_ok=True)
    except OSError as error:
        raise OutputError(parent, f"cannot be created: {error.strerror}") from error
