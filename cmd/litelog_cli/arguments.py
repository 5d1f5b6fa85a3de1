"""Parses the command's arguments: a log's folder or a replica, where to start, and the target of a restore."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from litelog.errors import ConfigError, LitelogError
from litelog.units import MAX_WRITTEN_SEQUENCE, StartKind, StartPoint, to_microseconds
from litelog.units import parse_start as parse_start_point

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from click.shell_completion import CompletionItem

    from litelog.objects.position import Generation
    from litelog.restore.plan import Target
    from litelog.stores.replica_client import ReplicaClient

PLACE_POLL_SECONDS = 1.0
"""Pause between two looks at a folder that is neither a log nor a replica yet. No longer than the wait for a replica's
next WAL segment."""


class _GenerationName(click.ParamType[str]):
    """A generation's name as a parameter, or its first digits (see ``expand_generation``)."""

    name = "generation"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = value.strip().lower()
        if not re.fullmatch("[0-9a-f]{1,16}", text):
            self.fail(f"{value!r} is not a generation: write its 16 hexadecimal digits, or the first ones", param, ctx)
        return text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """The generations of a local replica that was typed before."""
        from click.shell_completion import CompletionItem

        from litelog.reading.latest import read_claims

        typed = [*ctx.params.values(), *ctx.args]  # an option without its value ends click's parsing before arguments
        texts = (str(text) for value in typed for text in (value if isinstance(value, tuple) else (value,)))
        place = next((text for text in texts if os.path.isdir(text) and is_replica(text)), None)
        with suppress(LitelogError, OSError):
            if place is not None:
                with opened_replica(place) as client:
                    return [CompletionItem(name) for name in sorted(read_claims(client)) if name.startswith(incomplete)]
        return []


GENERATION = _GenerationName()
GENERATION_DIGITS = 16


class _FormatName(click.ParamType[str]):
    """A log format's name, which shells complete."""

    name = "format"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        from click.shell_completion import CompletionItem

        from litelog.formats.registry import format_names

        return [CompletionItem(name) for name in format_names() if name.startswith(incomplete)]


FORMAT = _FormatName()


class _SequenceNumber(click.ParamType[int]):
    """A record's sequence: a whole number, which people may group with commas or underscores."""

    name = "sequence"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = re.sub(r"(?<=[0-9])[,_](?=[0-9])", "", value.strip())
        if not (text.isascii() and text.isdigit()):
            self.fail(f"{value!r} is not a whole number", param, ctx)
        if len(text) > 20 or int(text) > MAX_WRITTEN_SEQUENCE:
            self.fail(f"{value} is larger than any sequence", param, ctx)
        return int(text)


SEQUENCE = _SequenceNumber()


class _Duration(click.ParamType[float]):
    """Seconds: 10s, 1m30s, 500ms, or a number alone."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from litelog.units import parse_duration

        if isinstance(value, float):
            return value
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)


DURATION = _Duration()


class _Size(click.ParamType[int]):
    """Bytes: 64MiB, 10kB, or a number alone."""

    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from litelog.units import parse_size

        if isinstance(value, int):
            return value
        try:
            return parse_size(value)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)


SIZE = _Size()


class _Sample(click.ParamType[float]):
    """A share of the contents, in percent."""

    name = "percent"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        text = value.strip()
        try:
            percent = float(text.removesuffix("%"))
        except ValueError:
            percent = -1.0
        if not 0 <= percent <= 100:
            self.fail(f"{value!r} is not a share from 0% to 100%: write 5%", param, ctx)
        if 0 < percent < 1 and not text.endswith("%"):
            self.fail(f"{value!r} may mean {percent * 100:g}% or {percent:g}%: write which", param, ctx)
        return percent / 100


SAMPLE = _Sample()


class _OutputFolder(click.ParamType[str]):
    """A folder of this machine to write."""

    name = "folder"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("may not be empty", param, ctx)
        if "://" in value:
            local = value.removeprefix("file://") if value.startswith("file:///") else ""
            self.fail(f"takes a folder of this machine, not a URL{local and f': write {local}'}", param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="dir")]


OUTPUT = _OutputFolder()


class _PlaceName(click.ParamType[str]):
    """A log's folder or a replica, which shells complete as a folder.

    An empty value is refused: it comes from an unset variable, and does not mean the working folder.
    """

    name = "place"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("may not be empty", param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Folders, and the folders of configured logs."""
        from click.shell_completion import CompletionItem

        from litelog_cli.config_file import read_config

        found = [CompletionItem(incomplete, type="dir")]
        with suppress(LitelogError, OSError):
            config = read_config(ctx.params.get("config_file"))
            logs = [log.path for log in config.own_logs] if config is not None else []
            found += [CompletionItem(path) for path in logs if path.startswith(incomplete)]
        return found


PLACE = _PlaceName()


def is_replica(place: str) -> bool:
    """Whether ``place`` is a replica: a URL, or a folder with the contents of a replica."""
    from litelog.stores import replica_address

    return replica_address.is_replica(place)


def wait_for_place(place: str, wait: Callable[[float], object]) -> bool:
    """Wait until the folder ``place`` is a replica or holds files, as a log does. Returns whether it had to wait."""
    waited = False
    while not (is_replica(place) or _holds_files(place)):
        waited = True
        wait(PLACE_POLL_SECONDS)
    return waited


def _holds_files(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(entry.is_file() and not entry.name.startswith(".") for entry in entries)
    except FileNotFoundError:
        return False


def opened_replica(url: str, options: Mapping[str, object] | None = None) -> AbstractContextManager[ReplicaClient]:
    """Open a client of the replica at ``url``, with retries; close it at the end.

    ``options``: its backend's own. A NoReplicaError of the block says what is there instead of a replica.
    """
    from litelog.stores import opening

    return opening.opened_replica(url, options)


def make_target(name: Generation | None, index: str | None, sequence: int | None, timestamp: str | None) -> Target:
    """The target that a command's options describe. Raises click.BadParameter for an invalid value."""
    from litelog.restore.plan import Target

    return Target(
        generation=name,
        index=None if index is None else _parse_index(index),
        sequence=sequence,
        timestamp=None if timestamp is None else parse_time(timestamp, datetime.now(UTC)),
    )


def _parse_index(text: str) -> int:
    if not re.fullmatch("[0-9A-Fa-f]{1,16}", text):
        raise click.BadParameter(f"{text!r} is not an index: write up to 16 hexadecimal digits", param_hint="--index")
    return int(text, 16)


_EPOCH_UNITS = {9: 1_000_000, 10: 1_000_000, 12: 1000, 13: 1000, 15: 1, 16: 1}
"""By a number's count of digits, the microseconds in its unit: seconds, milliseconds or microseconds since 1970."""


def parse_time(text: str, now: datetime, option: str = "--timestamp") -> int:
    """Microseconds since 1970 of an ISO time, a time before ``now`` (1h), ``now``, or seconds since 1970.

    ``option``: where the text comes from, for the error."""
    word = text.strip().lower()
    if word == "now":
        return to_microseconds(now)
    if word.isascii() and word.isdigit() and (unit := _EPOCH_UNITS.get(len(word))) is not None:
        return int(word) * unit
    with suppress(ConfigError):  # its message lists every kind of start
        start = parse_start(word.removesuffix(" ago") if word.endswith(" ago") else text, now)
        if start.kind is StartKind.TIME:
            return start.value
    said = f"{text!r} is not a time: write 2026-11-21T10:00:00Z, 1h (before now), now, or seconds since 1970"
    raise click.BadParameter(said, param_hint=option)


def parse_start(text: str, now: datetime) -> StartPoint:
    """Parse a start, as ``units.parse_start`` does. Raises ConfigError."""
    try:
        return parse_start_point(text, now)
    except ValueError as error:
        raise ConfigError(str(error)) from None
