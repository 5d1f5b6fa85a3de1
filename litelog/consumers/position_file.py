"""The durable position of a consumer: a checked file, moved by compare-and-set.

<state folder>/<log>/consumers/<name>.json            the position
<state folder>/<log>/consumers/<name>.json.previous   the position before it

Specified in litelog/consumers/README.md#the-position.
"""

from __future__ import annotations

import fcntl
import logging
import os
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from litelog.codec.decoding import build
from litelog.consumers.positions import require_name
from litelog.errors import ConsumerMovedError, ConsumerStateError
from litelog.events import fields
from litelog.log.replica_registry import CONSUMERS_FOLDER
from litelog.objects.consumer_position import ConsumerPosition, Evidence
from litelog.objects.layout import is_consumer_name
from litelog.system.checked_files import read_checked, write_checked
from litelog.system.files import sync_folder
from litelog.system.private_files import make_private, open_lock, temporary_name

if TYPE_CHECKING:
    from collections.abc import Iterator

_SUFFIX = ".json"
_PREVIOUS = ".previous"
_LOCK = ".lock"

_logger = logging.getLogger(__name__)


class PositionFile:
    """The position of one consumer. Any thread and process may use it."""

    def __init__(self, folder: str, name: str) -> None:
        """``folder``: the log's state folder. Raises ConfigError for a name that cannot be a file's name."""
        require_name(name)
        self.name = name
        self._folder = os.path.join(folder, CONSUMERS_FOLDER)
        self.path = os.path.join(self._folder, name + _SUFFIX)
        self._previous = self.path + _PREVIOUS

    def read(self) -> ConsumerPosition | None:
        """Return the position; None if the consumer has none yet. If its file is damaged or
        missing, return the previous position. Raises ConsumerStateError if that is damaged as well."""
        try:
            return _read(self.path)
        except FileNotFoundError:
            if not os.path.lexists(self._previous):
                return None
            reason = "is missing"
        except ValueError as error:
            reason = str(error)
        except OSError as error:
            raise ConsumerStateError(f"{self.path}: cannot be read: {error.strerror}") from error
        try:
            found = _read(self._previous)
        except (OSError, ValueError) as error:
            raise ConsumerStateError(
                f"{self.path}: cannot be used: {reason}; nor can the previous position ({error}): run "
                f"litelog consumers move to state where consumer {self.name} continues"
            ) from error
        message = "%s: cannot be used: %s; consumer %s continues at its previous position"
        _logger.warning(message, self.path, reason, self.name, extra=fields("state-lost", path=self.path))
        return found

    def move(
        self,
        held: ConsumerPosition | None,
        following: int | None,
        evidence: Evidence | None,
        now: int,
        move: str | None = None,
    ) -> ConsumerPosition:
        """Move the position durably, if it is still ``held``. Return the new position. ``move``: the id of
        the move, if its answer may be lost.

        Raises:
            ConsumerMovedError: Another process has moved it since.
            ConsumerStateError: It cannot be written.
        """
        with self._locked():
            there = self.read()
            if (there.revision if there else 0) != (held.revision if held else 0):
                raise ConsumerMovedError(self.name, None if there is None else there.next)
            return self._replace(there, following, evidence, now, move)

    def force(self, following: int | None, now: int) -> ConsumerPosition:
        """Move the position durably, wherever it is, also if it is damaged. Raises ConsumerStateError."""
        with self._locked():
            try:
                there = self.read()
            except ConsumerStateError:
                there = ConsumerPosition(now, None, now)  # a revision that no holder of the lost one has
            return self._replace(there, following, None, now)

    def delete(self) -> bool:
        """Delete the position durably. Return whether there was one. Raises ConsumerStateError."""
        if not os.path.isdir(self._folder):
            return False
        with self._locked():
            found = False
            for path in (self._previous, self.path):  # in this order: an older position never takes the newer's place
                with suppress(FileNotFoundError):
                    os.unlink(path)
                    found = True
            sync_folder(self._folder)
            return found

    def _replace(
        self,
        there: ConsumerPosition | None,
        following: int | None,
        evidence: Evidence | None,
        now: int,
        move: str | None = None,
    ) -> ConsumerPosition:
        revision = there.revision + 1 if there else 1
        position = ConsumerPosition(revision, following, now, evidence, move)
        if there is not None:
            self._keep_previous()
        write_checked(self.path, asdict(position))
        return position

    def _keep_previous(self) -> None:
        """Give the current position a second name, if it can be read: damage must not replace the previous one."""
        try:
            _read(self.path)
        except (OSError, ValueError):
            return
        temporary = os.path.join(self._folder, temporary_name(os.path.basename(self._previous)))
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        with suppress(OSError):  # a file system without second names keeps no previous position
            os.link(self.path, temporary)
            os.rename(temporary, self._previous)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            make_private(os.path.dirname(self._folder))
            make_private(self._folder)
            descriptor = open_lock(os.path.join(self._folder, _LOCK))
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)  # brief: it is held while one small file is written
                yield
            finally:
                os.close(descriptor)
        except OSError as error:
            raise ConsumerStateError(f"{self.path}: cannot be kept: {error.strerror}") from error


class PositionFolder:
    """The positions of a log's consumers in its state folder."""

    def __init__(self, folder: str) -> None:
        """``folder``: the log's state folder."""
        self.place = folder

    def names(self) -> list[str]:
        return consumer_names(self.place)

    def of(self, name: str) -> PositionFile:
        return PositionFile(self.place, name)

    def close(self) -> None:
        """Nothing is open between two calls."""


def consumer_names(folder: str) -> list[str]:
    """Return the names of the consumers in a state folder, sorted. Raises ConsumerStateError if it cannot be read."""
    place = os.path.join(folder, CONSUMERS_FOLDER)
    try:
        names = os.listdir(place)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConsumerStateError(f"{place}: cannot be listed: {error.strerror}") from error
    stems = {name.removesuffix(_PREVIOUS).removesuffix(_SUFFIX) for name in names if _SUFFIX in name}
    return sorted(stem for stem in stems if is_consumer_name(stem))


def _read(path: str) -> ConsumerPosition:
    """Raises OSError and ValueError."""
    return build(ConsumerPosition, read_checked(path))
