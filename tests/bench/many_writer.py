"""Appends a record a second to each of the logs that standard input names; the appends are spread over the second.

It prints ``open`` once it has opened them, and at its end a line for each append: the log, the sequence after the
record, and the time at which it was written, in monotonic nanoseconds.
"""

from __future__ import annotations

import sys
import time

import click

from litelog.log.writer import LogWriter


@click.command(help=__doc__)
@click.option("--size", default=100, help="Number of bytes in a record.")
@click.option("--seconds", default=10.0)
def main(size: int, seconds: float) -> None:
    names = sys.stdin.read().split()
    value = bytes(i % 251 for i in range(size))
    writers = [LogWriter(name, fsync="never") for name in names]
    click.echo("open")
    lines = []
    start = time.monotonic()
    for number in range(int(seconds) * len(writers)):
        turn = number % len(writers)
        due = start + number / len(writers)
        if (early := due - time.monotonic()) > 0.001:
            time.sleep(early)
        writers[turn].append(value)
        lines.append(f"{names[turn]} {writers[turn].next_sequence} {time.monotonic_ns()}")
    for writer in writers:
        writer.close()
    click.echo("\n".join(lines))


if __name__ == "__main__":
    main()
