"""Reads the bearer token: a secret in a separate file, which is read again after a change."""

from __future__ import annotations

import hmac
import logging
import os
import threading

from litelog.errors import ConfigError
from litelog.events import fields
from litelog.system.tokens import read_token

_logger = logging.getLogger(__name__)


class TokenFile:
    """The token of permitted clients. Any thread may use it."""

    def __init__(self, path: str) -> None:
        """Raises ConfigError if the file cannot be used."""
        self._path = path
        self._lock = threading.Lock()
        self._failing = False
        self._signature = _sign(path)
        self._token: bytes | None = read_token(path).encode()

    def accepts(self, given: str) -> bool:
        """Whether ``given`` is the token, compared in constant time. False while the file cannot be read."""
        with self._lock:
            self._refresh()
            token = self._token
        return token is not None and hmac.compare_digest(given.encode(), token)

    def _refresh(self) -> None:
        try:
            signature = _sign(self._path)
            if signature == self._signature and self._token is not None:
                return
            self._token, self._signature = read_token(self._path).encode(), signature
            self._failing = False
        except ConfigError as error:
            self._token = None
            if not self._failing:
                self._failing = True
                _logger.error("%s; no token is accepted until then", error, extra=fields("token-refused"))


def _sign(path: str) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except OSError as error:
        raise ConfigError(f"token-file {path}: cannot be read: {error.strerror}") from error
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode)
