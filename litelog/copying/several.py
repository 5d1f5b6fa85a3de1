"""Copies several replicas, some at a time. A replica that cannot be copied does not stop the others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import TYPE_CHECKING

from litelog.copying.execution import PARALLELISM, copy
from litelog.dataclass import dataclass
from litelog.errors import ConfigError, LitelogError, NoReplicaError
from litelog.stores.missing import find_replicas
from litelog.stores.opening import naming_replica, open_copy, open_retrying
from litelog.stores.registry import open_writable_store, place_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from threading import Event

    from litelog.copying.execution import CopyProgress, CopyResult

REPLICAS_AT_ONCE = 4
"""How many replicas are copied at a time: while some wait for a store, others verify."""


class CopyStoppedError(LitelogError):
    """A copy was stopped between two objects. A later run continues it."""

    def __init__(self) -> None:
        super().__init__("the copy was stopped; run it again to continue")


@dataclass(frozen=True, slots=True)
class ReplicaCopy:
    """A replica to copy, and where to: URLs or folders, each with the options of its backend."""

    replica: str
    target: str
    options: Mapping[str, object] = field(default_factory=dict, repr=False)
    target_options: Mapping[str, object] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class CopyOutcome:
    """The outcome of one copy: either ``result`` or ``error``."""

    copy: ReplicaCopy
    result: CopyResult | None = None
    error: LitelogError | None = None


def find_copies(below: ReplicaCopy, stop: Event) -> list[ReplicaCopy]:
    """Find the replicas at or below ``below.replica``, to be copied to the same names below ``below.target``.

    Looks up to three levels below, with two requests for each name that it finds.

    Args:
        below: The places above the replicas and above their copies.
        stop: Ends a wait between two attempts of a request.

    Returns:
        The copies to make, in the order of the replicas' names.

    Raises:
        ConfigError: The target is the place of the replicas, lies below it, or is a log that a daemon serves.
        NoReplicaError: No replica is at or below ``below.replica``.
        StoreError: The replicas could not be listed.
    """
    source = open_retrying(below.replica, below.options, stop)
    try:
        target = open_writable_store(below.target, below.target_options)
        place, copied = source.url.rstrip("/") + "/", target.url.rstrip("/") + "/"
        target.close()
        if copied.startswith(place):
            raise ConfigError(f"{target.url}: lies in {source.url}; choose a target outside of it for the copies")
        with naming_replica(source):
            names = list(find_replicas(source.store))
        if not names:
            raise NoReplicaError(source.url, f"{source.url}: no replica there, nor up to three levels below it")
    finally:
        source.close()
    return [
        ReplicaCopy(
            place_below(below.replica, name),
            place_below(below.target, name),
            below.options,
            below.target_options,
        )
        for name in names
    ]


def copy_each(
    copies: Sequence[ReplicaCopy],
    stop: Event,
    *,
    parallelism: int = PARALLELISM,
    progress: Callable[[CopyProgress], None] | None = None,
    at_once: int = REPLICAS_AT_ONCE,
) -> Iterator[CopyOutcome]:
    """Copy replicas, and yield the outcome of each, in their order. Errors are in the outcomes.

    If the caller ends the iteration early, running copies stop at their next object.

    Args:
        copies: What to copy.
        stop: Once it is set, each copy stops at its next object with CopyStoppedError, and no wait continues.
        parallelism: How many objects of a replica are read or put at a time.
        progress: Called after each object of any replica, on any thread.
        at_once: How many replicas are copied at a time.
    """

    def report(now: CopyProgress) -> None:
        if stop.is_set():
            raise CopyStoppedError
        if progress is not None:
            progress(now)

    with ThreadPoolExecutor(at_once, "copy-replica") as pool:
        try:
            yield from pool.map(lambda each: _copy(each, stop, parallelism, report), copies)
        except BaseException:  # the caller ended the iteration, or was interrupted
            stop.set()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _copy(wanted: ReplicaCopy, stop: Event, parallelism: int, progress: Callable[[CopyProgress], None]) -> CopyOutcome:
    if stop.is_set():
        return CopyOutcome(wanted, error=CopyStoppedError())
    try:
        source = open_retrying(wanted.replica, wanted.options, stop)
        try:
            target = open_copy(source, wanted.target, wanted.target_options, stop)
            try:
                with naming_replica(source), naming_replica(target):
                    result = copy(source.store, target.store, parallelism=parallelism, progress=progress)
            finally:
                target.close()
        finally:
            source.close()
    except LitelogError as error:
        return CopyOutcome(wanted, error=CopyStoppedError() if stop.is_set() else error)
    return CopyOutcome(wanted, result)
