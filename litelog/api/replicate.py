"""Replicates logs in the background of a program: the daemon as a context manager."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from litelog.config import Config, ReplicaConfig, make_config
from litelog.errors import ConfigError, NotReplicatedError
from litelog.log.replica_registry import default_state_dir
from litelog.replicator import Replicator
from litelog.replicator.task import TERMINAL_PHASES
from litelog.replicator.wiring import find_refused
from litelog.stores.replica_address import address_of

if TYPE_CHECKING:
    from types import TracebackType

    from litelog.replicator.barrier import Unreached
    from litelog.replicator.status import ReplicaStatus
    from litelog.shipping.events import ReplicaListener
    from litelog.stores.replica_address import Replica

LONGEST_WAIT_SECONDS = 3600.0
"""The longest single wait of ``wait_synced``, which repeats it if it has no limit."""

RETRY_SECONDS = 0.5
"""Pause before the next check of logs that cannot be opened yet."""

_TERMINAL = frozenset(phase.value for phase in TERMINAL_PHASES)


class Replication:
    """A daemon that runs in a thread of this process while the ``with`` block does."""

    def __init__(self, replicator: Replicator, *, serve: bool) -> None:
        """For ``replicate``, which makes the object. ``serve``: whether to serve HTTP at the configured address."""
        self.replicator = replicator
        self._serve = serve
        self._services = ExitStack()
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._measuring = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="replicate")

    @property
    def status(self) -> list[ReplicaStatus]:
        """The status of every open replica: its phase, position, lag and errors."""
        with self._measuring:
            self.replicator.measure()
        return self.replicator.status()

    @property
    def is_running(self) -> bool:
        """Whether the daemon runs. It ends before the block does if every replica is fenced or damaged."""
        return self._thread.is_alive()

    def wait_synced(self, timeout: float | None = None) -> bool:
        """Wait until everything that the logs hold now is durable in every replica.

        Waits for log folders that do not exist yet, too.

        Args:
            timeout: seconds; None: no limit.

        Returns:
            True once everything is durable; False after ``timeout``.

        Raises:
            FencedError, CorruptionError: the error with which the daemon ended.
            NotReplicatedError: one replica has failed for good while others continue; or the daemon was stopped.
        """
        clock = self.replicator.clock
        until = None if timeout is None else clock.monotonic() + timeout
        while True:
            left = LONGEST_WAIT_SECONDS if until is None else max(0.0, until - clock.monotonic())
            unreached = self.replicator.barrier(None, None, min(left, LONGEST_WAIT_SECONDS)).unreached
            if not unreached:
                return True
            self._raise_if_lost(unreached)
            if until is not None and clock.monotonic() >= until:
                return False
            self._ended.wait(min(left, RETRY_SECONDS))  # the barrier returns early if logs cannot be opened yet

    def stop(self) -> None:
        """Begin the final sync. The end of the block waits for it."""
        self.replicator.stop()

    def __enter__(self) -> Self:
        if self._serve:
            from litelog.server.service import Service, ServiceSettings  # noqa: PLC0415 - only if it listens

            settings = replace(ServiceSettings.of(self.replicator.config), state_dir=self.replicator.state_dir)
            self._services.enter_context(Service(self.replicator, settings))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Sync a last time, within the configuration's shutdown-timeout, and raise the error of the daemon. If the
        block raised an error itself, add a note about the daemon's to that."""
        self.replicator.stop()
        self._thread.join()
        self._services.close()
        if self._error is None or self._error is error:
            return
        if error is None:
            raise self._error
        error.add_note(f"replication failed, too: {self._error}")

    def _run(self) -> None:
        try:
            self.replicator.run()
        except BaseException as error:  # noqa: BLE001 - the thread that owns the block raises it
            self._error = error
        finally:
            self._ended.set()
            self.replicator.stop()  # wakes callers that wait for logs that were never opened

    def _raise_if_lost(self, unreached: tuple[Unreached, ...]) -> None:
        """Raise the error of a daemon that has ended, or of replicas that have failed for good."""
        lost = [each for each in unreached if each.phase in _TERMINAL]
        if lost and all(status.phase in _TERMINAL for status in self.replicator.status()):
            self._ended.wait()  # no replica is left, so it ends at once
        if self._ended.is_set():
            raise self._error or NotReplicatedError("replication has been stopped")
        if lost:
            said = "; ".join(f"{each.log} to {each.replica}: {each.phase}: {each.error}" for each in lost)
            raise NotReplicatedError(said)


def replicate(
    log: str | os.PathLike[str] | Config,
    *replicas: Replica,
    log_format: str | None = None,
    pattern: str | None = None,
    sync_interval: float | str | None = None,
    fencing: str | None = None,
    takeover: bool = False,
    state_dir: str | os.PathLike[str] | None = None,
    listener: ReplicaListener | None = None,
) -> Replication:
    """Replicate a log, or all logs of a configuration, while a ``with`` block runs.

        with litelog.replicate("orders", "s3://backups/orders") as replication:
            ...
            replication.wait_synced(timeout=30)

    At the end of the block everything is synced a last time. If that fails, or if replication failed before, the end of
    the block raises the error. The daemon serves HTTP only if a configuration names an ``addr``.

    Args:
        log: the log's folder, or a Config, for example from ``load_config``.
        replicas: the destinations, if ``log`` is a folder: URLs, paths, or ReplicaConfigs.
        log_format: the log's format; None: litelog's own.
        pattern: the shell pattern for the names of log segments, for the formats ``lines`` and ``raw``; None: all.
        sync_interval: seconds between two uploads under load, or a duration such as "10s"; None: 1 second.
        fencing: "required", or "isolated" for stores that cannot keep two daemons apart; None: "required".
        takeover: take the replicas over from another owner, once.
        state_dir: the folder for the daemon's state; None: as configured, or the usual folder.
        listener: receives the events of all replicas, in the threads that ship.

    Returns:
        The daemon. It starts at the beginning of the ``with`` block.

    Raises:
        ConfigError: the arguments contradict each other, or no installed package serves the URL or the format.
    """
    settings = {"sync_interval": sync_interval, "fencing": fencing}
    given = {name: value for name, value in settings.items() if value is not None}
    if isinstance(log, Config):
        if replicas or given or log_format is not None or pattern is not None:
            raise ConfigError("a Config names replicas, formats and settings itself")
        config = log
    else:
        entry = {"path": os.path.abspath(log), "replicas": [_configured(replica, given) for replica in replicas]}
        named = {"format": log_format, "pattern": pattern}
        entry |= {name: value for name, value in named.items() if value is not None}
        config = make_config("replicate", {"logs": [entry]})
    if takeover:
        taking = tuple(each.model_copy(update={"takeover": True}) for each in config.logs)
        config = config.model_copy(update={"logs": taking})
    for _, refused in find_refused(config):
        raise refused
    folder = config.state_dir if state_dir is None else os.fspath(state_dir)
    replicator = Replicator(
        config, state_dir=folder or default_state_dir(), host=socket.gethostname(), listener=listener
    )
    return Replication(replicator, serve=config.addr is not None)


def _configured(replica: Replica, given: dict[str, float | str]) -> dict[str, object]:
    if isinstance(replica, ReplicaConfig):
        return {**replica.model_dump(exclude_unset=True), **given}
    url, options = address_of(replica)
    return {"url": url, "options": dict(options), **given}
