"""Scrubbing: verifies a replica repeatedly in the background at a set rate, fully or by a cheaper check.

It only reads, and never stops shipping. It logs each anomaly once, no matter how often it finds it. Reported anomalies,
and the time of the last verification, are kept next to the replica's state.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import LitelogError
from litelog.events import fields
from litelog.stores.throttled_store import ThrottledStore
from litelog.system.checked_files import NoteFile
from litelog.units import MICROSECONDS
from litelog.verify.findings import VerifyStoppedError, Watch

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Sequence
    from random import Random

    from litelog.formats import LogFormat
    from litelog.stores.object_store import ObjectStore
    from litelog.system.clock import Clock
    from litelog.verify.findings import Acknowledged, Anomaly

_logger = logging.getLogger(__name__)

FILE = "verified.json"

MAX_REPORTED = 10_000
"""How many anomalies are remembered as reported."""

FIRST_SHARE = 0.1
"""The first verification of a replica is at a random time within this share of the interval, so that those of many
replicas are spread."""

MAX_DAMAGED = 100
"""How many damaged objects a result names."""

RETRY_SECONDS = 3600.0
"""The longest time in seconds before another attempt, if the store could not be read."""


@dataclass(frozen=True, slots=True)
class ScrubResult:
    """The result of a replica's last verification."""

    time: int
    """Microseconds since 1970."""
    objects: int
    bytes: int
    """The bytes of those objects."""
    anomalies: int
    """Anomalies that a reader may meet."""
    unread: int
    """Objects that could not be read."""
    seconds: float
    error: str | None = None
    """Why the check has no result: the store could not be listed."""
    damaged: tuple[str, ...] = ()
    """The keys of the objects with these anomalies, at most MAX_DAMAGED."""
    damaged_since: int = 0
    """The time of the first verification in the current row of those that found anomalies, in microseconds since 1970;
    0 if the last one found none."""


@dataclass(frozen=True, slots=True)
class _Note:
    last: ScrubResult
    said: tuple[str, ...] = ()
    """The anomalies that were reported, by kind and key."""
    number: int = 0
    """How many verifications there were."""


@dataclass(frozen=True, slots=True)
class ScrubSettings:
    """How often and how fast to verify."""

    interval: float
    """Seconds from the end of one verification to the start of the next."""
    rate: int
    """Bytes of objects a second."""
    first: float = 0.0
    """The least number of seconds from the start of the daemon to the first verification."""


@dataclass(frozen=True, slots=True)
class Found:
    """The findings of one verification."""

    objects: int
    bytes: int
    unread: int
    anomalies: tuple[Anomaly, ...]
    harmful: int
    """How many anomalies a reader may meet."""


class Scrub:
    """The verifications of one replica. One thread at a time calls ``run``; any thread calls the other methods."""

    def __init__(  # noqa: PLR0913 - each is a separate choice
        self,
        store: ObjectStore,
        settings: ScrubSettings,
        folder: str,
        *,
        formats: Callable[[str], LogFormat],
        acknowledged: Callable[[], Acknowledged | None],
        clock: Clock,
        random: Random,
        check: Callable[[ObjectStore, int, Collection[str], Callable[[], bool]], Found | None] | None = None,
        on_harm: Callable[[Sequence[str]], None] | None = None,
    ) -> None:
        """``folder``: where the findings are kept. ``check`` replaces a whole verification. It is called with the
        store, its own number, the objects that the last check found damaged, and a function that returns whether it
        may continue; it returns None while nothing can be checked. ``on_harm`` is called with the keys of harmful
        anomalies."""
        self._store = store
        self._settings = settings
        self._file = _open_file(folder)
        self._formats = formats
        self._acknowledged = acknowledged
        self._clock = clock
        self._check = check
        self._on_harm = on_harm
        self.last, self._reported, self._number = self._load()
        self.due = clock.monotonic() + self._first_delay(random)
        """When the next one is to begin, in the clock's monotonic seconds."""
        self.running = False

    def run(self, stop: threading.Event) -> tuple[ScrubResult, list[Anomaly]] | None:
        """Verify, unless ``stop`` is set in the meantime. Return the result, and the anomalies that were not reported
        before; None if it was stopped.

        Raises nothing: errors of the store are in the result.
        """
        store = ThrottledStore(self._store, self._settings.rate, self._clock, stop.wait)
        started = self._clock.monotonic()
        try:
            found = self._find(store, stop)
        except VerifyStoppedError:
            return None
        except LitelogError as error:
            if stop.is_set():
                return None
            self.due = self._clock.monotonic() + min(self._settings.interval, RETRY_SECONDS)
            return self._fail(error), []
        if found is None:
            self.due = self._clock.monotonic() + min(self._settings.interval, RETRY_SECONDS)
            return None
        self.due = self._clock.monotonic() + self._settings.interval
        result, new = self._finish(found, self._clock.monotonic() - started)
        try:
            if result.damaged and self._on_harm is not None:
                self._on_harm([anomaly.key for anomaly in found.anomalies if anomaly.harmful])
        except LitelogError as error:  # the findings stay, and the next run reports them to ``on_harm`` again
            self.due = self._clock.monotonic() + min(self._settings.interval, RETRY_SECONDS)
            result = self._fail(error)
        return result, new

    def _find(self, store: ObjectStore, stop: threading.Event) -> Found | None:
        if self._check is not None:
            known = frozenset(self.last.damaged) if self.last is not None else frozenset()
            return self._check(store, self._number, known, lambda: not stop.is_set())
        from litelog.verify.execution import verify  # noqa: PLC0415 - a daemon starts without it

        report = verify(
            store,
            formats=self._formats,
            parallelism=1,
            acknowledged=self._acknowledged(),
            watch=Watch(should_continue=lambda: not stop.is_set()),
            clock=self._clock,
        )
        objects = report.claims + report.snapshots + report.sealed_segments + report.wal_segments
        return Found(objects, report.object_bytes, report.failed, tuple(report.anomalies), report.harmful)

    def _finish(self, found: Found, seconds: float) -> tuple[ScrubResult, list[Anomaly]]:
        named = {_name(anomaly): anomaly for anomaly in found.anomalies}
        new = [anomaly for name, anomaly in named.items() if name not in self._reported]
        self._reported = dict.fromkeys(list(named)[:MAX_REPORTED])
        harm = [anomaly.key for anomaly in found.anomalies if anomaly.harmful]
        now, before = self._clock.now(), self.last.damaged_since if self.last is not None else 0
        self.last = ScrubResult(
            now,
            found.objects,
            found.bytes,
            found.harmful,
            found.unread,
            seconds,
            damaged=tuple(dict.fromkeys(harm))[:MAX_DAMAGED],
            damaged_since=(before or now) if found.harmful else 0,
        )
        self._number += 1
        self._save(self.last)
        return self.last, new

    def _fail(self, error: LitelogError) -> ScrubResult:
        """Keep the last result, with the new error: the replica was not verified."""
        self.last = replace(self.last or ScrubResult(0, 0, 0, 0, 0, 0.0), error=str(error))
        return self.last

    def _first_delay(self, random: Random) -> float:
        interval, first = self._settings.interval, self._settings.first
        if self.last is None or not self.last.time:
            return max(first, random.uniform(0, FIRST_SHARE * interval))
        passed = (self._clock.now() - self.last.time) / MICROSECONDS
        return min(interval, max(first, interval - passed))

    def _load(self) -> tuple[ScrubResult | None, dict[str, None], int]:
        note = self._file.read()
        return (None, {}, 0) if note is None else (note.last, dict.fromkeys(note.said), note.number)

    def _save(self, last: ScrubResult) -> None:
        try:
            self._file.write(_Note(last, tuple(self._reported), self._number))
        except OSError as error:
            extra = fields("state-not-kept", path=self._file.path)
            _logger.warning("%s: cannot be kept: %s", self._file.path, error.strerror, extra=extra)


def read_result(folder: str) -> ScrubResult | None:
    """Return the result that is kept in a replica's state folder; None if there is none, or it cannot be read."""
    note = _open_file(folder).read()
    return None if note is None else note.last


def _open_file(folder: str) -> NoteFile[_Note]:
    loss = "the replica counts as never verified"
    return NoteFile(os.path.join(folder, FILE), _Note, loss, once_unchecked=True)


def _name(anomaly: Anomaly) -> str:
    return f"{anomaly.kind} {anomaly.key}"
