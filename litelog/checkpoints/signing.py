"""Signs checkpoints with Ed25519 keys, and checks their signatures. The keys are PEM files, as openssl makes them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from litelog.errors import ConfigError, CorruptObjectError
from litelog.installation import install_command
from litelog.objects.checkpoint import signed_text
from litelog.system.files import read_regular

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litelog.objects.checkpoint import Checkpoint

MAX_KEY_BYTES = 64 << 10
"""The most bytes of a key's file."""


class SigningKey:
    """A private Ed25519 key."""

    def __init__(self, path: str) -> None:
        """Read the key from a PEM file (PKCS #8, not encrypted). Raises ConfigError."""
        found = _load(path, "load_pem_private_key", "private", password=None)
        self._key = found
        self.public = found.public_key().public_bytes_raw().hex()
        """The public key, in hex."""

    def sign(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint with this key's signature."""
        keyed = replace(checkpoint, key=self.public, signature=None)
        return replace(keyed, signature=self._key.sign(signed_text(keyed)).hex())


def read_trusted_key(path: str) -> str:
    """Read a public Ed25519 key from a PEM file. Returns it in hex. Raises ConfigError."""
    return _load(path, "load_pem_public_key", "public").public_bytes_raw().hex()  # type: ignore[no-any-return]


def require_signed(name: str, checkpoint: Checkpoint, trusted: Iterable[str]) -> None:
    """Raise CorruptObjectError unless one of the ``trusted`` keys has signed a checkpoint. ``name``: its file."""
    _library()
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    if checkpoint.key is None or checkpoint.signature is None:
        raise CorruptObjectError(name, "is not signed")
    if checkpoint.key not in trusted:
        raise CorruptObjectError(name, f"is signed with the key {checkpoint.key}, which is not trusted")
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(checkpoint.key))
        public.verify(bytes.fromhex(checkpoint.signature), signed_text(checkpoint))
    except (InvalidSignature, ValueError):
        raise CorruptObjectError(name, "has a signature that is not of its key") from None


def _load(path: str, function: str, kind: str, **options: Any) -> Any:
    serialization, kinds = _library()
    try:
        found = getattr(serialization, function)(read_regular(path, MAX_KEY_BYTES), **options)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read as a key: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{path}: is not a {kind} key as PEM, without a passphrase") from error
    except Exception as error:
        if type(error).__name__ != "UnsupportedAlgorithm":
            raise
        raise ConfigError(f"{path}: is not an Ed25519 key") from error
    if not isinstance(found, kinds[kind]):
        raise ConfigError(f"{path}: is not an Ed25519 key")
    return found


def _library() -> tuple[Any, dict[str, Any]]:
    """The module that loads keys, and the classes of keys. Raises ConfigError if the extra is not installed."""
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415
    except ImportError:
        command = install_command("encryption")
        raise ConfigError(f"signatures need a package that is missing; run: {command}") from None
    return serialization, {"private": ed25519.Ed25519PrivateKey, "public": ed25519.Ed25519PublicKey}
