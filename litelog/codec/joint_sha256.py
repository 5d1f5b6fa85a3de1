"""SHA-256 of several streams of bytes: two of them are computed in little more than the time of one.

A processor with instructions for SHA-256 waits for each round before it begins the next one. In that time it can
compute a round of another stream. So a digest leaves its newest bytes to the next digest of the process that gets
bytes, in whichever thread, and hashes alone only bytes that have waited for too long. ``hexdigest`` leaves nothing.

Without the compiled part, or on another processor, ``hashlib`` does the work.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Protocol

from litelog.native.digests import BLOCK_BYTES, State, can_hash

if TYPE_CHECKING:
    from typing_extensions import Buffer

WAITING_BYTES = 2 << 20
"""The bytes of a digest that may wait for another digest. They stay in memory for so long. With 1 MiB, half of all
bytes of four busy threads found another digest, with 2 MiB three quarters, and with 4 MiB four fifths."""

LEAST_BYTES = 16 << 10
"""With fewer bytes, a digest is not worth waking for another one."""


class Digest(Protocol):
    """A SHA-256 that is being computed."""

    def update(self, data: Buffer, /) -> None:
        """Take the next bytes. They must never change."""

    def hexdigest(self) -> str:
        """The digest of all bytes, in hex. Nothing may be taken after it."""


def joint_sha256(waiting_bytes: int = WAITING_BYTES) -> Digest:
    """A digest of no bytes yet, for use from one thread. ``waiting_bytes``: how many may wait for another digest."""
    return JointSha256(waiting_bytes) if can_hash() else hashlib.sha256()


class JointSha256:
    """A digest that is computed together with others. RuntimeError where not ``can_hash``."""

    def __init__(self, waiting_bytes: int) -> None:
        self._state = State()
        self._waiting_bytes = waiting_bytes
        self._pieces: deque[memoryview] = deque()
        """The bytes that were not hashed yet. The owner's thread adds, and the thread that has made the digest busy
        removes."""
        self._length = 0
        self.waiting = 0
        """The bytes that were not hashed yet."""
        self.busy = False
        """Whether a thread hashes it."""
        self.is_lost = False
        """Whether a thread failed while it computed this digest: it is unknown which bytes the state covers."""
        with _CHANGED:
            _DIGESTS.add(self)

    def update(self, data: Buffer, /) -> None:
        """As in ``Digest``."""
        view = memoryview(data).cast("B")
        if self._length < 0:
            raise ValueError("the digest is finished")
        if not len(view):
            return
        with _CHANGED:
            self._pieces.append(view)
            self._length += len(view)
            self.waiting += len(view)
        self._hash_down_to(self._waiting_bytes, 2 * self._waiting_bytes)

    def hexdigest(self) -> str:
        """As in ``Digest``."""
        self._hash_down_to(0, 0)
        with _CHANGED:
            _DIGESTS.discard(self)
        rest, bits, self._length = b"".join(self._pieces), 8 * self._length, -1
        zeros = b"\0" * ((-len(rest) - 9) % BLOCK_BYTES)
        self._state.take(memoryview(b"".join((rest, b"\x80", zeros, bits.to_bytes(8, "big")))))
        return self._state.digest().hex()

    def _hash_down_to(self, most: int, most_while_busy: int) -> None:
        """Hash with another digest while there is one, and without one until at most ``most`` bytes wait.

        While another thread hashes this digest, more than ``most_while_busy`` bytes may not wait. If that thread fails,
        raises MemoryError, as memory is what a thread that hashes may lack.
        """
        while True:
            with _CHANGED:
                while self.busy and self.waiting > most_while_busy:
                    _CHANGED.wait()
                if self.is_lost:
                    raise MemoryError("a thread failed while it computed this SHA-256")
                other = None if self.busy else self._find_other()
                if self.busy or (other is None and self.waiting < max(most + 1, BLOCK_BYTES)):
                    return
                busy = [self] if other is None else [self, other]
                for each in busy:
                    each.busy = True
            taken: int | None = None
            try:
                taken = self._take_piece() if other is None else self._take_with(other)
            finally:
                with _CHANGED:
                    for each in busy:
                        each.waiting -= taken or 0
                        each.busy, each.is_lost = False, taken is None
                    _CHANGED.notify_all()

    def _find_other(self) -> JointSha256 | None:
        """The digest with the most bytes that wait; None if none is worth it."""
        if self.waiting < LEAST_BYTES:
            return None
        others = (each for each in _DIGESTS if each is not self and not each.busy and not each.is_lost)
        worth_it = (each for each in others if each.waiting >= LEAST_BYTES)
        return max(worth_it, key=lambda each: each.waiting, default=None)

    def _take_piece(self) -> int:
        """Hash the whole blocks of the first piece. Returns how many bytes they are."""
        size = self._whole_bytes()
        self._state.take(self._pieces[0][:size])
        self._drop(size)
        return size

    def _take_with(self, other: JointSha256) -> int:
        """Hash whole blocks of both digests, until one has no more. Returns how many bytes they are of each."""
        taken = 0
        while size := min(self._whole_bytes(), other._whole_bytes()):
            self._state.take_with(self._pieces[0][:size], other._state, other._pieces[0][:size])
            self._drop(size)
            other._drop(size)
            taken += size
        return taken

    def _whole_bytes(self) -> int:
        """How many bytes of whole blocks the first piece has. It is joined with the next ones while it has none."""
        while self._pieces and len(self._pieces[0]) < BLOCK_BYTES:
            if len(self._pieces) == 1:
                return 0
            first = self._pieces.popleft()
            missing = BLOCK_BYTES - len(first)
            second = self._pieces.popleft()
            if len(second) > missing:
                self._pieces.appendleft(second[missing:])
            self._pieces.appendleft(memoryview(bytes(first) + bytes(second[:missing])))
        return len(self._pieces[0]) // BLOCK_BYTES * BLOCK_BYTES if self._pieces else 0

    def _drop(self, size: int) -> None:
        rest = self._pieces.popleft()[size:]
        if len(rest):
            # A short rest is copied, and does not keep the buffer that it is the end of.
            self._pieces.appendleft(rest if len(rest) >= BLOCK_BYTES else memoryview(bytes(rest)))


_CHANGED = threading.Condition()
"""Guards all digests' counts and whether they are busy."""

_DIGESTS: weakref.WeakSet[JointSha256] = weakref.WeakSet()
"""The unfinished digests, except those that their owners have dropped."""
