"""Requests to a running daemon, by files in its state folder: write a snapshot now.

``requests/TOKEN.request`` names the state folder of a log and replica. The daemon removes it, and writes
``requests/TOKEN.answer`` when it is done.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from litelog.codec.decoding import JsonLimits
from litelog.dataclass import dataclass
from litelog.shipping.state import StateError
from litelog.system.private_files import (
    make_private,
    make_private_root,
    read_json,
    temporary_name,
    write_private,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = "requests"
VERDICTS_FILE = "verdicts.json"
"""The verdicts of the last day. The HTTP service keeps them in the state folder."""
VERDICTS_LOCK = "verdicts.lock"
_REQUEST, _ANSWER = ".request", ".answer"
_LOG_STATE = re.compile(r".*-[0-9a-f]{16}", re.DOTALL)

LIMITS = JsonLimits(size=64 << 10, values=100, texts=100, containers=10, depth=2)
"""The limits of such a file."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a request."""

    snapshot: str | None
    """The newest snapshot's key."""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a snapshot of one log and replica."""

    token: str
    folder: str
    """The state folder of the log and replica, relative to the daemon's."""


class Requests:
    """The requests in one state folder, for both sides."""

    def __init__(self, state_dir: str) -> None:
        self._state_dir = state_dir
        self.folder = os.path.join(state_dir, FOLDER)
        self._seen: int | None = None

    def prepare(self) -> None:
        """Create the folder, for a daemon. Raises StateError."""
        try:
            make_private_root(self._state_dir, _is_state)
            make_private(self.folder)
        except OSError as error:
            reason = f"cannot be created ({error.strerror}); choose another --state-dir"
            raise StateError(f"{self.folder}: {reason}") from error

    def take(self) -> Iterator[Request]:
        """Yield the existing requests, each once. If nothing has changed, makes one system call."""
        try:
            changed = os.stat(self.folder).st_mtime_ns
            if changed == self._seen:
                return
            names = sorted(name for name in os.listdir(self.folder) if name.endswith(_REQUEST))
        except OSError:
            return
        self._seen = changed if not names else None  # more requests may have arrived within the same tick
        for name in names:
            path = os.path.join(self.folder, name)
            request = _read(path)
            with suppress(OSError):
                os.unlink(path)
            if request is not None and isinstance(folder := request.get("folder"), str):
                yield Request(name.removesuffix(_REQUEST), folder)

    def answer(self, request: Request, answer: Answer) -> None:
        """Answer a request. The process that made it may be gone."""
        with suppress(StateError):
            self._write(request.token + _ANSWER, asdict(answer))

    def ask(self, request: Request) -> None:
        """Write a request. Raises StateError."""
        self._write(request.token + _REQUEST, {"folder": request.folder})

    def find_answer(self, token: str) -> Answer | None:
        """Return the answer to a request, and remove it; None while there is none."""
        path = os.path.join(self.folder, token + _ANSWER)
        found = _read(path)
        if found is None:
            return None
        os.unlink(path)
        snapshot, error = found.get("snapshot"), found.get("error")
        return Answer(snapshot if isinstance(snapshot, str) else None, error if isinstance(error, str) else None)

    def withdraw(self, token: str) -> bool:
        """Withdraw a request. Return whether the daemon had not taken it yet."""
        try:
            os.unlink(os.path.join(self.folder, token + _REQUEST))
        except FileNotFoundError:
            return False
        return True

    def _write(self, name: str, fields: dict[str, str | None]) -> None:
        path = os.path.join(self.folder, name)
        try:
            write_private(path, json.dumps(fields).encode(), durable=False)
        except OSError as error:
            raise StateError(f"{path}: cannot be written: {error.strerror}") from error


def _is_state(name: str) -> bool:
    """Whether an entry with that name in a state folder is litelog's."""
    ours = (FOLDER, VERDICTS_FILE, VERDICTS_LOCK, temporary_name(VERDICTS_FILE))
    return name in ours or _LOG_STATE.fullmatch(name) is not None


def _read(path: str) -> dict[str, object] | None:
    try:
        found = read_json(path, LIMITS)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
