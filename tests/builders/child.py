"""A part of a test that takes much memory, in a process that gives all of it back."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def in_child(part: Callable[[], object]) -> None:
    """Run ``part`` in a forked process; AssertionError if it failed, after its traceback on stderr."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            part()
            code = 0
        except BaseException:  # noqa: BLE001 - nothing may return into the tests of the parent
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "failed in a child: see its stderr"
