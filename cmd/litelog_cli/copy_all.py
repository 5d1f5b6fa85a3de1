"""Copies several replicas, or keeps copies up to date, and prints a line for each copy and a summary."""

from __future__ import annotations

import logging
import time
from threading import Event
from typing import TYPE_CHECKING, Any

from litelog.errors import ExitCode, LitelogError, ReplicaGapError, StoreError
from litelog.units import format_count, format_duration, format_size
from litelog_cli.logging_setup import say
from litelog_cli.output import echo, error_json, kind_of, print_json
from litelog_cli.progress import watching_status
from litelog_cli.signals import acting_on_signals

if TYPE_CHECKING:
    from litelog.copying.execution import CopyResult
    from litelog.copying.several import CopyOutcome, ReplicaCopy


class CopyRun:
    """Copies one replica, or all at or below a place, once or again and again."""

    def __init__(self, wanted: ReplicaCopy, parallelism: int, *, is_all: bool, as_json: bool, quiet: bool) -> None:
        self._wanted = wanted
        self._parallelism = parallelism
        self._is_all = is_all
        self._as_json = as_json
        self._quiet = quiet
        self._stop = Event()
        self._failures: dict[str, str] = {}
        """The messages of the copies that failed last time, by target."""

    def copy_once(self) -> ExitCode:
        """Copy all replicas, print each copy and a summary, and return the exit code: the highest of the failures'."""
        began = time.monotonic()
        outcomes = self._copy_all(is_following=False)
        failed = [outcome.error for outcome in outcomes if outcome.error is not None]
        results = [outcome.result for outcome in outcomes if outcome.result is not None]
        objects, size = sum(each.objects for each in results), sum(each.bytes for each in results)
        seconds = time.monotonic() - began
        if self._as_json:
            counts = {"replica_count": len(outcomes), "failed_count": len(failed)}
            print_json({**counts, "copied_objects": objects, "copied_bytes": size, "seconds": seconds})
        else:
            failures = f"; {format_count(len(failed), 'replica')} failed" if failed else ""
            done = f"copied {len(results):,} of {format_count(len(outcomes), 'replica')}"
            said = f"{format_count(objects, 'object')}, {format_size(size)}"
            echo(f"{done}: {said}, in {format_duration(seconds)}{failures}")
        return max((error.exit_code for error in failed), default=ExitCode.DONE)

    def follow(self, interval: float) -> ExitCode:
        """Copy what is new every ``interval`` seconds, until a signal ends it.

        Returns the exit code: the highest of what still failed in the last run.

        Raises LitelogError if the only replica cannot be copied, except for failures that may pass.
        """
        codes: list[ExitCode] = []
        with acting_on_signals(lambda _: self._stop.set()):
            said = f"keeping {self._wanted.target} up to date every {format_duration(interval)} (Ctrl-C ends it)"
            say(said, "copying", replica=self._wanted.replica)
            while not self._stop.is_set():
                failed = self._follow_once()
                if not self._stop.is_set():
                    codes = [error.exit_code for error in failed]
                    self._stop.wait(interval)
        return max(codes, default=ExitCode.DONE)

    def _follow_once(self) -> list[LitelogError]:
        """Copy what is new once. Returns the failures."""
        try:
            outcomes = self._copy_all(is_following=True)
        except StoreError as error:  # the replicas could not be listed
            if not self._stop.is_set():
                self._note_failure(self._wanted.replica, self._wanted.target, error)
            return [error]
        failed = [outcome.error for outcome in outcomes if outcome.error is not None]
        lasting = [error for error in failed if not _may_pass(error)]
        if lasting and not self._is_all and not self._stop.is_set():
            raise lasting[0]
        return failed

    def _copy_all(self, *, is_following: bool) -> list[CopyOutcome]:
        from litelog.copying.several import copy_each, find_copies

        copies = find_copies(self._wanted, self._stop) if self._is_all else [self._wanted]
        outcomes: list[CopyOutcome] = []
        count = format_count(len(copies), "replica")
        quiet = self._quiet or self._as_json or is_following
        with watching_status(quiet=quiet, look=lambda: f"copy: {len(outcomes)} of {count}"):
            for outcome in copy_each(copies, self._stop, parallelism=self._parallelism):
                outcomes.append(outcome)
                self._print(outcome, is_following)
        return outcomes

    def _print(self, outcome: CopyOutcome, is_following: bool) -> None:
        result, error = outcome.result, outcome.error
        if result is not None:
            self._failures.pop(outcome.copy.target, None)
            if is_following and not result.objects and not result.removed:
                return
            if self._as_json:
                print_json(result_json(result))
            else:
                echo(describe(result))
        elif error is not None and not self._stop.is_set() and (self._is_all or not is_following or _may_pass(error)):
            self._note_failure(outcome.copy.replica, outcome.copy.target, error)

    def _note_failure(self, replica: str, target: str, error: LitelogError) -> None:
        """Report a failure, unless the same one was reported last time."""
        from litelog.stores.registry import redact

        if self._failures.get(target) == str(error):
            return
        self._failures[target] = str(error)
        if self._as_json:
            facts: dict[str, Any] = {"replica": redact(replica), "target": redact(target)}
            print_json({**facts, "error": error_json(kind_of(error), str(error), int(error.exit_code))})
        else:
            said = f"litelog: {redact(replica)}: not copied: {error}"
            say(said, "copy-failed", level=logging.ERROR, replica=redact(replica))


def _may_pass(error: LitelogError) -> bool:
    return isinstance(error, StoreError | ReplicaGapError)


def result_json(result: CopyResult) -> dict[str, Any]:
    """The result of a copy as JSON values."""
    return {
        "replica": result.replica,
        "target": result.target,
        "copied_objects": result.objects,
        "copied_bytes": result.bytes,
        "objects": result.total,
        "stored_bytes": result.total_bytes,
        "deleted_objects": result.removed,
        "seconds": result.seconds,
    }


def describe(result: CopyResult) -> str:
    """The result of a copy in a line."""
    held = f"{format_count(result.total, 'object')}, {format_size(result.total_bytes)}"
    if not result.objects and not result.removed:
        return f"nothing to copy: {result.target} has all of {result.replica} ({held})"
    copied = f"copied {format_count(result.objects, 'object')}, {format_size(result.bytes)}, to {result.target}"
    removed = f"; removed {format_count(result.removed, 'covered WAL segment')}" if result.removed else ""
    return f"{copied} in {format_duration(result.seconds)}{removed}; the replica has {held}"
