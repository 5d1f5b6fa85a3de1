"""Signs checkpoints with Ed25519 keys, and checks their signatures. The keys are PEM files, as openssl makes them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from litelog.errors import ConfigError, CorruptObjectError
from litelog.installation import install_command
from litelog.objects.checkpoint import LIMITS, decode, signed_text
from litelog.system.files import read_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from litelog.objects.checkpoint import Checkpoint

MAX_KEY_BYTES = 64 << 10
"""The most bytes of a key's file."""


def new_key() -> tuple[bytes, bytes]:
    """Make a key: (private, public), as the contents of PEM files. Raises ConfigError if the extra is not installed."""
    serialization, kinds = _library()
    key = kinds["private"].generate()
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    return private, public_pem(key)


def public_pem(key: Any) -> bytes:
    """The public part of a private key as the content of a PEM file."""
    serialization, _ = _library()
    shape = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, shape)  # type: ignore[no-any-return]


class SigningKey:
    """A private Ed25519 key."""

    def __init__(self, path: str) -> None:
        """Read the key from a PEM file (PKCS #8, not encrypted). Raises ConfigError."""
        found = _load(path, "load_pem_private_key", "private", password=None)
        self._key = found
        self.public = found.public_key().public_bytes_raw().hex()
        """The public key, in hex."""

    @property
    def public_pem(self) -> bytes:
        """The public key as the content of a PEM file."""
        return public_pem(self._key)

    def sign(self, checkpoint: Checkpoint, next_key: str | None = None) -> Checkpoint:
        """The checkpoint with this key's signature. ``next_key``: another public key that is to be trusted, in hex."""
        keyed = replace(checkpoint, next_key=next_key, key=self.public, signature=None)
        return replace(keyed, signature=self._key.sign(signed_text(keyed)).hex())


def read_trusted_keys(paths: Sequence[str]) -> list[str]:
    """Read the public keys that are trusted, in hex.

    Args:
        paths: PEM files with a public key, and checkpoints that name another key of a signer. A checkpoint counts if a
            key of a file before it has signed it.

    Raises:
        ConfigError: A file cannot be read, or is neither; or a checkpoint names no other key.
        CorruptObjectError: A checkpoint is damaged, or no key before it has signed it.
    """
    trusted: list[str] = []
    for path in paths:
        body = _read(path, LIMITS.size)
        if not body.startswith(b"{"):
            trusted.append(read_trusted_key(path))
            continue
        checkpoint = decode(path, body)
        require_signed(path, checkpoint, trusted)
        if checkpoint.next_key is None:
            raise ConfigError(f"{path}: is a checkpoint that names no other key")
        trusted.append(checkpoint.next_key)
    return trusted


def read_trusted_key(path: str) -> str:
    """Read a public Ed25519 key from a PEM file. Returns it in hex. Raises ConfigError."""
    return _load(path, "load_pem_public_key", "public").public_bytes_raw().hex()  # type: ignore[no-any-return]


def require_signed(name: str, checkpoint: Checkpoint, trusted: Iterable[str]) -> None:
    """Raise CorruptObjectError unless one of the ``trusted`` keys has signed a checkpoint. ``name``: its file."""
    if checkpoint.key is None or checkpoint.signature is None:
        raise CorruptObjectError(name, "is not signed")
    if checkpoint.key not in trusted:
        raise CorruptObjectError(name, f"is signed with the key {checkpoint.key}, which is not trusted")
    if not has_signature(checkpoint):
        raise CorruptObjectError(name, "has a signature that is not of its key")


def has_signature(checkpoint: Checkpoint) -> bool:
    """Whether the key that a checkpoint states has signed it. Raises ConfigError if the extra is not installed."""
    _library()
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    if checkpoint.key is None or checkpoint.signature is None:
        return False
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(checkpoint.key))
        public.verify(bytes.fromhex(checkpoint.signature), signed_text(checkpoint))
    except (InvalidSignature, ValueError):
        return False
    return True


def _load(path: str, function: str, kind: str, **options: Any) -> Any:
    serialization, kinds = _library()
    try:
        found = getattr(serialization, function)(_read(path, MAX_KEY_BYTES), **options)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{path}: is not a {kind} key as PEM, without a passphrase") from error
    except Exception as error:
        if type(error).__name__ != "UnsupportedAlgorithm":
            raise
        raise ConfigError(f"{path}: is not an Ed25519 key") from error
    if not isinstance(found, kinds[kind]):
        raise ConfigError(f"{path}: is not an Ed25519 key")
    return found


def _read(path: str, limit: int) -> bytes:
    try:
        return read_regular(path, limit)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read as a key: {error.strerror}") from error


def _library() -> tuple[Any, dict[str, Any]]:
    """The module that loads keys, and the classes of keys. Raises ConfigError if the extra is not installed."""
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415
    except ImportError:
        command = install_command("encryption")
        raise ConfigError(f"signatures need a package that is missing; run: {command}") from None
    return serialization, {"private": ed25519.Ed25519PrivateKey, "public": ed25519.Ed25519PublicKey}
