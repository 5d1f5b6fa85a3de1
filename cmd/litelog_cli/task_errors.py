"""Errors of ours that tasks of Spark's raise, found again in what Spark says of them."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING

from litelog.errors import LitelogError

if TYPE_CHECKING:
    from litelog.errors import ExitCode

_RAISED = re.compile(r"^(?:.*: )?((?:litelog|replica_clients)(?:\.\w+)+): (.+)$", re.MULTILINE)
"""The line of a Python trace that names an error of ours, and what it said."""


class TaskError(LitelogError):
    """An error of ours that a task raised, as Spark's own error tells of it."""

    def __init__(self, message: str, exit_code: ExitCode) -> None:
        self.exit_code = exit_code
        super().__init__(message)


def find_told(text: str) -> TaskError | None:
    """The error of ours that the traces in ``text`` end with; None where there is none."""
    for name, message in reversed(_RAISED.findall(text)):
        module, _, word = name.rpartition(".")
        try:
            kind = getattr(import_module(module), word, None)
        except ImportError:
            continue
        if isinstance(kind, type) and issubclass(kind, LitelogError):
            return TaskError(message.strip(), kind.exit_code)
    return None
