"""An S3 object's body as a stream that ends where the store said it would, or raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.errors import StoreError
from litelog.stores.byte_stream import ByteStream

if TYPE_CHECKING:
    from typing import Any

    from replica_clients.s3.errors import S3Failures


class S3Reader(ByteStream):
    """``length`` bytes of a response's body, which it closes. A body that ends early raises a StoreError that may pass.

    ``body`` is botocore's StreamingBody.
    """

    def __init__(self, key: str, body: Any, length: int, failures: S3Failures) -> None:
        self._key = key
        self._body = body
        self._left = length
        self._failures = failures

    def read(self, size: int | None = -1, /) -> bytes:
        """``size`` bytes, or all that are left where they are fewer or ``size`` is negative."""
        want = self._left if size is None or size < 0 else min(size, self._left)
        pieces: list[bytes] = []
        while want:
            try:
                piece: bytes = self._body.read(want)
            except MemoryError:
                raise
            except Exception as error:  # noqa: BLE001  of botocore, urllib3, http.client and ssl
                failure = self._failures.explain("read", self._key, error)
                raise failure from self._failures.cause(error, self._key)
            if not piece:
                raise StoreError("read", self._key, f"the answer ends {self._left} bytes early")
            pieces.append(piece)
            self._left -= len(piece)
            want -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._body.close()
