"""A program that appends small records at a steady rate, one append each: a process to be watched."""

from __future__ import annotations

import time

import click

from litelog.log.writer import LogWriter

TICK_SECONDS = 0.001
"""How often it wakes: each time it appends what is due, one by one."""


@click.command(help=__doc__)
@click.option("--rate", default=10_000, help="Appends a second.")
@click.option("--size", default=100, help="Bytes in a record.")
@click.option("--seconds", default=10.0)
@click.argument("log", type=click.Path())
def main(log: str, rate: int, size: int, seconds: float) -> None:
    value = bytes(i % 251 for i in range(size))
    with LogWriter(log, fsync="never") as writer:
        start = time.monotonic()
        done = 0
        while (passed := time.monotonic() - start) < seconds:
            while done < passed * rate:
                writer.append(value)
                done += 1
            time.sleep(TICK_SECONDS)
    click.echo(f"{done / seconds:.0f}")


if __name__ == "__main__":
    main()
