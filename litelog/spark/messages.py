"""Puts the message of a usage error first in the text that Spark shows. Otherwise a traceback comes first."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from litelog.errors import ConfigError, FencedError, NothingToRestoreError

if TYPE_CHECKING:
    from collections.abc import Callable

_Asked = ParamSpec("_Asked")
_Answer = TypeVar("_Answer")


def says_first(method: Callable[_Asked, _Answer]) -> Callable[_Asked, _Answer]:
    """Make a usage error of ``method`` begin with its message: Spark shows it as the first line.

    Python prints the cause of an error before the error. It prints a cause that was never raised as one line. Spark
    removes the causes of errors, so this cause cannot be removed.
    """

    @wraps(method)
    def called(*args: _Asked.args, **named: _Asked.kwargs) -> _Answer:
        try:
            return method(*args, **named)
        except (ConfigError, FencedError, NothingToRestoreError) as error:
            raised = error.with_traceback(None)
        _keep_cause(raised, Exception.__new__(type(raised), str(raised)))
        raise raised

    return called


def _keep_cause(error: Exception, cause: Exception) -> None:
    """Give ``error`` a class of the same name, whose ``__cause__`` is always ``cause``."""
    kind = type(error)
    kept = property(lambda _: cause, lambda *_: None)
    names = {"__cause__": kept, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    error.__class__ = type(kind.__name__, (kind,), names)
