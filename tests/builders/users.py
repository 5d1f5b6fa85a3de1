"""Acts as another user. Only root may do so."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class as_user:  # noqa: N801 - reads as a word
    """Act as another user in this context."""

    def __init__(self, user: int) -> None:
        self._user = user

    def __enter__(self) -> None:
        os.seteuid(self._user)

    def __exit__(self, *_: object) -> None:
        os.seteuid(0)


def run_where_files_belong_to(user: int, work: Callable[[], None]) -> None:
    """Run ``work`` as root, with a file system that gives each new file to ``user``, as NFS may do."""
    library = ctypes.CDLL(None)
    failures: list[BaseException] = []

    def run() -> None:
        library.setfsuid(user)  # of this thread only
        try:
            work()
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not failures, failures
