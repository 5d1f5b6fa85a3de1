"""A test, or a part of one, that takes much memory, in a process that gives all of it back."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


def in_child(part: Callable[[], T]) -> T:
    """Run ``part`` in a forked process.

    Returns:
        What ``part`` returned, pickled on the way.

    Raises:
        AssertionError: ``part`` raised an error, whose traceback is on stderr.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            with os.fdopen(writing, "wb") as file:
                pickle.dump(part(), file)
            code = 0
        except BaseException:  # noqa: BLE001 - nothing may return into the tests of the parent
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        pickled = file.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "failed in a child: see its stderr"
    result: T = pickle.loads(pickled)
    return result


def runs_in_child(test: Callable[P, None]) -> Callable[P, None]:
    """Decorate a test that takes much memory: it runs in a forked process. Its fixtures must have started no threads
    that it needs, as a fork has one thread."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        in_child(lambda: test(*args, **kwargs))

    return run
