"""How an owner encrypts its generations: which claims state recipients, and from where it gets the keys.

Specified in litelog/shipping/README.md#encryption.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.encryption.keys import KEY_BYTES, GenerationKey, fingerprint, new_secret
from litelog.encryption.recipients import SETTINGS, spell
from litelog.errors import DowngradeError, EncryptedError, StoreError
from litelog.objects import claim as claims
from litelog.objects.claim import Encryption
from litelog.shipping.state import StateError
from litelog.system.files import read_regular
from litelog.system.private_files import write_private

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litelog.encryption.identities import Identities
    from litelog.encryption.recipients import Recipients
    from litelog.objects.claim import Claim

FILE = "encryption-secret"
"""The file, in the state folder of a replica, with the secret from which the keys of its generations are derived."""

HIDDEN_REASON = "the daemon's log says why"
"""Stands for the reason in the claim of an encrypted generation, as the reason may name files."""

PLAIN_ADVICE = "configure its recipients again, or write `encryption: none` to continue without encryption"


class PlainClaims:
    """The claims of an owner whose replica is not encrypted."""

    def __init__(self, *, ends_encryption: bool = False) -> None:
        """``ends_encryption``: the configuration says that no encryption follows an encrypted generation."""
        self._ends = ends_encryption

    def complete(self, claim: Claim, newest: Iterable[Claim]) -> Claim:
        """The claim as it is to be put after the ``newest`` ones. Raises DowngradeError."""
        encrypted = next((before for before in newest if before.encryption is not None), None)
        if encrypted is not None and not self._ends:
            raise DowngradeError(claim.key, encrypted.key, PLAIN_ADVICE)
        return claim

    def find_change(self, claim: Claim) -> str | None:
        """Why a new generation must follow that of ``claim``; None if it can continue. Raises DowngradeError."""
        if claim.encryption is None:
            return None
        if not self._ends:
            raise DowngradeError("the configuration", claim.key, PLAIN_ADVICE)
        return "encryption ends"


class EncryptedClaims:
    """The claims of an owner that encrypts its generations, and the keys of those."""

    def __init__(self, recipients: Recipients, keys: OwnerKeys) -> None:
        self._recipients = recipients
        self._keys = keys

    def complete(self, claim: Claim, newest: Iterable[Claim]) -> Claim:  # noqa: ARG002
        """The claim as it is to be put after the ``newest`` ones: with the generation's key for each recipient, and
        without texts that hold names of files."""
        key = self._keys.derive(claim)
        wrapped = (*self._recipients.wrap(key.secret), *self._settings(claim))
        encryption = Encryption(self._recipients.names, wrapped)
        reason = claim.reason and HIDDEN_REASON
        claim = replace(claim, encryption=encryption, predecessor_file=None, reason=reason)
        mac = key.authenticate(claims.authenticated_text(claim))
        return replace(claim, encryption=replace(encryption, mac=mac))

    def find_change(self, claim: Claim) -> str | None:
        """Why a new generation must follow that of ``claim``, which the state folder names; None if it can continue."""
        if claim.encryption is None:
            return "encryption begins"
        is_own = self._keys.is_own(claim)
        if is_own:
            self._keys.expect(claim)
        if claim.encryption.recipients != self._recipients.names:
            return "the recipients changed"
        if not is_own:
            return "the secret of the generation's key is lost"
        if not set(self._settings(claim)) <= set(claim.encryption.keys):
            return "the passphrase or the wrap-command changed"
        return None

    def _settings(self, claim: Claim) -> tuple[str, ...]:
        unnamed = self._recipients.unnamed
        return () if unnamed is None else (spell(SETTINGS, self._keys.fingerprint(claim, unnamed)),)


class OwnerKeys:
    """The keys of the generations that an owner made, and of those that its identities read."""

    def __init__(self, folder: str, identities: Identities | None = None) -> None:
        """``folder``: the replica's state folder, in which the secret lies."""
        self._path = os.path.join(folder, FILE)
        self._identities = identities
        self._expected: set[str] = set()
        """Generations of this owner that are encrypted with keys of its secret, no matter what the replica says."""

    def derive(self, claim: Claim) -> GenerationKey:
        """The key of a generation that this owner begins. Raises StateError."""
        self.expect(claim)
        return GenerationKey.derive(self._load() or self._make(), claim.log, claim.generation)

    def expect(self, claim: Claim) -> None:
        """From now on, put into the claim's generation only what is encrypted with a key of this owner's secret."""
        self._expected.add(claim.generation)

    def fingerprint(self, claim: Claim, settings: bytes) -> bytes:
        """Compute a digest of ``settings`` of a generation that this owner has begun. No other owner can. Raises
        StateError."""
        return fingerprint(self._load() or self._make(), claim.generation, settings)

    def require_plain(self, claim: Claim) -> None:
        """Raise StoreError if this owner encrypts the generation of a claim that says otherwise."""
        if claim.generation in self._expected:
            raise _changed(claim)

    def is_own(self, claim: Claim) -> bool:
        """Whether the key of an encrypted generation is derived from this owner's secret."""
        return self._find_own(claim) is not None

    def find(self, claim: Claim) -> GenerationKey:
        """The key of an encrypted generation. Raises EncryptedError, WrongIdentityError, CorruptObjectError and
        StateError."""
        own = self._find_own(claim)
        if own is not None:
            return own
        if claim.generation in self._expected:
            raise _changed(claim)
        if self._identities is not None:
            from litelog.stores.encrypted_store import IdentityKeys  # noqa: PLC0415 - few replicas need it

            return IdentityKeys(self._identities).find(claim)
        raise EncryptedError(claim.key)

    def _find_own(self, claim: Claim) -> GenerationKey | None:
        secret = self._load()
        if secret is None or claim.encryption is None:
            return None
        key = GenerationKey.derive(secret, claim.log, claim.generation)
        return key if key.authenticate(claims.authenticated_text(claim)) == claim.encryption.mac else None

    def _load(self) -> bytes | None:
        try:
            secret = read_regular(self._path, KEY_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"{self._path}: cannot be read ({error.strerror or error})") from error
        return secret if len(secret) == KEY_BYTES else None

    def _make(self) -> bytes:
        secret = new_secret()
        try:
            write_private(self._path, secret)
        except OSError as error:
            raise StateError(f"{self._path}: cannot be written ({error.strerror or error})") from error
        return secret


def _changed(claim: Claim) -> StoreError:
    what = "was changed, and does not name the key of this daemon any more: nothing is shipped until the claim is back"
    return StoreError("read", claim.key, what, retryable=False)
