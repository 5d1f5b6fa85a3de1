"""Appends numbered records until it is killed, and prints the next sequence after each batch.

python append_records.py LOG SEED SEGMENT_BYTES [FSYNC] [PAUSE]

PAUSE: the seconds between two appends; with a pause, a daemon can keep up.
"""

from __future__ import annotations

import random
import sys
import time

from litelog.log.writer import Fsync, LogWriter


def main(folder: str, seed: int, segment_bytes: int, fsync: Fsync = "always", pause: str = "0") -> None:
    choose = random.Random(seed)
    with LogWriter(folder, segment_bytes=segment_bytes, fsync=fsync) as writer:
        number = writer.next_sequence
        print(writer.next_sequence, flush=True)  # noqa: T201
        while True:
            values = [
                b"%d:" % n + choose.randbytes(choose.randrange(200))
                for n in range(number, number + choose.randint(1, 50))
            ]
            number = writer.append(values).next
            print(number, flush=True)  # noqa: T201
            time.sleep(float(pause))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
