"""One restore, from the replicas' addresses on: opens them, chooses one, and restores from it."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import ConfigError, NothingToRestoreError, OutputExistsError
from litelog.formats.registry import open_stored_format
from litelog.reading.latest import expand_generation
from litelog.restore.choose_replica import choose, describe
from litelog.restore.execution import PARALLELISM, restore
from litelog.restore.history_plan import find_plan
from litelog.stores.opening import opened_replica
from litelog.stores.registry import redact
from litelog.system.clock import SystemClock
from litelog.units import format_iso

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from litelog.formats import LogFormat
    from litelog.restore.choose_replica import ReplicaChoice
    from litelog.restore.execution import RestoreProgress, RestoreResult
    from litelog.restore.plan import RestorePlan, Target
    from litelog.stores.replica_client import ReplicaClient


@dataclass(frozen=True, slots=True)
class OpenedRestore:
    """The replica that is restored from. Nothing is written yet."""

    choice: ReplicaChoice
    skipped: tuple[tuple[str, str], ...]
    """The replicas that cannot be restored from: the URL, and the reason."""
    _target: Target

    @property
    def plan(self) -> RestorePlan:
        """The plan of the restore."""
        return self.choice.plan

    def run(
        self,
        output: str,
        *,
        parallelism: int = PARALLELISM,
        progress: Callable[[RestoreProgress], None] | None = None,
        delta: bool = False,
        check_space: bool = True,
        stop: threading.Event | None = None,
    ) -> RestoreResult:
        """Restore to the folder ``output``. The arguments and errors are those of ``restore``."""
        choice = self.choice
        return restore(
            choice.client,
            choice.plan,
            output,
            log_format=choice.log_format,
            parallelism=parallelism,
            progress=progress,
            fallbacks=choice.fallbacks,
            delta=delta,
            check_space=check_space,
            stop=stop,
            replan=partial(find_plan, choice.client, self._target, choice.log_format),
        )


@contextmanager
def opened_restore(
    replicas: Sequence[tuple[str, Mapping[str, object]]],
    target: Target,
    *,
    generation: str | None = None,
    pattern: str | None = None,
    stop: threading.Event | None = None,
) -> Iterator[OpenedRestore]:
    """Open the replicas of a log, and choose the replica that reaches furthest. All are closed at the end.

    Args:
        replicas: Their URLs and options.
        target: What to restore.
        generation: The generation's name, or its first digits; None: the target's, or the latest.
        pattern: Which names are log segments, for formats that need a pattern.
        stop: As for ``opened_replica``.

    Raises:
        ConfigError: No replica can be opened; or some cannot, and the others hold nothing to restore.
        NothingToRestoreError: No replica holds what the target names, or its time is in the future.
        DivergedReplicasError, CorruptObjectError, ReplicaGapError, StoreError: as ``choose`` raises them.
    """
    formats = partial(open_stored_format, pattern=pattern)
    with ExitStack() as stack:
        clients, unopened = _open_all(stack, replicas, stop)
        try:
            if generation is not None:
                target = replace(target, generation=expand_generation(generation, clients))
            choice = choose(clients, target, formats)
        except NothingToRestoreError as error:
            if unopened:  # they may hold something to restore
                skipped = "; ".join(describe(*each) for each in unopened)
                raise ConfigError(f"nothing to restore from the others ({error}); skipped {skipped}") from error
            raise
        _require_past(choice, target, clients, formats)
        yield OpenedRestore(choice, (*unopened, *choice.skipped), target)


def require_free(output: str) -> None:
    """Raise OutputExistsError if ``output`` exists and is not an empty folder."""
    if is_taken(output):
        raise OutputExistsError(os.path.abspath(output))


def is_taken(output: str) -> bool:
    """Whether a restore without ``delta`` would refuse to write to ``output``."""
    try:
        return bool(os.listdir(output))
    except OSError:
        return os.path.lexists(output)  # a file, or nothing


def _open_all(
    stack: ExitStack, replicas: Sequence[tuple[str, Mapping[str, object]]], stop: threading.Event | None
) -> tuple[list[ReplicaClient], list[tuple[str, str]]]:
    """Clients of the replicas, and why others have none: a backend may be missing here. Raises if all have none."""
    clients: list[ReplicaClient] = []
    unopened: list[tuple[str, str]] = []
    for url, options in replicas:
        try:
            opened = opened_replica(url, options, is_only=len(replicas) == 1, stop=stop)
            clients.append(stack.enter_context(opened))
        except ConfigError as error:
            if len(unopened) + 1 == len(replicas):
                raise
            unopened.append((redact(url), str(error)))
    return clients, unopened


def _require_past(
    choice: ReplicaChoice, target: Target, clients: Sequence[ReplicaClient], formats: Callable[[str], LogFormat]
) -> None:
    """Raise NothingToRestoreError for a time that is not reached yet, as for a sequence that is not there.

    A time after now is fine if records are stamped with even later ones.
    """
    if target.timestamp is None or target.timestamp <= SystemClock().now():
        return
    if choose(clients, replace(target, timestamp=None), formats).plan.end == choice.plan.end:
        reached = f"the last records were shipped at {format_iso(choice.plan.shipped)}"
        said = f"{choice.plan.replica}: {format_iso(target.timestamp)} is in the future; {reached}"
        raise NothingToRestoreError(f"{said}: leave out the time to restore everything")
