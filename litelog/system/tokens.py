"""Bearer tokens: secrets in files of their own."""

from __future__ import annotations

import os
import stat

from litelog.errors import ConfigError
from litelog.system.files import open_regular

MIN_CHARACTERS = 16
MAX_BYTES = 4096


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
