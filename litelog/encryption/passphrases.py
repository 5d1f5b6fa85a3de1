"""Age files for a passphrase, with a fixed amount of work: a library measures how much the machine can do, up to a GiB.

Specified in litelog/encryption/README.md#recipients-and-identities.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
import threading
from hashlib import sha256

from litelog.encryption.libraries import import_cryptography, import_pyrage

WORK_FACTOR = 17
"""The binary logarithm of scrypt's cost: 2^17 x 1 KiB of memory, which is 128 MiB."""

MAX_WORK_FACTOR = 20
"""The highest accepted work factor: 1 GiB."""

_BLOCKS = 8
_VERSION = b"age-encryption.org/v1"
_SALT_BYTES = _FILE_KEY_BYTES = _NONCE_BYTES = 16
_ZERO, _LAST = bytes(12), bytes(11) + b"\1"
"""Nonces: of the file key, and of the only chunk of a payload."""

_HEAD = re.compile(rb"age-encryption\.org/v1\n-> scrypt [A-Za-z0-9+/]{22} ([1-9][0-9]?)\n")
_one_at_a_time = threading.Lock()
"""Held while scrypt has its memory, however many replicas are opened."""


def encrypt_for_passphrase(secret: bytes, passphrase: str) -> bytes:
    """An age file that holds ``secret``, which is less than 64 KiB."""
    library = import_cryptography()
    salt, file_key, nonce = os.urandom(_SALT_BYTES), os.urandom(_FILE_KEY_BYTES), os.urandom(_NONCE_BYTES)
    scrypt = library.scrypt(salt=_VERSION + b"/scrypt" + salt, length=32, n=1 << WORK_FACTOR, r=_BLOCKS, p=1)
    with _one_at_a_time:
        key = scrypt.derive(passphrase.encode())
    wrapped = library.aead.ChaCha20Poly1305(key).encrypt(_ZERO, file_key, None)
    header = b"%s\n-> scrypt %s %d\n%s\n---" % (_VERSION, _base64(salt), WORK_FACTOR, _base64(wrapped))
    mac = hmac.new(_derive(file_key, None, b"header"), header, sha256).digest()
    payload = library.aead.ChaCha20Poly1305(_derive(file_key, nonce, b"payload")).encrypt(_LAST, secret, None)
    return b"%s %s\n%s%s" % (header, _base64(mac), nonce, payload)


def decrypt_with_passphrase(body: bytes, passphrase: str) -> bytes | None:
    """Decrypt an age file with a passphrase; None if the file is for another one, or needs too much memory."""
    head = _HEAD.match(body)
    if head is None or int(head[1]) > MAX_WORK_FACTOR:
        return None
    library = import_pyrage()
    with _one_at_a_time:
        try:
            return bytes(library.passphrase.decrypt(body, passphrase))
        except library.DecryptError:
            return None


def _derive(key: bytes, salt: bytes | None, purpose: bytes) -> bytes:
    library = import_cryptography()
    return bytes(library.hkdf(library.sha256(), 32, salt, purpose).derive(key))


def _base64(value: bytes) -> bytes:
    return base64.b64encode(value).rstrip(b"=")
