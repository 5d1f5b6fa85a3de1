"""What a program leaves on a terminal of some width: its output, as the terminal interprets it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress

HEIGHT = 24
_PIECE = re.compile(r"\x1b\[(?P<numbers>[?0-9;]*)(?P<command>[A-Za-z])|(?P<text>.)", re.DOTALL)


class Screen:
    """The lines of a terminal that never scrolls."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._cells: list[list[str]] = [[]]
        self.row = self.column = 0
        """Where the cursor stands."""

    @property
    def lines(self) -> list[str]:
        return ["".join(cells).rstrip() for cells in self._cells]

    def feed(self, output: str) -> None:
        for piece in _PIECE.finditer(output):
            if (text := piece["text"]) is not None:
                self._put(text)
            elif piece["command"] == "A":
                self.row = max(0, self.row - int(piece["numbers"] or 1))
            elif piece["command"] == "K":
                assert piece["numbers"] == "2", "only whole lines are erased"
                self._cells[self.row] = []
            else:
                assert piece["command"] in "mhl", f"what does {piece[0]!r} do?"

    def _put(self, text: str) -> None:
        if text == "\r":
            self.column = 0
            return
        if text == "\n" or self.column == self._width:
            self.row, self.column = self.row + 1, 0 if text != "\n" else self.column
            if self.row == len(self._cells):
                self._cells.append([])
        if text != "\n":
            cells = self._cells[self.row]
            cells += " " * (self.column + 1 - len(cells))
            cells[self.column] = text
            self.column += 1


def shown_by(script: str, width: int) -> str:
    """Run a Python script on a terminal of that width: everything that it writes there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, width, 0, 0))
    known = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    command = [sys.executable, "-c", script]
    environment = {**known, "TERM": "xterm"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        written = b""
        with suppress(OSError):  # EIO, when the other end is closed
            while piece := os.read(ours, 65536):
                written += piece
        assert process.wait(240) == 0, written
    os.close(ours)
    return written.decode()
