"""Appends numbered records to many logs in turn, and rolls their log segments. Runs as a process.

It reports each batch after the batch is durable.

python soak_writer.py SEED SEGMENT_BYTES PAUSE

PAUSE: seconds between two appends. It reads commands from standard input, one on each line: ``open LOG``,
``close LOG``, ``move LOG<TAB>PLACE`` (while the log is written), ``rest`` and ``go on``. It answers each on standard
output with ``{"did": LINE}``, and prints ``{"log": LOG, "next": SEQUENCE}`` for each append.
"""

from __future__ import annotations

import json
import os
import random
import selectors
import sys
from collections import deque

from litelog.log.writer import LogWriter


class Writers:
    """The open logs, which are written in turn."""

    def __init__(self, seed: int, segment_bytes: int) -> None:
        self.resting = False
        self._random = random.Random(seed)
        self._segment_bytes = segment_bytes
        self._turns: deque[LogWriter] = deque()

    def obey(self, command: str) -> None:
        """Execute a command and report it."""
        verb, _, rest = command.partition(" ")
        log, _, place = rest.partition("\t")
        if verb == "open":
            self._turns.append(LogWriter(log, segment_bytes=self._segment_bytes, fsync="always"))
        elif verb in ("close", "move"):
            writer = next(each for each in self._turns if each.folder == log)
            self._turns.remove(writer)
            if verb == "move":
                self._append_to(writer)
                os.rename(log, place)
            writer.close()
        else:
            self.resting = verb == "rest"
        say({"did": command})

    def append(self) -> None:
        """Append a batch to the log whose turn it is."""
        if self.resting or not self._turns:
            return
        writer = self._turns[0]
        self._turns.rotate(-1)
        self._append_to(writer)

    def _append_to(self, writer: LogWriter) -> None:
        first = writer.next_sequence
        numbers = range(first, first + self._random.randint(1, 20))
        values = [b"%d:" % number + self._random.randbytes(60).hex().encode() for number in numbers]
        say({"log": writer.folder, "next": writer.append(values).next})


def say(fact: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(fact) + "\n")
    sys.stdout.flush()


def main(seed: str, segment_bytes: str, pause: str) -> None:
    writers = Writers(int(seed), int(segment_bytes))
    commands = selectors.DefaultSelector()
    commands.register(sys.stdin, selectors.EVENT_READ)
    while True:
        if commands.select(float(pause)):
            line = sys.stdin.readline()
            if not line:
                return
            writers.obey(line.rstrip("\n"))
        writers.append()


if __name__ == "__main__":
    main(*sys.argv[1:])
