"""Carries out a retention plan, in its order and in steps. Each step leaves the replica consistent."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from litelog.retention.facts import ObjectKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from litelog.objects.position import Generation
    from litelog.retention.facts import Removal
    from litelog.stores.replica_client import ReplicaClient

AT_ONCE = 100
"""How many snapshots or sealed segments one request deletes. A store deletes the objects of a request in any order."""


def delete_planned(
    client: ReplicaClient, removals: Sequence[Removal], should_continue: Callable[[], bool] = lambda: True
) -> Iterator[Sequence[Removal]]:
    """Delete ``removals`` in their order. Yields each step's removals once they are deleted. Stops once
    ``should_continue()`` is false.

    All snapshots of a plan are deleted before any object that they name. WAL segments are deleted one by one, oldest
    first: an owner that was suspended relies on that order. A generation's newest snapshot is deleted alone, since it
    shows which WAL segments may be deleted. An object that is already gone is not an error. StoreError.
    """
    for step in _steps(removals):
        if not should_continue():
            return
        _delete(client, step[0].kind, step)
        yield step


def _steps(removals: Sequence[Removal]) -> Iterator[Sequence[Removal]]:
    for (kind, _), run in groupby(removals, key=_run_of):
        same = list(run)
        together = len(same) - 1 if kind is ObjectKind.SNAPSHOT else len(same)
        yield from _split(same[:together], 1 if kind is ObjectKind.WAL else AT_ONCE)
        if together < len(same):
            yield same[together:]


def _run_of(removal: Removal) -> tuple[ObjectKind, Generation | None]:
    return removal.kind, None if removal.kind is ObjectKind.SEALED else removal.generation


def _split(removals: Sequence[Removal], size: int) -> Iterator[Sequence[Removal]]:
    for start in range(0, len(removals), size):
        yield removals[start : start + size]


def _delete(client: ReplicaClient, kind: ObjectKind, step: Sequence[Removal]) -> None:
    if kind is ObjectKind.WAL:
        client.delete_wal_segments(removal.position for removal in step if removal.position is not None)
    elif kind is ObjectKind.SEALED:
        client.delete_sealed_segments((removal.generation, removal.number) for removal in step)
    else:
        client.delete_snapshots((removal.generation, removal.number) for removal in step)
