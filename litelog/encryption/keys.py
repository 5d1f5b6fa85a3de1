"""Derives the keys of a generation: its own key, the keys of its objects, and the key that authenticates its claim.

Specified in litelog/encryption/README.md#keys.
"""

from __future__ import annotations

import hmac
import os
from dataclasses import field
from hashlib import sha256

from litelog.dataclass import dataclass
from litelog.encryption.chunks import ObjectCipher
from litelog.encryption.libraries import import_cryptography

KEY_BYTES = 32


def new_secret() -> bytes:
    """A random secret from which an owner derives the keys of its generations."""
    return os.urandom(KEY_BYTES)


@dataclass(frozen=True, slots=True)
class GenerationKey:
    """The secret key of one generation."""

    secret: bytes = field(repr=False)
    """32 bytes: what the claim holds for each recipient, encrypted."""

    @classmethod
    def derive(cls, secret: bytes, log: str, generation: str) -> GenerationKey:
        """The key that an owner with ``secret`` uses for a generation of the log with that id."""
        return cls(_derive(secret, f"litelog generation\0{log}\0{generation}"))

    def cipher(self, log: str, key: str) -> ObjectCipher:
        """The cipher of the object ``key`` of the log with that id."""
        return ObjectCipher(key, _derive(self.secret, f"litelog object\0{log}\0{key}"))

    def authenticate(self, text: bytes) -> str:
        """The code, in hex, with which a claim of that text proves that its author knew this key."""
        return hmac.new(_derive(self.secret, "litelog claim"), text, sha256).hexdigest()


def fingerprint(secret: bytes, generation: str, settings: bytes) -> bytes:
    """A digest by which only the owner with ``secret`` recognises the settings of its generation."""
    return hmac.new(_derive(secret, f"litelog settings\0{generation}"), settings, sha256).digest()


def _derive(secret: bytes, purpose: str) -> bytes:
    library = import_cryptography()
    return bytes(library.hkdf(library.sha256(), KEY_BYTES, None, purpose.encode()).derive(secret))
