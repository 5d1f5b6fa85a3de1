"""An S3 replica's requests: how they are sent, and what their failures are."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from replica_clients.s3.clients import SharedClient
from replica_clients.s3.errors import STALE_CREDENTIALS, S3Failures, error_code

if TYPE_CHECKING:
    from replica_clients.s3.settings import S3Settings


class S3Connection:
    """Sends requests to one bucket, from any thread. One attempt each: retries are a wrapper's."""

    def __init__(self, settings: S3Settings) -> None:
        self.settings = settings
        self._shared = SharedClient.of(settings)
        self.failures = S3Failures(settings, self._shared.tokens)
        self._closing = threading.Lock()
        self._closed = False

    def request(self, operation: str, key: str, method: str, **parameters: object) -> dict[str, Any]:
        """The answer to one request of the client's ``method``. StoreError, NotFoundError, ExistsError.

        Whatever else fails in it is a StoreError, too: where credentials come from, and what an answer holds, is not
        ours, and no replica's failure is the others'.
        """
        client = self._shared.client
        send = getattr(client, method)
        try:
            answer: dict[str, Any] = send(Bucket=self.settings.bucket, **parameters)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  botocore lets through what its sources and parsers raise
            explained = self.failures.explain(operation, key, error)
            if isinstance(error, ClientError) and error_code(error) in STALE_CREDENTIALS:
                explained.retryable = self._shared.renew(client) or explained.retryable
            raise explained from self.failures.cause(error, key)
        return answer

    def close(self) -> None:
        """Give the client back: idle connections are closed behind the last one who has it. Idempotent."""
        with self._closing:
            closed, self._closed = self._closed, True
        if not closed:
            self._shared.release()
