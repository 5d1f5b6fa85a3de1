"""The store of a replica with encrypted generations: it encrypts what is put there, and decrypts what is read.

Specified in litelog/encryption/README.md#encrypted-objects.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from litelog.encryption.chunks import CHUNK_BYTES, MAGIC, RECORD_BYTES, decrypted_size, locate
from litelog.encryption.keys import GenerationKey
from litelog.errors import CorruptObjectError, DowngradeError, NotFoundError, StoreError, WrongIdentityError
from litelog.objects import claim as claims
from litelog.objects import layout
from litelog.objects.position import epoch_of
from litelog.stores.capabilities import kept_versions
from litelog.stores.object_store import (
    ByteRange,
    ByteStream,
    ObjectInfo,
    ObjectReplicaClient,
    PassesWaiting,
    read_bounded,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.encryption.chunks import Decrypter, EncryptedRange, ObjectCipher
    from litelog.encryption.identities import Identities
    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.stores.capabilities import VersionListing
    from litelog.stores.decryption import GenerationKeys
    from litelog.stores.object_store import ObjectStore

READ_BYTES = 64 * RECORD_BYTES
"""The most bytes that one read of an encrypted object requests."""


class ClaimKeys(Protocol):
    """Finds the keys of encrypted generations."""

    def find(self, claim: Claim) -> GenerationKey:
        """The key of the claim's generation, which is encrypted. Raises WrongIdentityError, CorruptObjectError."""

    def require_plain(self, claim: Claim) -> None:
        """Raise StoreError if the claim says that its generation is not encrypted, and that is known to be wrong."""


class IdentityKeys:
    """The keys that identities find."""

    def __init__(self, identities: Identities) -> None:
        self._identities = identities

    def find(self, claim: Claim) -> GenerationKey:
        assert claim.encryption is not None
        secret = self._identities.unwrap(claim.encryption.keys)
        if secret is None:
            raise WrongIdentityError(claim.key, self._identities.path, claim.encryption.recipients)
        key = GenerationKey(secret)
        if key.authenticate(claims.authenticated_text(claim)) != claim.encryption.mac:
            raise CorruptObjectError(claim.key, "its mac is wrong: somebody without the generation's key changed it")
        return key

    def require_plain(self, claim: Claim) -> None:
        """Do nothing: a reader knows only what the claims say."""


class _FoundGeneration(NamedTuple):
    """The encryption of a generation, as its claim states it."""

    log: str
    """The log's id."""
    key: GenerationKey | None
    """None if it is not encrypted."""


class EncryptedStore:
    """An ObjectStore over another one. The claim of each generation says whether its objects are encrypted.

    Claims are stored as they are. Sizes in listings and ranges are those of the decrypted objects. To find whether a
    generation is encrypted, the store reads its claim, once.
    """

    def __init__(self, inner: ObjectStore, keys: ClaimKeys, *, refuses_downgrade: bool = True) -> None:
        """``refuses_downgrade``: refuse unencrypted generations that follow an encrypted one."""
        self._inner = inner
        self._keys = keys
        self._refuses_downgrade = refuses_downgrade
        self._copied: EncryptedStore | None = None
        self._found: dict[str, _FoundGeneration] = {}
        self._lock = threading.Lock()
        self.url = inner.url
        self.enforces_create_only = inner.enforces_create_only

    def for_copy(self, inner: ObjectStore) -> EncryptedStore:
        """The store of a copy in ``inner``. What the claims here say counts there as well: a claim may come there later
        than its generation's objects, and somebody may have put another one."""
        copy = EncryptedStore(inner, self._keys, refuses_downgrade=self._refuses_downgrade)
        copy._copied = self
        return copy

    @property
    def awaiting(self) -> ObjectStore:
        return self._inner.awaiting if isinstance(self._inner, PassesWaiting) else self._inner

    @property
    def generation_keys(self) -> GenerationKeys:
        return self

    def require_key(self, generation: Generation) -> None:
        self.find(generation)

    @property
    def kept_versions(self) -> VersionListing | None:
        return kept_versions(self._inner)

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        cipher = self._cipher(key, is_put=True)
        self._inner.put(key, body if cipher is None else cipher.encrypt(body), create_only=create_only)

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        cipher = self._cipher(key)
        if cipher is None:
            return self._inner.open(key, byte_range)
        start, length = (0, None) if byte_range is None else (byte_range.start, byte_range.length)
        place = locate(start, length)
        whole = byte_range is None
        opened = self._inner.open(key, None if whole else ByteRange(place.start, place.length))
        if whole and opened.read(len(MAGIC)) != MAGIC:
            opened.close()
            raise CorruptObjectError(key, "is not encrypted, though its generation is")
        stream = _DecryptedStream(key, opened, cipher.decrypter(place.chunk), place, length)
        return cast("BinaryIO", stream)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        closed: set[Generation | None] = set()
        for info in self._inner.list(prefix, start_after):
            generation, size = layout.parse_generation(info.key), info.size
            if generation not in closed:
                try:
                    is_encrypted = self._cipher(info.key) is not None
                except (CorruptObjectError, WrongIdentityError):  # a read of its objects says so, if there is one
                    closed.add(generation)
                    is_encrypted = True
            if generation in closed or is_encrypted:
                with suppress(CorruptObjectError):  # a read of the object says that it cannot have that size
                    size = decrypted_size(info.key, info.size)
            yield ObjectInfo(info.key, size)

    def delete(self, keys: Iterable[str]) -> None:
        self._inner.delete(keys)

    def close(self) -> None:
        self._inner.close()

    def _cipher(self, key: str, *, is_put: bool = False) -> ObjectCipher | None:
        """The cipher of an object; None if it is not encrypted. ``is_put``: its generation must have a claim."""
        generation = layout.parse_generation(key)
        if generation is None:
            return None
        found = self.find(generation)
        if found is None and is_put:
            raise StoreError("put", key, f"the claim of generation {generation} is not there")
        return None if found is None or found.key is None else found.key.cipher(found.log, key)

    def find(self, generation: Generation) -> _FoundGeneration | None:
        """Find what a generation's claim says of its encryption; None if it has no claim."""
        with self._lock:
            found = self._found.get(generation)
            if found is None and self._copied is not None:
                found = self._copied.find(generation)
            if found is None and (claim := self._read_claim(generation)) is not None:
                found = _FoundGeneration(claim.log, self._find_key(claim))
            if found is not None:
                self._found[generation] = found
            return found

    def _find_key(self, claim: Claim) -> GenerationKey | None:
        if claim.encryption is not None:
            return self._keys.find(claim)
        self._keys.require_plain(claim)
        if self._refuses_downgrade and (before := self._find_encrypted_before(claim)) is not None:
            advice = "to read it anyway, leave out the identity and name it with --generation"
            raise DowngradeError(claim.key, before.key, advice)
        return None

    def _read_claim(self, generation: Generation) -> Claim | None:
        """The claim of a generation; None if it has none that is sound, which all readers check themselves."""
        for isolated in (None, generation):
            try:
                claim = self._decode(layout.claim_key(epoch_of(generation), isolated))
            except NotFoundError:
                continue
            if claim.generation == generation:
                return claim
        return None

    def _find_encrypted_before(self, claim: Claim) -> Claim | None:
        """The newest claim of an encrypted generation that is older than ``claim``, or of its epoch; None if there is
        none. Claims of one epoch have no order: the writer of each chooses its name."""
        for name in reversed(ObjectReplicaClient(self._inner).claims()):
            if name.epoch > claim.epoch or name == claim.name:
                continue
            found = self._decode(layout.claim_key(*name))
            if found.encryption is not None:
                return found
        return None

    def _decode(self, key: str) -> Claim:
        return claims.decode(key, read_bounded(self._inner, key, limit=claims.LIMITS.size))


class _DecryptedStream(ByteStream):
    def __init__(
        self, key: str, inner: BinaryIO, decrypter: Decrypter, place: EncryptedRange, length: int | None
    ) -> None:
        self._key = key
        self._inner = inner
        self._decrypter = decrypter
        self._skip = place.skip
        self._begins_later = place.chunk > 0
        """Whether the range begins with a later chunk than the first, which each object has, and none was read yet."""
        self._unread = place.length
        """Encrypted bytes of the range that were not read; None: all up to the object's end."""
        self._left = length
        """Decrypted bytes of the range that were not returned; None: all up to the object's end."""
        self._held: Buffer = b""
        """Encrypted bytes that were read and not decrypted."""
        self._ready: deque[memoryview] = deque()
        """Decrypted bytes that were not returned."""

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = self._left if size is None or size < 0 else size
        if self._left is not None:
            wanted = min(self._left, wanted if wanted is not None else self._left)
        pieces: list[memoryview] = []
        while wanted is None or wanted:
            if not self._ready and not self._fill(wanted):
                break
            piece = self._ready.popleft()
            if wanted is not None and len(piece) > wanted:
                self._ready.appendleft(piece[wanted:])
                piece = piece[:wanted]
            pieces.append(piece)
            if wanted is not None:
                wanted -= len(piece)
        content = b"".join(pieces)
        if self._left is not None:
            self._left -= len(content)
        return content

    def _fill(self, wanted: int | None) -> bool:
        """Decrypt more; False at the end."""
        data = memoryview(self._held)
        most = READ_BYTES if wanted is None else -(-(self._skip + wanted) // CHUNK_BYTES) * RECORD_BYTES
        most = min(READ_BYTES, most) + len(MAGIC)
        while not self._ready and not self._decrypter.is_done:
            asked = most - len(data) if self._unread is None else min(most - len(data), self._unread)
            read = self._inner.read(asked) if asked else b""
            if self._unread is not None:
                self._unread -= len(read)
            data = memoryview(b"".join((data, read)) if data else read)
            if self._is_at_end(data) and (len(read) < asked or not asked):
                break
            data = self._decrypt(data, ends=len(read) < asked)
        self._held = data
        return bool(self._ready)

    def _is_at_end(self, data: memoryview) -> bool:
        """Whether ``data``, the last bytes of the object in the range, are not a chunk: all of it was decrypted, or the
        range begins after the last chunk."""
        return data == MAGIC or (self._begins_later and MAGIC.endswith(data))

    def _decrypt(self, data: memoryview, *, ends: bool) -> memoryview:
        """Decrypt the whole chunks in ``data``. Return what is left of it. ``ends``: the object ends with it."""
        at = 0
        while len(data) - at >= RECORD_BYTES + len(MAGIC) and not self._decrypter.is_done:
            end = at + RECORD_BYTES
            self._add(self._decrypter.decrypt(data[at:end], last=data[end : end + len(MAGIC)] == MAGIC))
            at = end
        if ends and not self._decrypter.is_done:
            if data[-len(MAGIC) :] != MAGIC:
                raise CorruptObjectError(self._key, "is cut off, or is not encrypted, though its generation is")
            self._add(self._decrypter.decrypt(data[at : -len(MAGIC)], last=True))
            at = len(data) - len(MAGIC)
        if self._decrypter.is_done and (len(data) - at != len(MAGIC) or (self._unread != 0 and self._inner.read(1))):
            raise CorruptObjectError(self._key, "bytes follow its last encrypted chunk")
        return data[at:]

    def _add(self, content: bytes) -> None:
        """Let the content of a chunk be read, without what lies before the range."""
        self._begins_later = False
        if len(content) > self._skip:
            self._ready.append(memoryview(content)[self._skip :])
        self._skip = max(0, self._skip - len(content))

    def close(self) -> None:
        self._inner.close()
        super().close()
