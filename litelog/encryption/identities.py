"""Identities: what a person or a program holds to read an encrypted replica.

Specified in litelog/encryption/README.md#recipients-and-identities.
"""

from __future__ import annotations

import base64
import binascii
import os
import shlex
from dataclasses import field
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.encryption.commands import run_command
from litelog.encryption.keys import KEY_BYTES
from litelog.encryption.libraries import import_pyrage
from litelog.encryption.passphrases import decrypt_with_passphrase
from litelog.encryption.recipients import AGE, COMMAND, PASSPHRASE, read_lines
from litelog.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VARIABLE = "LITELOG_IDENTITY"
"""The environment variable that names an identity file."""

CREDENTIAL = "litelog-identity"
"""The name of an identity file among the credentials that systemd gives to a service."""

OPTION = "identity-file"
"""The option of a replica that names an identity file. Every store takes it."""

_PASSPHRASE, _COMMAND = "passphrase ", "unwrap-command "


@dataclass(frozen=True, slots=True)
class Identities:
    """The identities of one file."""

    path: str
    keys: tuple[Any, ...] = field(default=(), repr=False)
    passphrases: tuple[str, ...] = field(default=(), repr=False)
    commands: tuple[tuple[str, ...], ...] = field(default=(), repr=False)

    def unwrap(self, wrapped: Iterable[str]) -> bytes | None:
        """The key that any of these identities finds in a claim's wrapped keys; None if none does.

        Raises ConfigError if a command fails.
        """
        for each in wrapped:
            kind, _, text = each.partition(":")
            try:
                body = base64.b64decode(text, validate=True)
            except binascii.Error:
                continue
            if (found := self._unwrap(kind, body)) is not None:
                return found
        return None

    def _unwrap(self, kind: str, body: bytes) -> bytes | None:
        if kind == COMMAND:
            return self._unwrap_by_command(body)
        library = import_pyrage()
        try:
            if kind == AGE and self.keys:
                return bytes(library.decrypt(body, list(self.keys)))
        except library.DecryptError:
            return None
        for passphrase in self.passphrases if kind == PASSPHRASE else ():
            if (found := decrypt_with_passphrase(body, passphrase)) is not None:
                return found
        return None

    def _unwrap_by_command(self, body: bytes) -> bytes | None:
        """The key that the first of the commands finds that writes one; None without a command.

        Raises ConfigError if there are commands, and none writes a key: the error of the first one.
        """
        failure = None
        for command in self.commands:
            try:
                found = run_command(command, body, "unwrap-command")
                if len(found) == KEY_BYTES:
                    return found
                said = f"wrote {len(found)} bytes, not the {KEY_BYTES} of a key"
                raise ConfigError(f"unwrap-command: {shlex.join(command)} {said}")
            except ConfigError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return None


def new_identity() -> tuple[str, str]:
    """A new secret key of age, and its public key. Raises ConfigError."""
    identity = import_pyrage().x25519.Identity.generate()
    return str(identity), str(identity.to_public())


def find_identities(options: Mapping[str, object]) -> Identities | None:
    """The identities that a replica's options name, or else the environment; None if neither does. Raises ConfigError.

    The option ``identity-file`` comes first, then the variable LITELOG_IDENTITY, then the credential
    ``litelog-identity`` of a systemd service.
    """
    path = find_identity_file(options)
    return None if path is None else read_identities(path)


def find_identity_file(options: Mapping[str, object]) -> str | None:
    """The file that ``find_identities`` reads; None if nothing names one."""
    stated = options.get(OPTION) or os.environ.get(VARIABLE)
    if stated:
        return str(stated)
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    path = os.path.join(folder, CREDENTIAL) if folder else ""
    return path if path and os.path.exists(path) else None


def read_identities(path: str) -> Identities:
    """Read an identity file: a secret key of age, ``passphrase TEXT`` or ``unwrap-command COMMAND`` in each line.

    Empty lines, and lines that begin with ``#``, are skipped. Raises ConfigError.
    """
    library = import_pyrage()
    keys, passphrases, commands = [], [], []
    for number, line in enumerate(map(str.strip, read_lines(path)), 1):
        if not line or line.startswith("#"):
            continue
        if line.startswith("AGE-SECRET-KEY-1"):
            try:
                keys.append(library.x25519.Identity.from_str(line))
            except library.IdentityError as error:
                raise ConfigError(f"{path}: line {number} is not a secret key of age") from error
        elif line.startswith(_PASSPHRASE):
            passphrases.append(line.removeprefix(_PASSPHRASE).strip())
        elif line.startswith(_COMMAND):
            commands.append(_split(path, number, line.removeprefix(_COMMAND)))
        else:
            known = "AGE-SECRET-KEY-1..., passphrase TEXT or unwrap-command COMMAND"
            raise ConfigError(f"{path}: line {number} is not an identity: write {known}")
    if not (keys or passphrases or commands):
        raise ConfigError(f"{path}: holds no identity")
    return Identities(path, tuple(keys), tuple(passphrases), tuple(commands))


def _split(path: str, number: int, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"{path}: line {number}: {error}") from error
