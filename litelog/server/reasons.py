"""Rules that find the problems of replicas: what is wrong, where, since when, and what to do. No I/O."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from litelog.replicator.task import Phase
from litelog.server.found_reason import FoundReason, format_time
from litelog.units import format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.replicator.status import NotReplicated, ReplicaStatus
    from litelog.server.status_view import HealthThresholds, StatusView
    from litelog.shipping.divergence import Divergence

DIVERGED_SECONDS = 86400.0
"""Seconds for which a rewound or rewritten log is a warning, unless a user dismisses it before."""

FIX = "Fix the problem that the error names."

MAX_NAMED = 3
"""The most damaged objects that a message names."""

UNKNOWN = "unknown"
"""The phase of a replica that no daemon reports."""

STOPPED = {
    Phase.FROZEN.value: "frozen",
    Phase.FENCED.value: "fenced",
    Phase.REJECTED.value: "refused",
    Phase.FAILED.value: "failed",
}
"""The phases in which shipping has ended, and the kind of the reason for each."""

_STOPPED_WORDS = {
    "frozen": "frozen, because bytes are damaged, of another format, or cannot be made durable",
    "fenced": "fenced: another owner writes there",
    "refused": "refused",
    "failed": "the final sync failed",
}


def find_reasons(view: StatusView, rules: HealthThresholds) -> Iterator[FoundReason]:
    """Find everything that is wrong or unknown, or that needs attention."""
    if not view.is_live:
        message = "no daemon was asked, so it is not known what the logs hold and the replicas lack"
        action = "Ask the daemon: litelog status, with --addr if it listens at another address. If none runs, start it."
        yield FoundReason(kind="no_daemon", message=message, verdict=UNKNOWN, action=action)
    else:
        yield from _find_stalls(view, rules)
        if not view.opened and not view.statuses:
            message = "the daemon has not opened its replicas yet"
            yield FoundReason(kind="not_synced", message=message, verdict=UNKNOWN)
    for log in view.not_replicated:
        yield _lacks(view, log, rules)
    for status in view.statuses:
        yield from _Finder(view, status, rules.max_lag).find()


def find_unready(view: StatusView, rules: HealthThresholds) -> list[FoundReason]:
    """Find why the daemon is not ready: its loop stands still, or it has not yet synced the logs that exist."""
    reasons = [each for each in _find_stalls(view, rules) if each.kind != "measuring_stalled"]
    if view.ready:
        return reasons
    waiting = [each for each in view.statuses if not each.synced and not each.source_missing]
    reasons += [_Finder(view, status, rules.max_lag).not_synced() for status in waiting]
    reasons += [_lacks(view, log, rules) for log in view.not_replicated]
    return reasons or [
        FoundReason(kind="not_synced", message="the daemon has not opened its replicas yet", verdict=UNKNOWN)
    ]


def _find_stalls(view: StatusView, rules: HealthThresholds) -> Iterator[FoundReason]:
    stalls = (
        ("loop_stopped", view.last_turn, "the main loop has taken no turn for"),
        ("status_stalled", view.taken, "the daemon has not updated its status for"),
        ("measuring_stalled", view.measured, "the logs' folders could not be read for"),
    )
    for kind, moment, words in stalls:
        age = view.now - moment
        if age > rules.loop_seconds:
            yield FoundReason(
                kind=kind,
                message=f"{words} {format_duration(age)}",
                verdict="unsafe",
                since=format_time(view.time_of(age)),
                action="Read the daemon's log, and restart it. A hung file system may be the reason."
                if kind != "measuring_stalled"
                else "Check whether a log's file system hangs.",
                command="systemctl restart litelog" if kind != "measuring_stalled" else "df",
            )


def _lacks(view: StatusView, log: NotReplicated, rules: HealthThresholds) -> FoundReason:
    age = view.now - log.since
    return FoundReason(
        kind="not_replicated",
        log=log.log,
        replica=log.replica,
        message=f"is not replicated: {log.reason}",
        verdict="unsafe" if age > rules.max_lag else UNKNOWN,
        since=format_time(view.time_of(age)),
        object=log.replica or log.log,
        action="Fix the problem that the message names. The daemon tries again by itself.",
        command=f"litelog check {quote(log.replica)}" if log.replica is not None else f"ls -ld {quote(log.log)}",
    )


class _Finder:
    """Finds what is wrong with one replica."""

    def __init__(self, view: StatusView, status: ReplicaStatus, max_lag: float) -> None:
        self._view = view
        self._status = status
        self._max_lag = max_lag
        self._log, self._url = quote(status.log), quote(status.replica)

    def find(self) -> Iterator[FoundReason]:
        status = self._status
        if status.phase in STOPPED:
            yield self._stopped(STOPPED[status.phase])
        if status.phase == UNKNOWN and status.error is not None:
            yield self._reason("unreadable", status.error, f"litelog check {self._url}", "Check that it can be read.")
        if status.phase == UNKNOWN and status.error is None and status.position is None:
            yield self._never_shipped()
        if status.lost is not None:
            yield self._lost(status.lost)
        if status.anomalies:
            yield self._damaged()
        if status.phase not in STOPPED and status.phase != UNKNOWN:
            yield from self._find_late()
        if status.diverged is not None and self._view.time - status.diverged.time <= DIVERGED_SECONDS * 1_000_000:
            yield self._diverged(status.diverged)
        yield from self._find_troubles()

    def not_synced(self) -> FoundReason:
        """The reason of a replica that has not been synced since the start."""
        status = self._status
        age = status.opened_seconds
        if age <= self._max_lag:
            return self._reason("not_synced", "has not been synced since the daemon started", age=age)
        never = status.position is None
        return self._reason(
            "never_synced" if never else "not_synced_for_long",
            f"has {'never' if never else 'not'} been synced since the daemon opened it {format_duration(age)} ago",
            f"litelog check {self._url}",
            "Its first sync may still run. If nothing is shipped, see whether the destination can be written.",
            age=age,
        )

    def _never_shipped(self) -> FoundReason:
        """The reason of a replica of which a state folder, or the replica itself, knows no data."""
        return self._reason(
            "never_synced",
            "nothing was ever shipped to it",
            f"litelog forget {self._log} {self._url}",
            "Start the daemon that replicates it. If the replica was named by mistake, run this.",
        )

    def _stopped(self, kind: str) -> FoundReason:
        status = self._status
        error = (status.error or "").removeprefix(f"{status.replica}: ")
        words = _STOPPED_WORDS[kind] + (f": {error}" if error else "")
        command, action = {
            "frozen": (
                f"litelog verify {self._url} --against {self._log}",
                "Nothing more is shipped. Repair or restore the log, or correct its format, and restart the daemon.",
            ),
            "fenced": (
                f"litelog generations {self._url}",
                f"Nothing more is shipped from here. If the other daemon is the right one, {self._give_way()}. If not, "
                "stop the other one, and start this one once with --takeover.",
            ),
            "refused": (f"litelog check {self._url}", "Correct the configuration, and restart the daemon."),
            "failed": (f"litelog replicate --once {self._log} {self._url}", "Start the daemon again."),
        }[kind]
        return self._reason(kind, words, command, action, age=status.failing_seconds)

    def _give_way(self) -> str:
        """The advice for a daemon that has rightly lost the replica."""
        return "stop this one" if self._view.is_live else f"run `litelog forget {self._log} {self._url}`"

    def _lost(self, words: str) -> FoundReason:
        return self._reason(
            "lost",
            words,
            f"litelog forget {self._log} {self._url}",
            "A restore to the end begins after the loss. To continue with the rest, stop the daemon, run this, and "
            "start it again.",
        )

    def _damaged(self) -> FoundReason:
        status, keys = self._status, self._status.damaged
        named = ", ".join(keys[:MAX_NAMED]) + (f" and {len(keys) - MAX_NAMED} more" if len(keys) > MAX_NAMED else "")
        count = f"{status.anomalies:,} anomal{'y' if status.anomalies == 1 else 'ies'}"
        since = status.damaged_since or status.last_verified
        return self._reason(
            "damaged",
            f"a verification found {count}" + (f": {named}" if named else ""),
            f"litelog verify {self._url}",
            "Verify it to see each object. A restore from all replicas reads those bytes from another one.",
            since=since,
            place=keys[0] if keys else status.replica,
        )

    def _find_late(self) -> Iterator[FoundReason]:
        status, max_lag = self._status, self._max_lag
        if status.source_missing:
            yield self._waiting()
            return
        if not status.synced:
            yield self.not_synced()
        check = f"litelog check {self._url}"
        if status.lag_seconds > max_lag:
            size, age = format_size(status.lag_bytes), format_duration(status.lag_seconds)
            words = f"lags {age} ({size}), more than max-lag {format_duration(max_lag)}"
            action = "Check whether the destination accepts writes, and how fast."
            yield self._reason("lag", words, check, action, age=status.lag_seconds)
        if status.failing_seconds > max_lag:
            words = f"every sync has failed for {format_duration(status.failing_seconds)}: {status.error}"
            yield self._reason("failing", words, check, FIX, age=status.failing_seconds)

    def _waiting(self) -> FoundReason:
        status = self._status
        is_new = status.failing_seconds <= self._max_lag
        return self._reason(
            "waiting" if is_new else "never_synced" if status.position is None else "failing",
            f"waits for the log: {status.error}",
            f"ls -ld {self._log}",
            "Start the program that writes the log, or correct its path. The daemon notices it by itself.",
            age=status.failing_seconds,
            place=status.log,
        )

    def _diverged(self, found: Divergence) -> FoundReason:
        held, now = found.sequence, self._status.sequence
        counts = f"; {held:,} records were acknowledged before" if held is not None else ""
        counts += f", the log holds {now:,} now" if counts and now is not None else ""
        before = f" Generation {found.predecessor} still holds the earlier data." if found.predecessor else ""
        return self._reason(
            "diverged",
            f"the log was rewound or rewritten: {found.reason}{counts}",
            f"litelog dismiss {self._log} {self._url}",
            f"If a restore did this, dismiss the warning.{before}",
            since=found.time,
            place=found.generation,
        )

    def _find_troubles(self) -> Iterator[FoundReason]:
        status = self._status
        check, log = f"litelog check {self._url}", f"ls -l {self._log}"
        if status.archive_error is not None:
            words = f"sealing, snapshots or deletions failed: {status.archive_error}"
            yield self._reason("archive_failing", words, check, f"Shipping continues. {FIX}")
        if status.checkpoint_error is not None:
            words = f"writing a checkpoint failed: {status.checkpoint_error}"
            yield self._reason("checkpoint_failing", words, check, f"Shipping continues. {FIX}")
        if status.verify_error is not None:
            words = f"the last verification failed: {status.verify_error}"
            yield self._reason("verify_failing", words, f"litelog verify {self._url}", FIX)
        if status.lock_error is not None:
            words = f"locks of objects were not extended: {status.lock_error}"
            yield self._reason("locks_failing", words, check, FIX)
        if status.source_error is not None and not status.source_missing:
            words = f"the log's folder cannot be read: {status.source_error}"
            yield self._reason("source_unreadable", words, log, "Until it can be read, the lag is not known.")

    def _reason(
        self,
        kind: str,
        message: str,
        command: str | None = None,
        action: str | None = None,
        *,
        age: float | None = None,
        since: int | None = None,
        place: str | None = None,
    ) -> FoundReason:
        """``age``: seconds since the problem began; ``since``: when it began, in microseconds since 1970."""
        moment = since if since is not None else None if age is None else self._view.time_of(age)
        return FoundReason(
            kind=kind,
            log=self._status.log,
            replica=self._status.replica,
            message=message,
            since=None if moment is None else format_time(moment),
            object=place or self._status.replica,
            action=action,
            command=command,
        )


def quote(text: str) -> str:
    """Quote a word of a command for a shell."""
    return shlex.quote(text)
