"""``litelog append``: turns lines of standard input into records."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from litelog_cli.arguments import DURATION, PLACE
from litelog_cli.configured import find_replica
from litelog_cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litelog.stores.mirror_acknowledgement import MirrorAcknowledgement

READ_BYTES = 1 << 20
"""Bytes per read. A pipe returns what it has, at most 64 KiB."""

DEFAULT_BATCH = 1000
"""The most records in a commit without ``--batch``."""

MAX_BATCH = 65_535
"""The most records in a commit of litelog's own format."""

MAX_BATCH_BYTES = 8 << 20
"""Bytes. A batch of this size is committed before it is full, to bound memory."""

MAX_LINE_BYTES = 16 << 20
"""The longest line, in bytes. Longer input without a line end is refused: it is probably not text."""


@click.command(
    epilog="""\b
Examples:
  echo hello | litelog append /var/lib/events
  tail -F app.log | litelog append /var/lib/events > /dev/null
  litelog append --batch 500 --json /var/lib/events < lines.txt
  printf 'user1\\tlogin\\n' | litelog append --key-separator '\\t' /var/lib/events
  echo hello | litelog append --mirrored-at http://127.0.0.1:9977/logs/events /var/lib/events
\b
--mirrored-at waits after each commit until a mirror of the log has it durably:
the log's daemon, which serves it at this URL, knows how far its mirrors are.
With --mirror-timeout, a commit that has waited for that time is reported without
a mirror. Further commits do not wait, until a mirror has caught up.
\b
Exit codes: 0 all lines are durable, 1 the log is in use, or a write failed,
2 usage, 6 the log is damaged.
"""
)
@click.argument("log_dir", type=PLACE)
@click.option(
    "--batch",
    type=click.IntRange(1, MAX_BATCH),
    help=f"Records in a commit.  [default: as many as are waiting, up to {DEFAULT_BATCH}]",
)
@click.option("--key-separator", metavar="CHARACTERS", help="Separates each record's key from its value; \\t is a tab.")
@click.option("--mirrored-at", "mirrored_at", metavar="LOG_URL", help="Wait until a mirror has each commit, too.")
@click.option(
    "--mirror-timeout",
    type=DURATION,
    metavar="DURATION",
    help="How long a commit waits for a mirror.  [default: no limit]",
)
@click.option("--config", "config_file", metavar="FILE", help="Configuration file with the options of LOG_URL.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each commit.")
def append(
    log_dir: str,
    batch: int | None,
    key_separator: str | None,
    mirrored_at: str | None,
    mirror_timeout: float | None,
    config_file: str | None,
    as_json: bool,
) -> None:
    """Append lines from standard input as records to the log in LOG_DIR.

    Prints a line for each commit once it is durable, with the next sequence: every record below it is safe. Creates the
    log if it does not exist.
    """
    from litelog.errors import PoisonedError
    from litelog.log.writer import LogWriter

    separator = None if key_separator is None else os.fsencode(key_separator.replace("\\t", "\t"))
    if separator == b"":
        raise click.BadParameter("may not be empty", param_hint="--key-separator")

    if sys.stdin is None:  # the descriptor may belong to another file by now
        raise click.ClickException("standard input is closed, so there is nothing to append")
    descriptor = sys.stdin.fileno()

    def read() -> bytes:
        return os.read(descriptor, READ_BYTES)

    acknowledge = _acknowledgement(mirrored_at, mirror_timeout, config_file)
    with LogWriter(log_dir, acknowledge=acknowledge) as writer:
        for lines in line_batches(read, batch):
            keys, values = (None, lines) if separator is None else split_keys(lines, separator)
            try:
                appended = writer.append(values, keys=keys)
            except PoisonedError as error:
                reached = writer.durable_sequence
                raise PoisonedError(f"{error}; records below sequence {reached} were acknowledged") from error
            if as_json:
                mirrored = {} if appended.mirrored is None else {"mirrored": appended.mirrored}
                reached = writer.durable_sequence
                print_json({"first": appended.first, "next": appended.next, "durable_next": reached, **mirrored})
            else:
                sys.stdout.write(f"{appended.next}\n")
            sys.stdout.flush()


def _acknowledgement(url: str | None, timeout: float | None, config_file: str | None) -> MirrorAcknowledgement | None:
    """The acknowledgement that each commit waits for; None: none."""
    if url is None:
        if timeout is not None or config_file is not None:
            raise click.UsageError("--mirror-timeout and --config need --mirrored-at")
        return None
    from litelog.stores.mirror_acknowledgement import MirrorAcknowledgement

    served = find_replica(url, config_file)
    return MirrorAcknowledgement(served.url, served.options, timeout=timeout)


def line_batches(read: Callable[[], bytes], batch: int | None) -> Iterator[list[bytes]]:
    """Split the output of ``read``, until it is empty, into lines, ``batch`` at a time; None: as many as arrive.

    An empty line is an empty record. A last line without a line end counts as a line.
    """
    step = batch or DEFAULT_BATCH
    lines: list[bytes] = []
    size = 0
    for whole in _whole_lines(read):
        lines += whole
        size += sum(map(len, whole))
        while len(lines) >= step:
            yield lines[:step]
            del lines[:step]
            size = 0  # the rest is smaller than a read
        if lines and (batch is None or size >= MAX_BATCH_BYTES):
            yield lines
            lines, size = [], 0
    if lines:
        yield lines


def _whole_lines(read: Callable[[], bytes]) -> Iterator[list[bytes]]:
    begun: list[bytes] = []
    length = 0
    while piece := read():
        first, *others = piece.split(b"\n")
        begun.append(first)
        length += len(first)
        if others:
            yield [b"".join(begun), *others[:-1]]
            begun, length = [others[-1]], len(others[-1])
        if length > MAX_LINE_BYTES:
            raise click.ClickException(f"a line is longer than {MAX_LINE_BYTES} bytes: is this text?")
    if length:
        yield [b"".join(begun)]


def split_keys(lines: list[bytes], separator: bytes) -> tuple[list[bytes | None], list[bytes]]:
    """Split lines into keys and values. A line without the separator has no key."""
    parts = [line.partition(separator) for line in lines]
    keys = [key if found else None for key, found, _ in parts]
    return keys, [value if found else key for key, found, value in parts]
