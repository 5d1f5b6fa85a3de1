"""The bearer token: a secret in a file of its own, which is read again after a change."""

from __future__ import annotations

import hmac
import logging
import os
import stat
import threading

from litelog.errors import ConfigError
from litelog.events import fields
from litelog.system.files import open_regular

MIN_CHARACTERS = 16
MAX_BYTES = 4096

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


def read_token(path: str) -> str:
    """Read the file's first line. Raises ConfigError if it is not a token, or if other users may read or change the
    file. The error does not show the line."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(MAX_BYTES)
    except OSError as error:
        raise ConfigError(f"token-file {path}: cannot be read: {error.strerror}") from error
    if mode & (stat.S_IWGRP | stat.S_IRWXO):
        raise ConfigError(f"token-file {path}: others may read or change it; run: chmod 600 {path}")
    try:
        token = content.decode("ascii").partition("\n")[0].strip()
    except UnicodeDecodeError:
        token = ""
    if len(token) < MIN_CHARACTERS or not token.isprintable() or " " in token:
        raise ConfigError(
            f"token-file {path}: its first line must be a token of at least {MIN_CHARACTERS} ASCII characters, without "
            "spaces; make one with: openssl rand -hex 32"
        )
    return token


def _sign(path: str) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except OSError as error:
        raise ConfigError(f"token-file {path}: cannot be read: {error.strerror}") from error
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode)
