"""The libraries that encrypt, which the extra ``encryption`` installs. They are imported when they are used."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from litelog.errors import ConfigError
from litelog.installation import install_command


class Cryptography(NamedTuple):
    """The parts of the library ``cryptography`` that litelog uses."""

    aead: Any
    invalid_tag: type[Exception]
    hkdf: Any
    scrypt: Any
    sha256: Any


@cache
def import_cryptography() -> Cryptography:
    """The library for the objects. Raises ConfigError if it is not installed."""
    try:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415
        from cryptography.hazmat.primitives.ciphers import aead  # noqa: PLC0415
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415
        from cryptography.hazmat.primitives.kdf.scrypt import Scrypt  # noqa: PLC0415
    except ImportError as error:
        raise _missing() from error
    return Cryptography(aead, InvalidTag, HKDF, Scrypt, SHA256)


@cache
def import_pyrage() -> Any:
    """The library for age files. Raises ConfigError if it is not installed."""
    try:
        import pyrage  # noqa: PLC0415
        import pyrage.passphrase  # noqa: PLC0415
    except ImportError as error:
        raise _missing() from error
    return pyrage


def _missing() -> ConfigError:
    return ConfigError(f"an encrypted replica needs packages that are missing; run: {install_command('encryption')}")
