"""MirrorGroup: mirrors of all logs of one daemon whose names match a pattern. New logs are mirrored as they appear.

Specified in litelog/restore/README.md#mirrors.
"""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import field, replace
from enum import Enum
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import LitelogError, NothingToRestoreError, StoreError
from litelog.events import fields
from litelog.restore.opened_mirror import keep_mirror
from litelog.restore.output import OutputError
from litelog.restore.wal_restore import RestoreStoppedError
from litelog.stores.served_logs import ServedLogsView, find_served_logs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from litelog.objects.position import Position
    from litelog.restore.execution import RestoreProgress
    from litelog.restore.mirror import Mirror
    from litelog.restore.opened_mirror import MirrorRules
    from litelog.stores.served_logs import NamedLog

_logger = logging.getLogger(__name__)

MOST_LOGS = 256
"""How many logs one group mirrors at a time: as many as a daemon permits readers."""

OPENED_AT_ONCE = 4
"""How many of them are restored or compared at a time."""

LIST_SECONDS = 5.0
"""How many seconds pass at most between two looks at the logs that the daemon serves."""

ONCE_SECONDS = 1.0
"""How long a mirror that ends by itself waits for news."""


class MirrorPhase(Enum):
    """The state of a mirror in a group."""

    WAITING = "waiting"
    OPENING = "opening"
    MIRRORING = "mirroring"
    DONE = "done"
    FAILED = "failed"


@dataclass
class MirroredLog:
    """One log of a group. Its own thread changes it."""

    source: NamedLog
    output: str
    """The folder of the mirror."""
    phase: MirrorPhase = MirrorPhase.WAITING
    error: LitelogError | None = None
    """Why it failed."""
    aside: list[str] = field(default_factory=list)
    """The paths of mirrors that were set aside after a fork."""
    _mirror: Mirror | None = None
    _before: int = 0

    @property
    def position(self) -> Position | None:
        """The position after its last durable commit; None if it is not known."""
        return None if self._mirror is None else self._mirror.position

    @property
    def next(self) -> int | None:
        """The sequence after its last record; None if it is not known."""
        return None if self._mirror is None else self._mirror.next

    @property
    def appended(self) -> int:
        """The number of appended bytes."""
        return self._before + (0 if self._mirror is None else self._mirror.appended)

    def hold(self, mirror: Mirror) -> None:
        """Show the state of ``mirror`` from now on."""
        self._before, self._mirror = self.appended, mirror


class MirrorGroup:
    """Mirrors each log into a folder with its name. ``run`` and ``run_once`` are called once, by one thread."""

    def __init__(self, url: str, options: Mapping[str, object], folder: str, rules: MirrorRules) -> None:
        """Make a group, without any request.

        Args:
            url: ``http://HOST:PORT/logs/PATTERN``.
            options: The options of the URL's store.
            folder: Holds the mirrors.
            rules: How each log is mirrored. The log's name takes the place of ``*`` in the URLs of its replicas.
        """
        self._url = url
        self._options = options
        self._folder = os.path.abspath(folder)
        self._rules = rules
        self._opening = threading.Semaphore(OPENED_AT_ONCE)
        self._starting = threading.Lock()
        """Held while mirrors are started."""
        self._logs: dict[str, MirroredLog] = {}
        self._running: dict[str, Future[None]] = {}

    def logs(self) -> Sequence[MirroredLog]:
        """The logs that were found, in the order of their names. Any thread may call it."""
        return [log for _, log in sorted(self._logs.items())]

    def run_once(self, stop: threading.Event) -> None:
        """Mirror each log that is served now, until it has no news for a second. Raises as ``find_served_logs``."""

        def use(mirror: Mirror) -> None:
            while not stop.is_set() and mirror.step(ONCE_SECONDS):
                pass

        self._find()
        with ThreadPoolExecutor(MOST_LOGS, "mirror") as pool:
            for log in self.logs():
                self._running[log.source.name] = pool.submit(self._mirror, log, use, stop)
        for running in self._running.values():
            running.result()

    def run(self, stop: threading.Event) -> None:
        """Mirror until ``stop`` is set. A log that is no longer served keeps its mirror. A mirror that fails does not
        stop the others, and is started again if the error may pass. Raises ConfigError."""
        failures = list[BaseException]()

        def watch() -> None:
            try:
                self._keep_all(pool, view, stop)
            except BaseException as error:  # noqa: BLE001 - the calling thread raises it
                failures.append(error)
            finally:
                stop.set()

        view = ServedLogsView(self._url, self._options)
        with ThreadPoolExecutor(MOST_LOGS, "mirror") as pool, closing(view):
            try:
                # A request may wait for LIST_SECONDS: the end does not wait for it.
                threading.Thread(target=watch, name="mirrors", daemon=True).start()
                stop.wait()
            finally:
                stop.set()
            with self._starting:
                """No mirror is started any more."""
        if failures:
            raise failures[0]

    def _keep_all(self, pool: ThreadPoolExecutor, view: ServedLogsView, stop: threading.Event) -> None:
        """Start the mirrors of the logs that the daemon lists, and of those that it lists later."""
        wait = 0.0
        while not stop.is_set():
            try:
                found = self._note_all(view.look(wait))
            except StoreError as error:
                if not stop.is_set():
                    _logger.warning("%s", error, extra=fields("mirror-failed", replica=self._url))
                stop.wait(LIST_SECONDS)
                continue
            with self._starting:
                if not stop.is_set():
                    self._start_all(found, pool, stop)
            wait = LIST_SECONDS if view.waits else 0.0
            if not view.waits:
                stop.wait(LIST_SECONDS)

    def _start_all(self, served: Sequence[str], pool: ThreadPoolExecutor, stop: threading.Event) -> None:
        for name in served:
            log, running = self._logs[name], self._running.get(name)
            may_pass = isinstance(log.error, (NothingToRestoreError, StoreError))
            if running is not None and running.done():
                running.result()
            if running is None or (running.done() and may_pass):
                self._running[name] = pool.submit(self._mirror, log, lambda mirror: mirror.run(stop), stop)

    def _find(self) -> list[str]:
        """Look which logs are served. Return their names."""
        return self._note_all(find_served_logs(self._url, self._options))

    def _note_all(self, found: Sequence[NamedLog]) -> list[str]:
        """Note served logs. Return their names."""
        for each in found:
            if each.name not in self._logs:
                self._logs[each.name] = MirroredLog(each, os.path.join(self._folder, each.name))
        return [each.name for each in found]

    def _mirror(self, log: MirroredLog, use: Callable[[Mirror], None], stop: threading.Event) -> None:
        @contextmanager
        def opening() -> Iterator[Callable[[RestoreProgress], None] | None]:
            log.phase = MirrorPhase.WAITING
            with self._opening:
                log.phase = MirrorPhase.OPENING
                yield None

        def use_and_show(mirror: Mirror) -> None:
            log.hold(mirror)
            log.phase, log.error = MirrorPhase.MIRRORING, None
            use(mirror)

        source = (log.source.url, self._options)
        replicas = tuple((url.replace("*", log.source.name), options) for url, options in self._rules.replicas)
        try:
            _make_folder(os.path.dirname(log.output))
            keep_mirror(
                source,
                log.output,
                replace(self._rules, replicas=replicas),
                use_and_show,
                stop=stop,
                opening=opening,
                note_aside=lambda path, error: _note(log, path, error),
            )
        except RestoreStoppedError:
            log.phase = MirrorPhase.FAILED
            log.error = RestoreStoppedError(f"stopped before {log.output} was a mirror; the same command continues")
        except LitelogError as error:
            if type(error) is not type(log.error):
                _logger.error("%s: %s", log.source.url, error, extra=fields("mirror-failed", replica=log.source.url))
            log.phase, log.error = MirrorPhase.FAILED, error
        else:
            log.phase = MirrorPhase.DONE


def _note(log: MirroredLog, path: str, error: Exception) -> None:
    log.aside.append(path)
    extra = fields("mirror-forked", replica=log.source.url, output=path)
    _logger.warning("%s: the mirror is now %s; beginning another one", error, path, extra=extra)


def _make_folder(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise OutputError(path, f"cannot be created: {error.strerror}") from error
