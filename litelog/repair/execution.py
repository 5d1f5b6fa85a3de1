"""Repairs a log on local disk: checks it, plans, and puts the repaired files in place if the caller confirms that."""

from __future__ import annotations

import os
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from litelog.errors import ConfigError, LitelogError, SourceError
from litelog.log.unfinished_repair import complete_repair, read_steps
from litelog.reading.latest import expand_generation
from litelog.repair.cut import cut_at_damage
from litelog.repair.histories import HistorySearch
from litelog.repair.local_files import LocalFiles
from litelog.repair.locking import locked_log, require_no_writer
from litelog.repair.new_files import NewFiles
from litelog.repair.plan import RepairResult
from litelog.repair.planning import RepairPlanner
from litelog.system.clock import SystemClock
from litelog.units import format_iso
from litelog.verify.local_compare import LocalLog
from litelog.verify.local_log import check_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from litelog.formats import LogFormat
    from litelog.repair.plan import RepairPlan
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock


def repair(
    folder: str,
    log_format: LogFormat,
    clients: Sequence[ReplicaClient] = (),
    *,
    generation: str | None = None,
    cut: bool = False,
    confirm: bool = False,
    progress: Callable[[int, int], object] | None = None,
    clock: Clock | None = None,
) -> RepairResult:
    """Plan the repair of the log in ``folder``; with ``confirm``, carry it out.

    Args:
        folder: The log's folder.
        log_format: The log's format.
        clients: Replicas of the log, which supply the bytes of damaged places.
        generation: The only generation to take bytes from, by its name or first digits; None: those that agree.
        cut: Cut the log off at the first place that would stay damaged. Only in a format whose log segments state the
            log's id, as its writer takes any end for the log's.
        confirm: Replace files. The log then needs the writer's lock.
        progress: Called with the bytes of the log that were checked, and with its size in bytes.
        clock: For the name of the backup.

    Returns:
        The plan, and with ``confirm`` the check of the repaired log.

    Raises:
        LockedError: A writer, a mirror or a truncation has the log, or a program has a file of it open for writing.
        SourceMissingError, SourceError: The log cannot be read or written. Nothing was changed, or the message says
            that the repair is not complete: the next one, or the log's writer, completes it.
        ConfigError, WrongFormatError: As ``check_log``; ConfigError if ``cut`` is not for the log's format.
        ConfigError, NothingToRestoreError: No generation, or several, begin with ``generation``.
        CorruptionError, StoreError: A replica lost what was planned. Nothing was changed.
    """
    folder, started = os.path.abspath(folder), monotonic()
    if cut and not log_format.has_log_id:
        raise ConfigError(f"format {log_format.name}: only the log's own program can continue after a cut")
    if not confirm:
        plan = _plan(folder, log_format, clients, generation, progress, cut=cut)[1]
        return RepairResult(plan, False, None, None, monotonic() - started)
    with locked_log(folder, log_format):
        with _naming_steps(folder):
            if (unfinished := read_steps(folder)) is not None:
                require_no_writer(folder, unfinished.names)
            complete_repair(folder)
        files, plan = _plan(folder, log_format, clients, generation, progress, cut=cut)
        if not plan.files and not plan.removed:
            return RepairResult(plan, True, None, None, monotonic() - started)
        require_no_writer(folder, {each.name for each in plan.files} | {files.names[-1]})
        stamp = format_iso((clock or SystemClock()).now()).replace(":", "").replace("-", "")
        new = NewFiles(files, plan.files, plan.removed, stamp)
        _carry_out(new, folder)
        after = check_log(folder, log_format, progress)
    backup = new.backup if os.path.isdir(new.backup) else None
    return RepairResult(plan, True, backup, after, monotonic() - started)


def _plan(
    folder: str,
    log_format: LogFormat,
    clients: Sequence[ReplicaClient],
    generation: str | None,
    progress: Callable[[int, int], object] | None,
    *,
    cut: bool,
) -> tuple[LocalFiles, RepairPlan]:
    name = None if generation is None else expand_generation(generation, clients)
    report = check_log(folder, log_format, progress)
    kept = sum(each.harmful for each in report.anomalies)
    if report.harmful > kept:
        raise SourceError(f"{folder}: has more than {kept} damaged places: restore it from a replica instead")
    files = LocalFiles(folder, log_format, report)
    log_id = LocalLog(folder, log_format).log_id()
    histories = HistorySearch(clients, log_format, log_id, name)
    plan = RepairPlanner(files, report, histories).plan()
    return files, cut_at_damage(plan, files) if cut else plan


def _carry_out(new: NewFiles, folder: str) -> None:
    try:
        try:
            new.write()
            new.prepare()
        except OSError as error:
            what = error.strerror or str(error)
            raise SourceError(f"{error.filename or folder}: cannot be written: {what}; nothing was changed") from error
    except LitelogError:
        new.clear()
        raise
    with _naming_steps(folder):
        new.publish()
    new.clear()


@contextmanager
def _naming_steps(folder: str) -> Iterator[None]:
    """Make an OSError of the block say that the repair is not complete, and what completes it."""
    try:
        yield
    except OSError as error:
        what = error.strerror or str(error)
        message = f"{error.filename or folder}: {what}; the repair is not complete: run it again, or start the writer"
        raise SourceError(message) from error
