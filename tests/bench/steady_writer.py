"""Appends small records at a steady rate, with one append per record, and prints the rate that it reached."""

from __future__ import annotations

import time

import click

from litelog.log.writer import LogWriter

TICK_SECONDS = 0.001
"""The interval at which it wakes and appends the records that are due."""


@click.command(help=__doc__)
@click.option("--rate", default=10_000, help="Number of appends a second.")
@click.option("--size", default=100, help="Number of bytes in a record.")
@click.option("--seconds", default=10.0)
@click.argument("log", type=click.Path())
def main(log: str, rate: int, size: int, seconds: float) -> None:
    value = bytes(i % 251 for i in range(size))
    with LogWriter(log, fsync="never") as writer:
        start = time.monotonic()
        done = 0
        while (elapsed := time.monotonic() - start) < seconds:
            while done < elapsed * rate:
                writer.append(value)
                done += 1
            time.sleep(TICK_SECONDS)
    click.echo(f"{done / seconds:.0f}")


if __name__ == "__main__":
    main()
