"""The readers of what a daemon writes: public keys, a passphrase, or a command that wraps keys with a service.

Specified in litelog/encryption/README.md#recipients-and-identities.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import field
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.encryption.commands import run_command
from litelog.encryption.libraries import import_pyrage
from litelog.encryption.passphrases import encrypt_for_passphrase
from litelog.errors import ConfigError
from litelog.system.files import read_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

AGE, PASSPHRASE, COMMAND = "age", "passphrase", "command"
"""The kinds of wrapped keys, as claims name them."""

SETTINGS = "settings"
"""The kind of what stands among the wrapped keys, and wraps none: the owner recognises its own settings by it."""

_SECRET = "AGE-SECRET-KEY-"  # noqa: S105 - how secret keys begin
MAX_FILE_BYTES = 1 << 20
_PUBLIC = re.compile(r"age1[0-9a-z]{58,4000}")


@dataclass(frozen=True, slots=True)
class Recipients:
    """The recipients of a replica."""

    public: tuple[str, ...] = ()
    """Public keys of age, ``age1...``, sorted."""
    passphrase: str | None = field(default=None, repr=False)
    command: tuple[str, ...] = field(default=(), repr=False)
    """A command that reads a key from its standard input and writes it, wrapped, to its standard output."""

    @property
    def names(self) -> tuple[str, ...]:
        """The recipients as claims name them: the public keys, and ``passphrase`` and ``command``."""
        kinds = ((PASSPHRASE, self.passphrase is not None), (COMMAND, bool(self.command)))
        return (*self.public, *(name for name, there in kinds if there))

    @property
    def unnamed(self) -> bytes | None:
        """The secret passphrase and command, which ``names`` does not show; None without either."""
        if self.passphrase is None and not self.command:
            return None
        return json.dumps([self.passphrase, self.command]).encode()

    def wrap(self, secret: bytes) -> tuple[str, ...]:
        """``secret`` encrypted for each recipient, as a claim holds it. Raises ConfigError."""
        library = import_pyrage()
        wrapped = []
        if self.public:
            wrapped.append(spell(AGE, library.encrypt(secret, [_parse(library, key, key) for key in self.public])))
        if self.passphrase is not None:
            wrapped.append(spell(PASSPHRASE, encrypt_for_passphrase(secret, self.passphrase)))
        if self.command:
            wrapped.append(spell(COMMAND, run_command(self.command, secret, "wrap-command")))
        return tuple(wrapped)


def read_recipients(
    recipients: Iterable[str], passphrase_file: str | None = None, command: Sequence[str] = ()
) -> Recipients:
    """The recipients that a configuration names.

    Args:
        recipients: Public keys of age, or paths of files with one in each line; ``#`` begins a comment.
        passphrase_file: A file whose first line is a passphrase.
        command: A command that wraps keys, with its arguments.

    Raises:
        ConfigError: There is none, one is not a public key, a file cannot be read, or the command's program is missing.
    """
    library = import_pyrage()
    public: set[str] = set()
    for recipient in recipients:
        is_key = recipient.startswith(("age1", _SECRET))
        for place, key in [(repr(recipient), recipient)] if is_key else _read_keys(recipient):
            _parse(library, place, key)
            public.add(key)
    passphrase = None if passphrase_file is None else read_passphrase(passphrase_file)
    if command and _find_program(command[0]) is None:
        raise ConfigError(f"encryption: wrap-command: {command[0]}: no such program, or it cannot be executed")
    if not (public or passphrase or command):
        raise ConfigError("encryption: names no recipient: write recipients, a passphrase-file or a wrap-command")
    return Recipients(tuple(sorted(public)), passphrase, tuple(command))


def _find_program(name: str) -> str | None:
    from shutil import which  # noqa: PLC0415 - it loads three libraries that compress

    return which(name)


def read_passphrase(path: str) -> str:
    """The first line of a file, without spaces around it, as an identity file states it. Raises ConfigError."""
    lines = read_lines(path)
    passphrase = lines[0].strip() if lines else ""
    if not passphrase:
        raise ConfigError(f"{path}: its first line is empty; it must be the passphrase")
    return passphrase


def read_lines(path: str) -> list[str]:
    """The lines of a small text file. Raises ConfigError."""
    try:
        return read_regular(path, MAX_FILE_BYTES).decode().splitlines()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise ConfigError(f"{path}: is not text") from error


def _read_keys(path: str) -> list[tuple[str, str]]:
    """The keys in a file, each after its place. No message shows a line: it may be a secret in the wrong file."""
    keys = [(f"{path}, line {number},", line.strip()) for number, line in enumerate(read_lines(path), 1)]
    keys = [(place, key) for place, key in keys if key and not key.startswith("#")]
    if not keys:
        raise ConfigError(f"{path}: holds no recipient")
    return keys


def _parse(library: Any, place: str, key: str) -> Any:
    if key.startswith(_SECRET):
        raise ConfigError("encryption: a secret key is given as a recipient: write its public key, age1...")
    try:
        if _PUBLIC.fullmatch(key):
            return library.x25519.Recipient.from_str(key)
    except library.RecipientError:
        pass
    raise ConfigError(f"encryption: {place} is not a public key of age (age1...)")


def spell(kind: str, wrapped: bytes) -> str:
    """An entry among a claim's wrapped keys."""
    return f"{kind}:{base64.b64encode(wrapped).decode()}"
