"""Runs one read of a record stream in a thread, so that its caller can wait with a limit, or not at all."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.formats.columns import Columns


def read_in_background(read: Callable[[], Columns | None]) -> Future[Columns | None]:
    """Call ``read`` in a new thread, which does not keep the process alive. Return its result as a future."""
    future: Future[Columns | None] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            found = read()
        except BaseException as error:  # noqa: BLE001 - the error reaches the caller with the result
            future.set_exception(error)
        else:
            future.set_result(found)

    threading.Thread(target=run, name="read-records", daemon=True).start()
    return future
