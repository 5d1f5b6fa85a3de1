"""Replicas with encrypted generations, and those who may read them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyrage import x25519

from litelog.encryption.identities import Identities, new_identity
from litelog.encryption.keys import GenerationKey
from litelog.encryption.recipients import Recipients
from litelog.objects import claim as claims
from litelog.objects.claim import Claim, Encryption, Relation
from litelog.objects.layout import Fencing
from litelog.objects.position import new_generation
from litelog.stores.encrypted_store import EncryptedStore, IdentityKeys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.stores.object_store import ByteRange, ObjectInfo, ObjectStore

LOG = "6d2f7a9c41d84b0fb2b7c1a5e09d3f84"
SECRET = bytes(range(32))


def make_identity() -> tuple[str, Recipients, Identities]:
    """A secret key, its recipient, and the identity of who holds it."""
    secret, public = new_identity()
    return secret, Recipients((public,)), Identities("key.txt", (x25519.Identity.from_str(secret),))


def write_identity(path: Path, secret: str) -> str:
    path.write_text(f"# made by a test\n{secret}\n")
    return str(path)


def encrypted_claim(
    epoch: int,
    recipients: Recipients | None,
    log: str = LOG,
    number: int = 0xC0FFEE,
    fencing: Fencing = Fencing.REQUIRED,
) -> Claim:
    """A claim of a generation that is encrypted for ``recipients``; None: not encrypted."""
    name = new_generation(epoch, number)
    claim = Claim(log, "lines", "0f" * 16, "here", name, 0, Relation.FIRST, 0, fencing=fencing)
    return claim if recipients is None else encrypt_claim(claim, recipients)


def encrypt_claim(claim: Claim, recipients: Recipients) -> Claim:
    """The claim as it would be if its generation had a key of these builders."""
    log, name = claim.log, claim.generation
    key = GenerationKey.derive(SECRET, log, name)
    encryption = Encryption(recipients.names, recipients.wrap(key.secret))
    mac = key.authenticate(claims.authenticated_text(replace(claim, encryption=encryption)))
    return replace(claim, encryption=replace(encryption, mac=mac))


def put_claim(store: ObjectStore, claim: Claim) -> Claim:
    store.put(claim.key, [claims.encode(claim)])
    return claim


class GenerationFolder:
    """A store of the objects of one encrypted generation, by the rest of their keys."""

    enforces_create_only = True

    def __init__(self, inner: ObjectStore, epoch: int = 1, log: str = LOG) -> None:
        _, recipients, identities = make_identity()
        self.claim = put_claim(inner, encrypted_claim(epoch, recipients, log))
        self.inner = inner
        self.store = EncryptedStore(inner, IdentityKeys(identities))
        self.url = inner.url
        self.root = f"generations/{self.claim.generation}/"

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        self.store.put(self.root + key, body, create_only=create_only)

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        return self.store.open(self.root + key, byte_range)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        after = None if start_after is None else self.root + start_after
        for info in self.store.list(self.root + prefix, after):
            yield replace(info, key=info.key.removeprefix(self.root))

    def delete(self, keys: Iterable[str]) -> None:
        self.store.delete(self.root + key for key in keys)

    def close(self) -> None:
        self.store.close()
