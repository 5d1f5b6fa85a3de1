"""The system calls of a process in a trace of strace, with the paths of their descriptors."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_LINE = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)")
_UNFINISHED = " <unfinished ...>"


@dataclass(frozen=True)
class Call:
    """A call that succeeded."""

    name: str
    text: str
    """Its arguments, each descriptor with its path: ``3</tmp/out>``."""
    began: int
    ended: int
    """Line numbers of the trace. A call that ended at a lower line than another began was done before it."""

    def names(self, path: Path) -> bool:
        """Whether any of its arguments is ``path``, as a text or as a descriptor."""
        return f"<{path}>" in self.text or f'"{path}"' in self.text


def trace(command: Sequence[str], calls: Iterable[str], log: Path, cwd: Path) -> list[Call]:
    """Run a command, which must succeed. Returns its calls of those names, in the order of their ends."""
    tracing = ["strace", "-f", "-y", "-s", "4096", "-o", str(log), "-e", f"trace={','.join(calls)}"]
    done = subprocess.run([*tracing, *command], capture_output=True, text=True, check=False, cwd=cwd, timeout=240)
    assert done.returncode == 0, done.stderr
    begun: dict[str, tuple[int, str]] = {}
    found = []
    for number, line in enumerate(log.read_text(errors="replace").splitlines()):
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        thread, resumed, name, text = match.groups()
        if resumed is None and text.endswith(_UNFINISHED):
            begun[thread] = (number, text.removesuffix(_UNFINISHED))
            continue
        began, head = begun.pop(thread) if resumed is not None else (number, "")
        if not re.search(r"\) += -1 ", text):
            found.append(Call(resumed or name, head + text, began, number))
    return found
