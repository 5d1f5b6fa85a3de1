"""Signs the next checkpoint of a replica, and puts it there. Finds the one before it, also after a loss of the state.

Specified in litelog/shipping/README.md#checkpoints.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.checkpoints.signing import SigningKey, read_trusted_key, require_signed
from litelog.errors import CorruptionError, CorruptObjectError, ExistsError, NotFoundError, StoreError
from litelog.events import fields
from litelog.objects.checkpoint import LIMITS, Checkpoint, encode, fold
from litelog.objects.checkpoint_chain import MOST_SEGMENTS, as_stored, decode_stored, find_fault
from litelog.objects.layout import checkpoint_key
from litelog.objects.position import Position
from litelog.shipping.checkpoint_content import CheckpointContent
from litelog.shipping.claiming import require_newest
from litelog.system.files import read_regular
from litelog.system.private_files import write_private

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litelog.objects.checkpoint_chain import StoredCheckpoint
    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.shipping.archive_state import ArchiveState, ShippedSegment
    from litelog.shipping.checkpoint_content import NextContent
    from litelog.shipping.context import CheckpointPolicy, ReplicaContext
    from litelog.shipping.state import Running

_logger = logging.getLogger(__name__)

FILE = "checkpoint.json"
"""The newest checkpoint that this owner has put or found, in its state folder."""

MOST_TRIED = 16
"""How many taken numbers are tried in a row, and how many checkpoints of the replica are read to find the newest one
that counts."""


class CheckpointWriter:
    """Writes the checkpoints of one generation. Used by one thread at a time."""

    def __init__(self, context: ReplicaContext, policy: CheckpointPolicy, claim: Claim, folder: str) -> None:
        """``folder``: the replica's state folder."""
        self._client = context.client
        self._clock = context.clock
        self._policy = policy
        self._claim = claim
        self._path = os.path.join(folder, FILE)
        self._where = {"log": context.source.folder, "replica": context.client.url}
        self._content = CheckpointContent(context)
        self._looked = False
        self.newest: StoredCheckpoint | None = None
        """The newest checkpoint of the replica; None if it has none, or before the first look."""
        self.written = 0
        """How many checkpoints were put."""

    def note_sealed(self, segments: Iterable[ShippedSegment]) -> None:
        """Remember log segments that a snapshot is about to name. Any thread may call it."""
        self._content.note_sealed(segments)

    def write_next(self, state: Running, archive: ArchiveState) -> bool:
        """Write the next checkpoint, unless it would state nothing new. Return whether it was written: then there may
        be more to state.

        Args:
            state: What is acknowledged.
            archive: What is sealed, read after ``state``.

        Raises:
            ConfigError: A key cannot be read.
            FencedError: Another owner has the replica.
            SourceError: The log no longer holds the bytes that were shipped.
            StoreError, CorruptionError: A request failed, or an object that is needed cannot be read.
            OSError: The state folder cannot be written.
        """
        signer = SigningKey(self._policy.sign_key)
        next_key = None if self._policy.next_key is None else read_trusted_key(self._policy.next_key)
        if not self._looked:
            self.newest, self._looked = self._find_newest(signer), True
        before = None if self.newest is None else self.newest.checkpoint
        content = self._content.find(before, state, archive)
        if not content.segments or not self._is_news(before, content, next_key):
            return False
        require_newest(self._client, self._claim)
        self._put(self._make(state, content), signer, next_key)
        return True

    def _is_news(self, before: Checkpoint | None, content: NextContent, next_key: str | None) -> bool:
        if before is None or content.reason is not None or len(content.segments) > 1:
            return True
        return content.segments[0].length > before.segments[-1].length or before.next_key != next_key

    def _make(self, state: Running, content: NextContent) -> Checkpoint:
        """The checkpoint of ``content``, or of its beginning, if that is more than one takes. It is not signed."""
        taken = content.segments[:MOST_SEGMENTS]
        last, place, newest = taken[-1], state.place, self.newest
        is_end = last.index == place.index or (last.index == place.index - 1 and not place.offset)
        earlier, history = 0, None
        if newest is not None and content.reason is None:
            before = newest.checkpoint
            earlier = before.earlier + len(before.segments) - 1
            history = fold(before.history, before.segments[:-1])
        return Checkpoint(
            log=state.log,
            format=state.claim.format,
            position=Position(state.claim.generation, last.index, last.length),
            time=max(self._clock.now(), 0 if newest is None else newest.checkpoint.time),
            segments=tuple(self._content.state(each) for each in taken),
            next=place.sequence if is_end else None,
            previous=None if newest is None else newest.digest,
            number=1 if newest is None else newest.number + 1,
            earlier=earlier,
            history=history,
            reason=content.reason,
        )

    def _put(self, made: Checkpoint, signer: SigningKey, next_key: str | None) -> None:
        """Put a checkpoint, or adopt the checkpoint that an earlier try left. If anything else has its number, it gets
        a higher one."""
        before, first = self.newest, made.number or 1
        if before is not None and signer.public not in (before.checkpoint.key, before.checkpoint.next_key):
            self._warn("no checkpoint names the key %s: readers must trust it as well", signer.public)
        for number in range(first, first + MOST_TRIED):
            body = encode(signer.sign(replace(made, number=number), next_key))
            key = checkpoint_key(self._claim.generation, number)
            try:
                self._client.write_checkpoint(self._claim.generation, number, [body])
            except ExistsError:
                found = self._read(self._claim.generation, number)
                if found is None or found.checkpoint.key != signer.public or not _continues(before, found):
                    self._warn("something else has the key %s: trying the next number", key)
                    continue
                self._take(found)
            else:
                self.written += 1
                self._take(decode_stored(key, body))
            return
        key = checkpoint_key(self._claim.generation, first)
        raise StoreError("put", key, "its number and the following numbers are taken")

    def _warn(self, message: str, *values: object) -> None:
        extra = fields("checkpoint-unusual", **self._where)
        _logger.warning("%s: " + message, self._where["replica"], *values, extra=extra)

    def _take(self, found: StoredCheckpoint) -> None:
        """Continue from a checkpoint that is durable in the replica. Raises OSError."""
        self.newest = found
        write_private(self._path, encode(found.checkpoint))

    def _find_newest(self, signer: SigningKey) -> StoredCheckpoint | None:
        """The newest checkpoint of the replica; None if it has none. The state folder may have it, if no other
        generation has begun since. Otherwise it is the newest checkpoint that this signer, or a signer that names its
        key, has signed. If the newest ones have none, it is that of the state folder, or of any other signer. Raises
        CorruptObjectError if these are not checkpoints, and more are there."""
        kept = self._read_kept()
        if kept is not None and kept.checkpoint.position.generation == self._claim.generation:
            return kept
        listed = sorted(self._client.checkpoints(), key=lambda each: (each.index, each.generation))
        other: StoredCheckpoint | None = None
        for each in listed[: -MOST_TRIED - 1 : -1]:
            found = self._read(each.generation, each.index)
            if found is not None and signer.public in (found.checkpoint.key, found.checkpoint.next_key):
                return found
            other = other or found
        if kept is not None and self._read(kept.checkpoint.position.generation, kept.number) != kept:
            kept = None  # somebody took it away
        if kept is None and other is None and len(listed) > MOST_TRIED:
            newest = checkpoint_key(listed[-1].generation, listed[-1].index)
            what = f"and the {MOST_TRIED - 1} before it are not signed checkpoints of this log: remove them"
            raise CorruptObjectError(newest, what)
        return kept or other

    def _read_kept(self) -> StoredCheckpoint | None:
        try:
            kept = as_stored(self._path, read_regular(self._path, LIMITS.size))
        except (OSError, CorruptionError):
            return None
        return kept if kept.checkpoint.log == self._claim.log else None

    def _read(self, generation: Generation, number: int) -> StoredCheckpoint | None:
        """A checkpoint of the replica; None if it is not there, or is none of this log with a signature."""
        key = checkpoint_key(generation, number)
        try:
            found = decode_stored(key, self._client.read_checkpoint(generation, number))
            require_signed(key, found.checkpoint, [found.checkpoint.key or ""])
        except (NotFoundError, CorruptionError):
            return None
        return found if found.checkpoint.log == self._claim.log else None


def _continues(before: StoredCheckpoint | None, found: StoredCheckpoint) -> bool:
    if before is None:
        return found.checkpoint.previous is None
    return find_fault(before, found.checkpoint) is None
