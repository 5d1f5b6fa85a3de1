"""The waits of ``POST /sync``: each in a thread of its own, so many at a time, and no thread of the server waits."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from litelog.replicator.barrier import Barrier
    from litelog.server.daemon import Daemon

MAX_WAITING = 16
MAX_WAIT_SECONDS = 600.0
DEFAULT_WAIT_SECONDS = 30.0


class TooManyWaitingError(Exception):
    """MAX_WAITING others wait already."""


class Barriers:
    """Waits for a daemon. Used by one event loop."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._waiting = 0

    async def wait(self, log: str | None, replica: str | None, seconds: float) -> Barrier:
        """As ``Daemon.barrier``; TooManyWaitingError. A client that goes leaves its thread behind until then."""
        if self._waiting >= MAX_WAITING:
            raise TooManyWaitingError
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Barrier] = loop.create_future()

        def tell(barrier: Barrier | None, error: BaseException | None) -> None:
            self._waiting -= 1
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            elif barrier is not None:
                answer.set_result(barrier)

        def work() -> None:
            barrier, failure = None, None
            try:
                barrier = self._daemon.barrier(log, replica, seconds)
            except BaseException as error:  # noqa: BLE001 - told in the loop
                failure = error
            if not loop.is_closed():
                loop.call_soon_threadsafe(tell, barrier, failure)

        self._waiting += 1
        threading.Thread(target=work, name="barrier", daemon=True).start()
        return await answer
