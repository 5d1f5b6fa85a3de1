"""One log and one replica of it: what all who ship the one to the other share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from litelog.formats import LogFormat
    from litelog.shipping.events import Listener
    from litelog.shipping.settings import Settings
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock


def as_proposed(log_id: str) -> str:
    """The id of a log that has one replica."""
    return log_id


def as_it_says() -> int | None:
    """The first sequence of a log that tells it, or that begins with its first record."""
    return None


@dataclass(frozen=True, slots=True)
class Source:
    """A log to replicate, and how to read it."""

    folder: str
    format: LogFormat
    agree_on_id: Callable[[str], str] = as_proposed
    """The log's id in all of its replicas, where its files hold none: the one that is proposed, or an earlier one."""
    first_sequence: Callable[[], int | None] = as_it_says
    """The log's first sequence, where its records do not carry theirs, and what came before was truncated."""


def do_at_once(work: Callable[[], None]) -> None:
    """Do background work in the thread that asks for it."""
    work()


@dataclass(frozen=True, slots=True)
class Workers:
    """Threads that all replicas share: for compression, for puts beside it, and for what need not be done at once."""

    compressing: Executor
    putting: Executor
    background: Callable[[Callable[[], None]], Any] = do_at_once
    """Has work done, in a thread that no WAL segment waits for."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A log, a replica of it, and the tools to ship with."""

    source: Source
    client: ReplicaClient
    workers: Workers
    clock: Clock
    listener: Listener
    settings: Settings
