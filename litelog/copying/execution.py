"""Copies a replica, or what its copy lacks: the same names and bytes, each object verified on the way.

A new copy gets its claims last, so a copy that was interrupted is not a replica yet. Later runs add objects in the
order in which their writers put them: by epoch the claims, then the sealed segments of their generations, then
snapshots and WAL segments, and last the checkpoints. So readers of the copy find an earlier state of the replica at any
time.

Every put is create-only. If the replica no longer has an object, the copy keeps it, except for a WAL segment
that a snapshot covers.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from litelog.copying.inventory import list_both
from litelog.copying.positions import carry_positions, read_positions
from litelog.copying.verified_objects import chained, is_same, read_object
from litelog.dataclass import dataclass
from litelog.errors import ConfigError, ExistsError, NotACopyError, NotFoundError, ReplicaGapError
from litelog.objects import layout
from litelog.reading.fetch import ordered_prefetch
from litelog.stores.capabilities import CopiesByItself
from litelog.stores.missing import require_no_log
from litelog.stores.retrying_store import RetryingStore
from litelog.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from litelog.copying.inventory import ListedReplica
    from litelog.copying.verified_objects import VerifiedObject
    from litelog.stores.object_store import ObjectInfo, ObjectStore
    from litelog.system.clock import Clock

PARALLELISM = 8
"""How many objects are read or put at a time."""

SERVICE_COPY_BYTES = 1 << 20
"""The smallest object whose copy is left to the service. That takes three requests instead of one."""

HELD_BYTES = 16 << 20
"""The most bytes of an object that are held at a time, except if a commit is larger."""

AHEAD_BYTES = 64 << 20
"""The most bytes that are read ahead of the puts."""


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """The progress of a copy. The totals grow if the replica does."""

    objects: int
    """Copied objects, of ``total``."""
    total: int
    bytes: int
    """Their bytes, of ``total_bytes``."""
    total_bytes: int


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The result of a copy."""

    replica: str
    target: str
    objects: int
    """Objects that this run copied, with ``bytes`` in all. The copy had the other ones already."""
    bytes: int
    total: int
    """Objects of the replica, with ``total_bytes`` in all. Of each consumer's positions, the newest one counts."""
    total_bytes: int
    removed: int
    """WAL segments that this run removed from the copy. The replica had removed them, as a snapshot covers them."""
    foreign: int
    """Objects next to the replica whose names are outside the layout. They were not copied."""
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """The result as JSON values, for programs."""
        return {name: getattr(self, name) for name in type(self).__slots__}


def copy(
    source: ObjectStore,
    target: ObjectStore,
    *,
    parallelism: int = PARALLELISM,
    progress: Callable[[CopyProgress], None] | None = None,
    clock: Clock | None = None,
) -> CopyResult:
    """Copy the replica in ``source`` to ``target``, or what ``target`` lacks of it. The copy is a replica as well.

    A daemon may write to the replica meanwhile: the copy then has a state that the replica had during the call. A run
    that was interrupted is repeated with the same arguments. Several processes may copy at the same time.

    Args:
        source: The replica's object store.
        target: The object store of the copy: empty, or an older copy.
        parallelism: How many objects are read or put at a time.
        progress: Called after each object, on the caller's thread.
        clock: For the duration in the result.

    Returns:
        What was copied.

    Raises:
        ConfigError: Both are the same place, or ``target`` is the folder of a log.
        NoReplicaError: ``source`` holds no replica.
        NotACopyError: ``target`` holds another replica, or a daemon has written to the copy.
        CorruptObjectError: An object of the replica is damaged. It was not copied.
        ReplicaGapError: An object that another one names is missing.
        UnknownVersionError: A newer litelog wrote an object.
        StoreError: A request failed.
    """
    if source.url == target.url:
        raise ConfigError(f"{source.url}: a copy needs another place than its replica")
    require_no_log(target.url)
    clock = clock or SystemClock()
    started = clock.monotonic()
    with ThreadPoolExecutor(parallelism, "copy") as executor:
        run = _Copy(source, target, executor, parallelism, progress)
        wanted = run.run()
    seconds = clock.monotonic() - started
    return CopyResult(
        source.url,
        target.url,
        run.objects,
        run.bytes,
        len(wanted.sizes),
        wanted.bytes,
        run.removed,
        wanted.foreign,
        seconds,
    )


def _service_of(store: ObjectStore) -> ObjectStore:
    """The store without its retries. A store that decrypts stays as it is."""
    return store.awaiting if isinstance(store, RetryingStore) else store


class _GoneError(Exception):
    """An object that the listing had, or that another object names, is gone."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(key)


class _Copy:
    """One call of ``copy``. Jobs run on the threads of ``executor``, and all else on the caller's."""

    def __init__(
        self,
        source: ObjectStore,
        target: ObjectStore,
        executor: ThreadPoolExecutor,
        parallelism: int,
        progress: Callable[[CopyProgress], None] | None,
    ) -> None:
        self._source = source
        self._target = target
        self._executor = executor
        self._parallelism = parallelism
        self._progress = progress
        self._held: set[str] = set()
        self._late: list[str] = []
        """Claims that are newer than the listing."""
        self._left = self._left_bytes = 0
        self.objects = self.bytes = self.removed = 0

    def run(self) -> ListedReplica:
        """Copy what is missing. Returns the last listing of the replica, with the newest position of each consumer."""
        gone: set[str] = set()
        while True:
            positions = read_positions(self._source)
            wanted, held = list_both(self._source, self._target)
            try:
                self._copy_missing(wanted, held)
            except _GoneError as error:  # sealed, covered or pruned meanwhile: a new listing shows what replaces it
                if error.key in gone:
                    raise ReplicaGapError(error.key) from error
                gone.add(error.key)
            else:
                carried = carry_positions(positions, self._target)
                self.objects, self.bytes = self.objects + len(carried), self.bytes + sum(each.size for each in carried)
                wanted.sizes.update({each.info.key: each.info.size for each in positions.values()})
                return wanted

    def _copy_missing(self, wanted: ListedReplica, held: ListedReplica) -> None:
        self._held, self._late = set(held.sizes), []
        missing = [info.size for info in wanted.objects() if info.key not in self._held]
        self._left, self._left_bytes = len(missing), sum(missing)
        for claims, generations in wanted.by_epoch():
            if held.claims:
                self._put_all(self._read(claims), in_order=True)
            for generation in generations:
                self._put_all(self._read(generation.sealed), in_order=False)
                copied = held.generations.get(generation.name)
                for objects in generation.in_turns(copied):
                    self._put_all(chained(self._source, self._read(objects)), in_order=bool(held.claims))
                    self._remove(generation.find_removed(copied))
        if not held.claims:
            self._put_all(self._read(wanted.claims.values()), in_order=True)
            late = [self._find(key) for key in self._late]
            self._put_all(self._read(late), in_order=True)
        self._put_all(self._read(wanted.checkpoints), in_order=True)

    def _remove(self, keys: Sequence[str]) -> None:
        """Remove WAL segments from the copy that were removed from the replica, and that a copied snapshot covers."""
        keys = [key for key in keys if key in self._held]
        self._target.delete(keys)
        self._held.difference_update(keys)
        self.removed += len(keys)

    def _read(self, infos: Iterable[ObjectInfo]) -> Iterator[VerifiedObject]:
        """Read the objects that the copy lacks, ahead, in order."""
        lacking = (info for info in infos if info.key not in self._held)
        jobs = ((min(info.size, HELD_BYTES), partial(self._read_one, info)) for info in lacking)
        yield from ordered_prefetch(self._executor, jobs, most_jobs=self._parallelism, most_bytes=AHEAD_BYTES)

    def _read_one(self, info: ObjectInfo) -> VerifiedObject:
        try:
            return read_object(self._source, info)
        except NotFoundError as error:
            raise _GoneError(info.key) from error

    def _put_all(self, objects: Iterator[VerifiedObject], *, in_order: bool) -> None:
        most_jobs = 1 if in_order else self._parallelism
        jobs = ((min(found.info.size, HELD_BYTES), partial(self._put, found)) for found in self._watched(objects))
        for done in ordered_prefetch(self._executor, jobs, most_jobs=most_jobs, most_bytes=AHEAD_BYTES):
            size = sum(info.size for info in done)
            self.objects, self.bytes = self.objects + len(done), self.bytes + size
            self._left, self._left_bytes = max(0, self._left - len(done)), max(0, self._left_bytes - size)
            if self._progress is not None:
                total, total_bytes = self.objects + self._left, self.bytes + self._left_bytes
                self._progress(CopyProgress(self.objects, total, self.bytes, total_bytes))

    def _watched(self, objects: Iterator[VerifiedObject]) -> Iterator[VerifiedObject]:
        """The same objects. An object that vanishes while it is read again counts as gone, too."""
        try:
            yield from objects
        except NotFoundError as error:
            raise _GoneError(error.key) from error

    def _put(self, found: VerifiedObject) -> list[ObjectInfo]:
        """Put an object after those that it names. Return all that were put."""
        named = (self._put_named(name) for name in found.names if name not in self._held)
        done = [info for info in named if info is not None]
        return [*done, self._put_one(found)]

    def _put_named(self, key: str) -> ObjectInfo | None:
        """Put an object that another one names, and that is newer than the listing. Claims of a new copy wait."""
        if layout.parse_claim(key) is not None and not self._has_claims():
            self._late.append(key)
            return None
        return self._put_one(self._read_one(self._find(key)))

    def _has_claims(self) -> bool:
        return any(key.startswith(layout.CLAIMS) for key in self._held)

    def _find(self, key: str) -> ObjectInfo:
        info = next((info for info in self._source.list(key) if info.key == key), None)
        if info is None:
            raise _GoneError(key)
        return info

    def _put_one(self, found: VerifiedObject) -> ObjectInfo:
        key = found.info.key
        try:
            if found.info.size < SERVICE_COPY_BYTES or not self._copy_by_service(found):
                self._target.put(key, found.body)
        except ExistsError:  # the answer to an earlier attempt was lost, or another process copies, too
            self._require_same(key)
        except NotFoundError as error:
            raise _GoneError(key) from error
        self._held.add(key)
        return found.info

    def _copy_by_service(self, found: VerifiedObject) -> bool:
        """Let the service copy an object whose bytes this process reads and verifies. Returns whether it did."""
        source, target = _service_of(self._source), _service_of(self._target)
        if not isinstance(target, CopiesByItself):
            return False

        def copy_once() -> bool:
            return target.copy_from(source, found.info.key, found.body)

        return self._target.attempt(copy_once) if isinstance(self._target, RetryingStore) else copy_once()

    def _require_same(self, key: str) -> None:
        try:
            same = is_same(self._source, self._target, key)
        except NotFoundError as error:
            raise _GoneError(key) from error
        if not same:
            raise NotACopyError(self._target.url, self._source.url, key, "its bytes differ")
