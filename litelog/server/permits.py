"""The permits of tokens: the rights of a request, and how a stream ends when its token is revoked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from litelog.config.access import ALL
from litelog.dataclass import dataclass
from litelog.errors import LogError
from litelog.server.token_file import TokenFile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request

    from litelog.config.access import TokenConfig
    from litelog.live.served_log import LiveReader

STATUS, READ, CONSUME, SYNC = "status", "read", "consume", "sync"

PERMIT = "litelog.permit"
"""Key in a request's scope: its Permit. It is missing if the daemon needs no token."""

CHECK_SECONDS = 1.0
"""How many seconds pass between two looks at the tokens of streams."""


class RevokedError(LogError):
    """The token of a stream is no longer accepted."""


@dataclass(frozen=True, slots=True)
class Permit:
    """The permit of a request's token."""

    file: TokenFile
    given: str
    """The token."""
    rights: frozenset[str]
    logs: str | frozenset[str] = ALL
    """The served logs that ``READ`` is about."""

    def holds(self) -> bool:
        """Whether the token is still accepted."""
        return self.file.accepts(self.given)

    def reads(self, name: str) -> bool:
        """Whether the served log may be read."""
        return READ in self.rights and (self.logs == ALL or name in self.logs)

    def require(self) -> None:
        """Raise RevokedError unless the token is still accepted."""
        if not self.holds():
            raise RevokedError("the token was revoked: it is no longer in the daemon's token-file or tokens")


class Tokens:
    """The tokens of a daemon. Any thread may use it."""

    def __init__(self, token_file: str | None, others: Iterable[TokenConfig] = ()) -> None:
        """``token_file``: the token that permits everything. Raises ConfigError if a file cannot be used."""
        everything = frozenset((STATUS, READ, CONSUME, SYNC))
        self._files: list[tuple[TokenFile, frozenset[str], str | frozenset[str]]] = []
        if token_file is not None:
            self._files.append((TokenFile(token_file), everything, ALL))
        for each in others:
            logs = ALL if each.logs == ALL else frozenset(each.logs)
            self._files.append((TokenFile(each.file), frozenset(each.rights), logs))

    def find(self, given: str) -> Permit | None:
        """Return what a token permits: of two files with one token, the first counts. None if no file has it."""
        permits = [Permit(file, given, rights, logs) for file, rights, logs in self._files if file.accepts(given)]
        return permits[0] if permits else None


def permit_of(request: Request) -> Permit | None:
    """The permit of the request's token; None if the daemon needs no token."""
    return request.scope.get(PERMIT)


class StreamPermits:
    """Ends the streams whose token is revoked. For one event loop. It costs nothing without such streams."""

    def __init__(self) -> None:
        self._streams: dict[LiveReader, Permit] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, reader: LiveReader, permit: Permit | None) -> None:
        """End the reader's stream when its token is revoked."""
        if permit is not None:
            self._streams[reader] = permit
            self._expect()

    def forget(self, reader: LiveReader) -> None:
        """The stream has ended."""
        self._streams.pop(reader, None)

    def _expect(self) -> None:
        if self._timer is None and self._streams:
            self._timer = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check)

    def _check(self) -> None:
        self._timer = None
        failures: dict[Permit, RevokedError | None] = {}
        for reader, permit in list(self._streams.items()):
            if permit not in failures:
                failures[permit] = _find_failure(permit)
            failure = failures[permit]
            if failure is not None:
                self.forget(reader)
                reader.end(failure)
        self._expect()


def _find_failure(permit: Permit) -> RevokedError | None:
    try:
        permit.require()
    except RevokedError as error:
        return error
    return None
