"""Recovers the litelog errors that Spark tasks raised from the text of Spark's errors."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING

from litelog.errors import LitelogError

if TYPE_CHECKING:
    from litelog.errors import ExitCode

_RAISED = re.compile(r"^(?:.*: )?((?:litelog|replica_clients)(?:\.\w+)+): (.+)$", re.MULTILINE)
"""Matches the line of a Python traceback with a litelog error and its message."""


class TaskError(LitelogError):
    """A litelog error that a task raised, as found in Spark's error."""

    def __init__(self, message: str, exit_code: ExitCode) -> None:
        self.exit_code = exit_code
        super().__init__(message)


def find_task_error(text: str) -> TaskError | None:
    """Find the last litelog error in the tracebacks in ``text``; None if there is none."""
    for name, message in reversed(_RAISED.findall(text)):
        module, _, word = name.rpartition(".")
        try:
            kind = getattr(import_module(module), word, None)
        except ImportError:
            continue
        if isinstance(kind, type) and issubclass(kind, LitelogError):
            return TaskError(message.strip(), kind.exit_code)
    return None
