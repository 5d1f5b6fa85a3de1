"""Truncation: removes a log's oldest log segments once every replica holds them. A daemon never writes to a log
otherwise.

A log segment is removed only if each replica in the set holds the same bytes sealed and named by a durable snapshot:
the same file, first sequence, length, and CRC-32C of all bytes. The newest two always stay, and so does the newest one
that every replica holds: an owner that takes over finds there where its predecessor ended. The tombstone is durable
first. Then log segments are removed, oldest first, each durably before the next.

Specified in litelog/shipping/README.md#truncation-of-the-source.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import LockedError, SourceError
from litelog.formats import Expectation
from litelog.formats.capabilities import INDEX_SUFFIXES
from litelog.log.sequence_base import (
    SequenceBase,
    describe_beginning,
    read_tombstone,
    tombstone_folder,
    write_tombstone,
)
from litelog.log.source import SegmentFolder
from litelog.system.files import OPEN_FOLDER
from litelog.units import MICROSECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from litelog.formats import LogFormat
    from litelog.log.disk import Disk
    from litelog.log.replica_registry import ReplicatedSegment
    from litelog.system.clock import Clock

KEPT = 2
"""How many log segments always stay: the one being written, and the one before, which shows what came before it."""


@dataclass(frozen=True, slots=True)
class TruncationPolicy:
    """The limits of a log; None: no limit. The limit that is reached first applies."""

    max_bytes: int | None = None
    max_age: float | None = None
    """Seconds since the last replica got a log segment's last bytes."""
    mirror_wait: float | None = None
    """How old, in the same seconds, a log segment may become while a mirror lacks it; None: no mirror is waited for."""
    consumer_wait: float | None = None
    """As ``mirror_wait``, while a consumer has not processed it whose position is in the log's state folder."""
    replica_consumer_wait: float | None = None
    """As ``mirror_wait``, while a consumer has not processed it whose position is in a replica."""

    @property
    def waits(self) -> bool:
        """Whether log segments stay for readers."""
        return any(wait is not None for wait in self._waits)

    @property
    def _waits(self) -> tuple[float | None, ...]:
        return self.mirror_wait, self.consumer_wait, self.replica_consumer_wait

    def __post_init__(self) -> None:
        """Raises ValueError for invalid limits."""
        if self.max_bytes is None and self.max_age is None:
            raise ValueError("truncate needs max-bytes, max-age or both")
        limits = (self.max_bytes, self.max_age, *self._waits)
        if any((limit or 0) < 0 for limit in limits):
            raise ValueError("limits are not below 0")
        if self.max_bytes is None and self.max_age is not None:
            for wait in self._waits:
                if wait is not None and wait <= self.max_age:
                    raise ValueError("to wait no longer than max-age has no effect: make the wait longer")


@dataclass(frozen=True, slots=True)
class AwaitedReader:
    """A reader of the log, such as a mirror, for which log segments stay a while. It holds all log segments before
    ``file``, or has processed all records before ``next``."""

    name: str
    """For people."""
    seconds: float
    """How many seconds after the last replica got a log segment it is removed nevertheless."""
    file: str | None = None
    """A name that sorts as those of the log segments; empty: it lacks all of them."""
    next: int | None = None


@dataclass(frozen=True, slots=True)
class Awaited:
    """A log segment that the policy would remove, and that stays for a reader."""

    file: str
    reader: str
    until: int
    """When it is removed nevertheless, in microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class LocalSegment:
    """A log segment at the source."""

    name: str
    size: int
    shipped: int | None
    """When the last replica got all of it, in microseconds since 1970; None if a replica does not have it."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A log segment that the policy would remove, and that only some replicas hold."""

    file: str
    missing: tuple[int, ...]
    """The replicas that do not hold it: their numbers in the list that the caller gave."""


@dataclass(frozen=True, slots=True)
class Truncated:
    """The result of a truncation."""

    removed: tuple[str, ...]
    """The removed log segments, oldest first."""
    kept: str | None
    """Why the next log segment stays although it was to be removed; None if none was."""
    next: int | None = None
    """When the next one is removed by its age, in microseconds since 1970; None if age removes none that all replicas
    hold."""
    waiting: Waiting | None = None
    """The next log segment the policy would remove, if only a missing replica prevents it."""
    awaited: Awaited | None = None
    """The next log segment the policy would remove, if only a reader prevents it. Then ``next`` says until when."""


def count_spare(segments: Sequence[LocalSegment]) -> int:
    """Return how many of the oldest ``segments`` (in their order) may be removed. A log segment that is not replicated
    stays, and so do all after it and the one before it."""
    replicated = next((number for number, segment in enumerate(segments) if segment.shipped is None), len(segments))
    return max(0, min(replicated - 1, len(segments) - KEPT))


def plan_truncation(segments: Sequence[LocalSegment], policy: TruncationPolicy, now: int) -> int:
    """Return how many of the oldest ``segments`` (in their order) ``policy`` removes at ``now`` (microseconds since
    1970), if every replica holds them."""
    left = sum(segment.size for segment in segments)
    count = 0
    for segment in segments[: count_spare(segments)]:
        too_large = policy.max_bytes is not None and left > policy.max_bytes
        expires = _expires_at(segment, policy)
        if not too_large and (expires is None or expires > now):
            break
        left -= segment.size
        count += 1
    return count


def when_older(segments: Sequence[LocalSegment], policy: TruncationPolicy) -> int | None:
    """Return when the first of ``segments`` is removed by its age, in microseconds since 1970. None if it stays until
    there are more of them, or more is replicated."""
    return _expires_at(segments[0], policy) if count_spare(segments) else None


def _expires_at(segment: LocalSegment, policy: TruncationPolicy) -> int | None:
    """Return when a log segment is older than the policy allows; None if age does not remove it."""
    if policy.max_age is None or segment.shipped is None:
        return None
    return segment.shipped + int(policy.max_age * MICROSECONDS)


def note_empty(segments: Sequence[LocalSegment]) -> list[LocalSegment]:
    """Give empty log segments, if later ones are replicated, the age of the one before. No replica has to hold them."""
    passed = max((number for number, segment in enumerate(segments) if segment.shipped is not None), default=0)
    noted: list[LocalSegment] = []
    for number, segment in enumerate(segments):
        before = noted[-1].shipped if noted else 0
        is_passed = segment.size == 0 and segment.shipped is None and number < passed
        noted.append(replace(segment, shipped=before) if is_passed else segment)
    return noted


def _order_of(log_format: LogFormat, name: str) -> tuple[object, ...]:
    """The order of a log segment's name; that of the empty name is before all others."""
    return (log_format.segment_order(name) or ()) if name else ()


def _shipped(name: str, size: int, held: Sequence[Mapping[str, ReplicatedSegment]]) -> list[int | None]:
    """Return when each replica got all of a log segment; None for a replica that does not have it."""
    copies = [replica.get(name) for replica in held]
    return [copy.shipped if copy is not None and copy.length == size else None for copy in copies]


class Truncation:
    """Truncates one log. Any thread and process may use it; only one truncates at a time."""

    def __init__(self, folder: str, log_format: LogFormat, clock: Clock, disk: Disk, state_folder: str) -> None:
        """``state_folder``: the folder of the state of the log's replicas. It also holds the tombstone if the log
        belongs to another program."""
        self._folder = folder
        self._format = log_format
        self._disk = disk
        self._names = SegmentFolder(folder, log_format, clock, reports=False)
        self._numbering = SequenceBase(folder, log_format, self._names, state_folder)
        self._tombstones = tombstone_folder(log_format, folder, state_folder)

    def by_policy(
        self,
        held: Sequence[Mapping[str, ReplicatedSegment]],
        policy: TruncationPolicy,
        now: int,
        readers: Sequence[AwaitedReader] = (),
    ) -> Truncated:
        """Truncate as ``policy`` says at ``now`` (microseconds since 1970). ``held``: what each replica of the set
        holds. ``readers``: those for which log segments stay a while.

        Raises SourceError, and LockedError while another process or thread truncates the log.
        """
        with self._locked():
            segments = [self._describe(name, held) for name in self._names.all()]
            if not self._format.self_numbered:
                segments = note_empty(segments)
            begun = self._left_over(segments)
            count = max(begun, plan_truncation(segments, policy, now))
            awaited = self._find_awaited(segments, begun, count, readers, now) if readers else None
            if awaited is not None:
                count = next(number for number, segment in enumerate(segments) if segment.name == awaited.file)
            done = self._remove(segments, count, held)
            if done.kept is not None:
                return done
            if awaited is not None:
                return replace(done, next=awaited.until, awaited=awaited)
            waiting = self._find_waiting(segments[count:], held, policy, now)
            return replace(done, next=when_older(segments[count:], policy), waiting=waiting)

    def before(self, held: Sequence[Mapping[str, ReplicatedSegment]], sequence: int) -> Truncated:
        """Remove all log segments that hold no record from ``sequence`` on. Raises as ``by_policy``."""
        with self._locked():
            names = self._names.all()
            segments = [self._describe(name, held) for name in names]
            count = 0
            while count < len(names) - KEPT and self._first_sequence(names[count + 1], sequence + 1) <= sequence:
                count += 1
            return self._remove(segments, count, held)

    def _describe(self, name: str, held: Sequence[Mapping[str, ReplicatedSegment]]) -> LocalSegment:
        size = os.stat(os.path.join(self._folder, name)).st_size
        shipped = [at for at in _shipped(name, size, held) if at is not None]
        return LocalSegment(name, size, max(shipped) if shipped and len(shipped) == len(held) else None)

    def _find_awaited(
        self, segments: Sequence[LocalSegment], begun: int, count: int, readers: Sequence[AwaitedReader], now: int
    ) -> Awaited | None:
        """Return the first of ``count`` log segments that has to stay for a reader; None if there is none. The removal
        of the first ``begun`` has begun already."""
        by_name = [(reader, _order_of(self._format, reader.file)) for reader in readers if reader.file is not None]
        by_sequence = [(reader, reader.next or 0) for reader in readers if reader.file is None]
        firsts = self._firsts([segment.name for segment in segments[: count + 1]]) if by_sequence else None
        if firsts is not None:
            next(firsts)
        for number, segment in enumerate(segments[:count]):
            after = 0 if firsts is None else next(firsts)
            order = _order_of(self._format, segment.name)
            lacking = [reader for reader, place in by_name if order >= place]
            lacking += [reader for reader, place in by_sequence if place < after]
            age = now - (segment.shipped or 0)
            waited_for = [reader for reader in lacking if age < reader.seconds * MICROSECONDS]
            if waited_for and number >= begun:
                reader = max(waited_for, key=lambda each: each.seconds)
                until = (segment.shipped or 0) + int(reader.seconds * MICROSECONDS)
                return Awaited(segment.name, reader.name, until)
        return None

    def _find_waiting(
        self,
        segments: Sequence[LocalSegment],
        held: Sequence[Mapping[str, ReplicatedSegment]],
        policy: TruncationPolicy,
        now: int,
    ) -> Waiting | None:
        """Return the first log segment that is not replicated, if the policy would remove more once all replicas hold
        what some of them hold."""
        shipped = [_shipped(segment.name, segment.size, held) for segment in segments]
        latest = [max((at for at in known if at is not None), default=None) for known in shipped]
        expected = [replace(segment, shipped=at) for segment, at in zip(segments, latest, strict=True)]
        if not plan_truncation(expected, policy, now):
            return None
        number = next(number for number, segment in enumerate(segments) if segment.size and segment.shipped is None)
        missing = tuple(replica for replica, at in enumerate(shipped[number]) if at is None)
        return Waiting(segments[number].name, missing)

    def _left_over(self, segments: Sequence[LocalSegment]) -> int:
        """Return how many log segments an interrupted truncation still had to remove."""
        tombstone = read_tombstone(self._tombstones)
        names = [segment.name for segment in segments]
        if tombstone is None or tombstone.file not in names:
            return 0
        return min(names.index(tombstone.file), max(0, len(names) - KEPT))

    def _remove(
        self, segments: Sequence[LocalSegment], count: int, held: Sequence[Mapping[str, ReplicatedSegment]]
    ) -> Truncated:
        """Remove as many of the first ``count`` as every replica holds."""
        kept = None
        spare = count_spare(segments)
        firsts = self._firsts([segment.name for segment in segments])
        first = next(firsts) if count else 0
        for number, segment in enumerate(segments[:count]):
            first_after = next(firsts)
            kept = self._why_kept(segment, first, held)
            if kept is None and number >= spare:
                why = self._why_kept(segments[number + 1], first_after, held)
                kept = f"{segment.name} shows where the replicas end; {why}"
            if kept is not None:
                count = number
                break
            first = first_after
        names = [segment.name for segment in segments[:count]]
        if names:
            with self._names.open(segments[count].name) as opened:
                tombstone = describe_beginning(opened, first, with_fingerprint=not self._format.self_numbered)
            write_tombstone(self._tombstones, tombstone, self._disk)
        for name in names:
            self._unlink(name)
        return Truncated(tuple(names), kept)

    def _firsts(self, names: Sequence[str]) -> Iterator[int]:
        """Yield each log segment's first sequence. In unnumbered formats, counts the records of the ones before."""
        if self._format.self_numbered:
            yield from map(self._first_sequence, names)
            return
        first = self._numbering.first()
        for name in names:
            yield first
            first += self._numbering.count(name)

    def _why_kept(
        self, segment: LocalSegment, first: int, held: Sequence[Mapping[str, ReplicatedSegment]]
    ) -> str | None:
        """Return why a log segment must stay; None if it may be removed. Compares all its bytes, by their CRC-32C."""
        copies = [copy for replica in held if (copy := replica.get(segment.name)) is not None]
        if not held:
            return f"{segment.name}: no replica of this log is known"
        if segment.size == 0 and segment.shipped is not None and not copies:
            return self._why_empty_kept(segment.name)
        if len(copies) < len(held):
            missing = len(held) - len(copies)
            return f"{segment.name}: {missing} of {len(held)} replicas do not hold it sealed and in a snapshot"
        with self._names.open(segment.name) as opened:
            here = (opened.size(), opened.checksum(opened.size()))
        if any((copy.length, copy.crc) != here for copy in copies):
            return f"{segment.name}: a replica holds other bytes of that name"
        others = [copy.first for copy in copies if copy.first not in (first, None)]
        if others or (self._format.self_numbered and any(copy.first is None for copy in copies)):
            return (
                f"{segment.name}: a replica counts its records from {others[0] if others else 'nowhere'}, the log from "
                f"{first}: it is unknown where the rest would begin"
            )
        return None

    def _why_empty_kept(self, name: str) -> str | None:
        with self._names.open(name) as opened:
            return f"{name}: it is no longer empty" if opened.size() else None

    def _first_sequence(self, name: str, unknown: int | None = None) -> int:
        """Return a log segment's first sequence. If it has no commit yet, return ``unknown``, or raise SourceError if
        that is None."""
        path = os.path.join(self._folder, name)
        with self._names.open(name) as segment:
            scan = segment.scan_head(self._format, path, Expectation())
        if scan.first is not None:
            return scan.first
        if unknown is None:
            raise SourceError(f"{path}: holds no commit, so it is unknown where the log would begin")
        return unknown

    def _unlink(self, name: str) -> None:
        path = os.path.join(self._folder, name)
        stem = os.path.splitext(path)[0]
        for suffix in INDEX_SUFFIXES if self._format.self_numbered else ():  # other programs' files may have any name
            with suppress(FileNotFoundError):
                os.unlink(stem + suffix)
        with suppress(FileNotFoundError):
            os.unlink(path)
        self._disk.sync_folder(self._folder)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            descriptor = os.open(self._folder, OPEN_FOLDER)
        except OSError as error:
            raise SourceError(f"{self._folder}: cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise LockedError(self._folder, f"the truncation of {self._folder}") from None
        try:
            yield
        except FileNotFoundError as error:
            raise SourceError(f"{error.filename}: vanished while the log was truncated") from error
        except OSError as error:
            raise SourceError(f"{self._folder}: cannot be truncated: {error}") from error
        finally:
            os.close(descriptor)
