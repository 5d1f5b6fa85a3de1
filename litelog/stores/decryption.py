"""An optional capability of a store: it decrypts what it reads, if it has the key of a generation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from litelog.errors import CorruptObjectError, EncryptedError

if TYPE_CHECKING:
    from litelog.errors import LitelogError
    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation

EXCHANGED_CLAIM = "is encrypted, though the claim of its generation says that it is not"
"""What is wrong with an encrypted object of a generation that is not encrypted."""


class GenerationKeys(Protocol):
    """Finds the keys of encrypted generations."""

    def require_key(self, generation: Generation) -> None:
        """Raise an error if the objects of a generation cannot be decrypted. At most two requests, once.

        Raises:
            WrongIdentityError, DowngradeError: The identities do not read it.
            CorruptObjectError: The generation's claim is damaged, or somebody without the key changed it.
            StoreError: A request failed.
        """


@runtime_checkable
class Decrypts(Protocol):
    """An optional capability of a store that decrypts what it reads. Wrappers pass it on."""

    @property
    def generation_keys(self) -> GenerationKeys | None:
        """The keys; None if this store does not decrypt."""


def generation_keys(store: object) -> GenerationKeys | None:
    """The keys with which a store decrypts; None if it does not have the capability."""
    return store.generation_keys if isinstance(store, Decrypts) else None


def require_readable(store: object, claim: Claim) -> None:
    """Raise an error if a store does not decrypt the objects of the claim's generation, and they are encrypted.

    Raises EncryptedError, and what ``GenerationKeys.require_key`` raises.
    """
    keys = generation_keys(store)
    if keys is not None:
        keys.require_key(claim.generation)
    elif claim.encryption is not None:
        raise EncryptedError(claim.key)


def undecrypted(store: object, key: str) -> LitelogError:
    """The error of an object that a store returned as it is, and that is encrypted."""
    return EncryptedError(key) if generation_keys(store) is None else CorruptObjectError(key, EXCHANGED_CLAIM)
