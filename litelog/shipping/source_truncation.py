"""Truncates a source when its replicas allow it: each replica records what it holds, and all records must agree.

Specified in litelog/shipping/README.md#truncation-of-the-source.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from litelog.consumers.position_file import PositionFile, consumer_names
from litelog.errors import ConsumerStateError, LitelogError, LockedError, StoreError
from litelog.events import fields, is_worth_logging
from litelog.log.disk import LocalDisk
from litelog.log.mirror_registry import RECORD_SECONDS, MirrorRegistry
from litelog.log.replica_registry import ReplicatedSegment, read_generation, save_replicated
from litelog.log.truncation import AwaitedReader, Truncation
from litelog.reading.consumer_positions import list_positions, read_newest
from litelog.shipping.pruner import CautiousTime
from litelog.units import MICROSECONDS, format_second

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from litelog.log.replica_registry import ReplicaSet
    from litelog.log.truncation import Awaited, Truncated, TruncationPolicy, Waiting
    from litelog.objects.snapshot import Snapshot
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.shipping.context import LogSource
    from litelog.stores.object_store import ObjectStore
    from litelog.system.clock import Clock

_logger = logging.getLogger(__name__)

LOCKED_SECONDS = 10.0
"""After how many seconds a log is tried again while another process or thread truncates it."""

RETRY_SECONDS = 600.0
"""After how many seconds truncation is tried again after it failed."""

LOOK_SECONDS = 60.0
"""After how many seconds truncation looks again whether a reader still lacks a log segment."""

ASK_SECONDS = 600.0
"""After how many seconds the replicas are asked again for the positions of their consumers, while a log segment stays
for one: each time is a listing of each replica, and a request for each consumer."""

MOST_CONSUMERS = 256
"""Of how many consumers of a replica the positions are read. If there are more, nothing is known of them."""

PATIENCE_SECONDS = 4 * 3600.0
"""How many seconds an active replica may lack what others hold before that is logged. Only a snapshot adds to what it
holds."""


class ReplicatedNotes:
    """The notes of one replica, in its state folder. Any thread may use it."""

    def __init__(self, folder: str, log: str) -> None:
        self._folder = folder
        self._log = log
        self._generation = ""
        self._lock = threading.Lock()

    def lower(self) -> None:
        """Note that the replica holds nothing, before a generation begins that does not continue the last one."""
        with self._lock:
            self._generation = ""
            save_replicated(self._folder, "", ())

    def begin(self, generation: str) -> None:
        """Continue the notes of ``generation``. Empty them if they are of another one."""
        with self._lock:
            self._generation = generation
            if read_generation(self._folder) != generation:
                save_replicated(self._folder, generation, ())

    def note(self, snapshot: Snapshot) -> bool:
        """Note the entries of a durable snapshot that the source still holds. Whether it is of the generation."""
        return self.note_segments(snapshot.generation, snapshot.segments)

    def note_segments(self, generation: str, segments: Sequence[SnapshotEntry]) -> bool:
        """As ``note``, for the snapshot's entries."""
        with self._lock:
            if generation != self._generation:
                return False
            with suppress(FileNotFoundError):
                there = set(os.listdir(self._log))
                held = [
                    ReplicatedSegment(entry.file, entry.first, entry.length, entry.crc, entry.shipped_last)
                    for entry in segments
                    if entry.file in there
                ]
                save_replicated(self._folder, self._generation, held)
            return True


class LogTruncator:
    """Truncates one log by its policy, whenever a replica of it holds more."""

    def __init__(self, source: LogSource, replicas: ReplicaSet, policy: TruncationPolicy | None, clock: Clock) -> None:
        self._folder = source.folder
        self._replicas = replicas
        self._policy = policy
        self._time = CautiousTime(clock)
        self._clock = clock
        self._truncation = Truncation(source.folder, source.format, clock, LocalDisk(), replicas.folder)
        self._mirrors = MirrorRegistry(replicas.folder)
        self._last_report = ""
        self._awaited = ""
        self._attended: dict[str, ObjectStore] = {}
        self._ask_again = 0.0
        """When the replicas are asked again, in monotonic seconds."""
        self._waited: tuple[str, ...] = ()
        self._waited_since = 0.0
        self._waits = 0
        self._due = clock.monotonic() if self.has_age else None

    @property
    def has_age(self) -> bool:
        """Whether time alone makes log segments removable."""
        return self._policy is not None and (self._policy.max_age is not None or self._policy.waits)

    @property
    def due(self) -> float | None:
        """When to ``run`` next even if no replica holds more, in monotonic seconds; None: do not. ``run`` and
        ``note_newer`` may change it."""
        return self._due

    def attend(self, name: str, store: ObjectStore) -> None:
        """Record that this process ships to that replica of the set, so what it lacks will arrive. ``store``: where it
        is."""
        self._attended[name] = store

    def note_newer(self) -> None:
        """Record that a newer log segment exists, so that an old one may become removable: ``run`` is due soon."""
        if self.has_age:
            self._due = self._clock.monotonic()

    def run(self, *, asks: bool = False) -> None:
        """Truncate the log up to where its policy and its replicas permit; without a policy, do nothing. Errors are
        logged, and stop nothing else.

        ``asks``: whether requests to the replicas may be made. If one is needed and is not permitted, ``run`` is due.
        """
        if self._policy is None:
            return
        self._due = None
        try:
            self._truncate(self._policy, asks=asks)
        except LockedError:
            self._due = self._clock.monotonic() + LOCKED_SECONDS  # another replica's thread, or the log's own writer
        except LitelogError as error:
            self._due = self._clock.monotonic() + RETRY_SECONDS
            self._report(f"{self._folder}: not truncated: {error}")

    def _truncate(self, policy: TruncationPolicy, *, asks: bool) -> None:
        now = self._time.now()
        names = self._replicas.names()
        if names is None:
            self._report(f"{self._folder}: not truncated: its set of replicas is not known until a restart")
            return
        held = self._replicas.held_by(names)
        readers, unknown = list(self._awaited_readers(policy, now)), _consumers_of_replicas(policy)
        done, look = self._truncation.by_policy(held, policy, now, [*readers, *unknown]), LOOK_SECONDS
        self._report_removed(done)
        if done.awaited is not None and done.awaited.reader in [each.name for each in unknown]:
            if not asks or self._clock.monotonic() < self._ask_again:
                self._due = max(self._clock.monotonic(), self._ask_again)
                return
            consumers = list(self._ask(names, unknown[0].seconds))
            done = self._truncation.by_policy(held, policy, now, [*readers, *consumers])
            self._report_removed(done)
            if done.awaited is not None and done.awaited.reader in [each.name for each in consumers]:
                self._ask_again, look = self._clock.monotonic() + ASK_SECONDS, ASK_SECONDS
        if done.next is not None:
            seconds = max(1.0, (done.next - now) / MICROSECONDS)
            self._due = self._clock.monotonic() + (seconds if done.awaited is None else min(seconds, look))
        if done.kept is not None:
            self._report(f"{self._folder}: not truncated further: {done.kept}")
        self._report_awaited(done.awaited)
        self._report_waiting(done.waiting, names)

    def _ask(self, names: Mapping[str, str], wait: float) -> Iterator[AwaitedReader]:
        """Yield the consumers with a position in a replica of the set. A consumer whose position cannot be read counts
        as lacking everything, and so do the consumers of a replica to which this process does not ship.

        Args:
            names: The replicas, each with its URL.
            wait: Seconds, as in ``AwaitedReader``.
        """
        for replica, url in names.items():
            store = self._attended.get(replica)
            if store is None:
                why = "nothing is shipped to it now"
                self._report(f"{self._folder}: not truncated: the consumers in {url} are not known: {why}")
                yield AwaitedReader(f"the consumers in {url}", wait, next=0)
                continue
            try:
                listed = list_positions(store)
                if len(listed) > MOST_CONSUMERS:
                    yield AwaitedReader(f"the {len(listed)} consumers in {store.url}", wait, next=0)
                    continue
                for name, infos in listed.items():
                    read = read_newest(store, infos)
                    if read is None or not read.found.deleted:
                        following = 0 if read is None else read.found.position.next or 0
                        yield AwaitedReader(f"consumer {name} in {store.url}", wait, next=following)
            except StoreError as error:
                self._report(f"{self._folder}: not truncated: the consumers in {store.url} are not known: {error}")
                yield AwaitedReader(f"the consumers in {store.url}", wait, next=0)

    def _report_removed(self, done: Truncated) -> None:
        if done.removed:
            extra = fields("truncated", log=self._folder, file=done.removed[-1])
            _logger.info("%s: truncated: removed %s and all before it", self._folder, done.removed[-1], extra=extra)

    def _awaited_readers(self, policy: TruncationPolicy, now: int) -> Iterator[AwaitedReader]:
        """Yield the mirrors and consumers that the policy waits for. A mirror that is gone for as long is not waited
        for; nor is a consumer whose position cannot be read."""
        wait = policy.mirror_wait
        if wait is not None:
            for mirror in self._mirrors.read():
                if now - mirror.seen < (wait + RECORD_SECONDS) * MICROSECONDS:
                    yield AwaitedReader(f"mirror {mirror.name}", wait, file=mirror.file)
        wait = policy.consumer_wait
        if wait is not None:
            folder = self._replicas.folder
            for name in consumer_names(folder):
                try:
                    position = PositionFile(folder, name).read()
                except ConsumerStateError as error:
                    self._report(f"{self._folder}: truncation does not wait for consumer {name}: {error}")
                    continue
                if position is not None:
                    yield AwaitedReader(f"consumer {name}", wait, next=position.next)

    def _report_awaited(self, awaited: Awaited | None) -> None:
        """Log for which reader log segments stay, once until that changes."""
        reader = "" if awaited is None else awaited.reader
        if awaited is not None and reader != self._awaited:
            message = "%s: not truncated further: %s and all after it stay until %s has them, at most until %s"
            extra = fields("not-truncated", log=self._folder, file=awaited.file)
            _logger.info(message, self._folder, awaited.file, reader, format_second(awaited.until), extra=extra)
        self._awaited = reader

    def _report_waiting(self, waiting: Waiting | None, names: Mapping[str, str]) -> None:
        """Warn of replicas for which truncation waits: a log that waits for a lost replica grows without limit."""
        if waiting is None:
            self._waited = ()
            return
        missing = [list(names)[number] for number in waiting.missing]
        absent = [name for name in missing if name not in self._attended]
        waited = tuple(absent) or (waiting.file, *missing)
        if waited != self._waited:
            self._waited, self._waited_since, self._waits = waited, self._clock.monotonic(), 0
        if not absent and self._clock.monotonic() - self._waited_since < PATIENCE_SECONDS:
            return
        self._waits += 1
        if is_worth_logging(self._waits):
            urls = [names[name] for name in absent or missing]
            _logger.warning(
                "%s: not truncated (%d times in a row): %s and all after it wait for %s to hold them, too; "
                "if a replica is gone for good, run: litelog forget %s %s",
                self._folder,
                self._waits,
                waiting.file,
                ", ".join(urls),
                self._folder,
                urls[0],
                extra=fields("not-truncated", log=self._folder, file=waiting.file, consecutive_failures=self._waits),
            )

    def _report(self, message: str) -> None:
        if message != self._last_report:
            _logger.warning("%s", message, extra=fields("not-truncated", log=self._folder))
        self._last_report = message


def _consumers_of_replicas(policy: TruncationPolicy) -> list[AwaitedReader]:
    """Stand in for the consumers of all replicas before these were asked: none of them has anything."""
    wait = policy.replica_consumer_wait
    return [] if wait is None else [AwaitedReader("the consumers in the replicas", wait, next=0)]
