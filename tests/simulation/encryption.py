"""Encrypted replicas in the simulation: as in production, but keys are wrapped by spelling them, as that adds no
randomness, and each daemon, reader and person has the identity."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from litelog.config.entries import EncryptionConfig
from litelog.encryption.chunks import MAGIC
from litelog.encryption.identities import Identities
from litelog.encryption.recipients import Recipients
from litelog.objects.layout import CLAIMS, parse_generation
from litelog.stores.encrypted_store import EncryptedStore, IdentityKeys
from replica_clients.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from litelog.stores.object_store import ObjectStore
    from tests.simulation.store import Bucket, Folder

KIND = "simulated"


class SpelledRecipients(Recipients):
    """Recipients for whom a key is wrapped by spelling it."""

    def wrap(self, secret: bytes) -> tuple[str, ...]:
        return (f"{KIND}:{base64.b64encode(secret).decode()}",)


class SpelledIdentities(Identities):
    """What reads such keys."""

    def unwrap(self, wrapped: Iterable[str]) -> bytes | None:
        return next((base64.b64decode(key.partition(":")[2]) for key in wrapped if key.startswith(KIND)), None)


class SpelledEncryption(EncryptionConfig):
    """The configuration of these recipients."""

    def open_recipients(self) -> Recipients:
        return SpelledRecipients(self.recipients)


IDENTITIES = SpelledIdentities("simulated")


def find_identities(_options: Mapping[str, object]) -> Identities:
    """Stands for ``litelog.encryption.identities.find_identities``."""
    return IDENTITIES


def readable(store: ObjectStore) -> ObjectStore:
    """``store``, decrypted."""
    return EncryptedStore(store, IdentityKeys(IDENTITIES))


def reveal(bucket: Bucket | Folder, key: str, body: bytes) -> bytes:
    """The content of an object that was put."""
    if not body.startswith(MAGIC):
        return body
    store, name = MemoryStore(), parse_generation(key) or ""
    store.put(key, [body])
    for claim in bucket.keys():  # noqa: SIM118 - the bucket's method, not a mapping's
        if claim.startswith(f"{CLAIMS}{name[:8]}"):
            store.put(claim, [bucket.connect().get(claim, None)])
    return readable(store).open(key).read()
