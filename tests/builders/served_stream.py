"""An open stream of records from a daemon in this process."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any

from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from tests.builders.server_builder import Watched


class ServedStream:
    """An open stream, which is JSON lines unless only ``rest`` is used."""

    def __init__(self, watched: Watched, path: str, headers: dict[str, str] | None = None) -> None:
        address = watched.service.address
        assert address is not None
        self._connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=WAIT_SECONDS)
        self._connection.request("GET", path, headers=headers or {})
        self._response = self._connection.getresponse()
        assert self._response.status == 200

    def line(self) -> dict[str, Any]:
        """The next line that is not empty."""
        while not (line := self._response.readline().strip()):
            assert not self._response.closed
        found: dict[str, Any] = json.loads(line)
        return found

    def some(self) -> bytes:
        """The bytes that are there, at least one."""
        found = self._response.read1(1 << 16)
        assert found
        return found

    def rest(self) -> bytes:
        return self._response.read()

    def close(self) -> None:
        self._connection.close()
        self._response.close()
