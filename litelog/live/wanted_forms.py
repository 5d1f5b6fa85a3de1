"""WantedForms: the encoded forms of the next run that readers at the end of a log wait for.

A buffer encodes a short run in these forms before it is durable, while the disk is at work.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.live.encoding import Piece

MOST_BYTES = 32 << 10
"""A longer run is encoded when a reader gets it: others do not wait for that."""


class EncodesOnce(Protocol):
    """A run, which keeps its encoded forms."""

    @property
    def size(self) -> int: ...

    def encoded(self, kind: str, encode: Callable[[], Piece]) -> Piece:
        """Return a form, made once."""


Run = TypeVar("Run", bound=EncodesOnce)


class WantedForms(Generic[Run]):
    """Any thread may call the methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: Counter[str] = Counter()
        self._encoders: dict[str, Callable[[Run], Piece]] = {}
        self._decoded: set[str] = set()

    @property
    def decoded_bytes(self) -> int:
        """Up to how many bytes of a run are decoded for a form that is wanted; 0 if none is made from records."""
        return MOST_BYTES if self._decoded else 0

    def add(self, kind: str, encode: Callable[[Run], Piece], *, is_decoded: bool = False) -> None:
        """A reader waits for a form. ``is_decoded``: it is made from the records, not from the bytes."""
        with self._lock:
            self._readers[kind] += 1
            self._encoders[kind] = encode
            if is_decoded:
                self._decoded.add(kind)

    def remove(self, kind: str) -> None:
        """It does not wait for it any more."""
        with self._lock:
            self._readers[kind] -= 1
            if self._readers[kind] <= 0:
                del self._readers[kind], self._encoders[kind]
                self._decoded.discard(kind)

    def encode(self, run: Run) -> None:
        """Encode a short run in all wanted forms. If one cannot be made, its readers get the error: they encode the run
        again."""
        if not self._encoders or run.size > MOST_BYTES:
            return
        with self._lock:
            wanted = list(self._encoders.items())
        for kind, encode in wanted:
            with suppress(Exception):
                run.encoded(kind, partial(encode, run))
