"""What ``--generation``, ``--index``, ``--sequence`` and ``--timestamp`` of ``litelog restore`` mean."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from litelog.errors import ConfigError
from litelog_cli.start import Kind, parse_start

if TYPE_CHECKING:
    from litelog.objects.position import Generation
    from litelog.restore.plan import Target


def make_target(name: Generation | None, index: str | None, sequence: int | None, timestamp: str | None) -> Target:
    """The target that a command's options name. click.BadParameter for a value that is none."""
    from litelog.restore.plan import Target

    return Target(
        generation=name,
        index=None if index is None else _parse_index(index),
        sequence=sequence,
        timestamp=None if timestamp is None else _parse_time(timestamp),
    )


def _parse_index(text: str) -> int:
    if not re.fullmatch("[0-9A-Fa-f]{1,16}", text):
        raise click.BadParameter(f"{text!r} is no index: up to 16 hexadecimal digits", param_hint="--index")
    return int(text, 16)


def _parse_time(text: str) -> int:
    with suppress(ConfigError):  # which names all that a start may be
        start = parse_start(text, datetime.now(UTC))
        if start.kind is Kind.TIME:
            return start.value
    raise click.BadParameter(f"{text!r} is no time: write 2026-11-21T10:00:00Z, or 1h", param_hint="--timestamp")
