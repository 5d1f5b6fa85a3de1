"""The format of the append-only files of Redis 7 and Valkey: one base file, and incremental files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from litelog.errors import ConfigError, WrongFormatError
from litelog.formats.columns import Columns
from litelog.formats.log_format import Commit, Expectation, FinishedTail, Scan
from litelog.formats.redis_aof.command_columns import EXTRA_COLUMNS, command_columns
from litelog.formats.redis_aof.command_walk import MAX_COMMAND_BYTES, Commands, find_command, walk
from litelog.formats.redis_aof.manifest import NAME, is_manifest, read_manifest, write_manifest
from litelog.formats.signatures import refuse_others

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

_OLD = ".aof"
_SECOND = 1_000_000

BLOCK_BYTES = 4096
"""How many bytes of a base file in RDB form are a commit, and take a sequence."""


class RedisAofFormat:
    """A folder of append-only files. A commit is a command, or a transaction from MULTI to EXEC; a record is a command.

    Sequences count from the base file on. A base file in RDB form has no commands: its blocks take sequences, but
    are not records.
    """

    name = "redis-aof"
    finished_tail = FinishedTail.SHIP
    has_timestamps = False
    self_numbered = False
    has_log_id = False
    removed_by_owner = True
    has_markers = True
    notes_times = True
    extra_columns = EXTRA_COLUMNS
    max_commit_bytes = MAX_COMMAND_BYTES

    def segment_order(self, name: str) -> tuple[object, ...] | None:
        match = NAME.fullmatch(name)
        return None if match is None else (match["kind"] == "incr.aof", int(match["number"]), name)

    def check_names(self, names: list[str]) -> None:
        """Refuse a folder with two logs, and the single file of Redis before 7, which it rewrites in place."""
        manifests = sorted(name for name in names if is_manifest(name))
        if len(manifests) > 1:
            raise ConfigError(
                f"{manifests[0]} next to {manifests[1]}: a folder holds one append-only file; move the other"
            )
        old = [name for name in names if name.endswith(_OLD) and not name.startswith((".", "temp-"))]
        if old and not manifests and all(self.segment_order(name) is None for name in old):
            raise ConfigError(
                f"{old[0]} is the append-only file of Redis before 7, which replaces it at each rewrite; with "
                "Redis 7 or Valkey, replicate the folder that appenddirname names"
            )

    def log_id(self, name: str, head: memoryview) -> UUID | None:  # noqa: ARG002  # such files have none
        return None

    def manifest_name(self, names: Sequence[str]) -> str | None:
        return next((name for name in names if is_manifest(name)), None)

    def read_manifest(self, content: bytes) -> list[str]:
        return read_manifest(content)

    def write_manifest(self, names: Sequence[str]) -> tuple[str, bytes]:
        return write_manifest(names)

    def ignores(self, name: str) -> bool:
        return name.startswith("temp-")

    def check_head(self, path: str, head: bytes) -> None:
        refuse_others(path, head, RedisAofFormat.name)

    def find_commit(self, data: memoryview, offset: int, start: int) -> int | None:  # noqa: ARG002
        return find_command(data, start)

    def scan(
        self,
        name: str,
        data: memoryview,
        offset: int,
        expect: Expectation,
        *,
        known: bool = False,  # noqa: ARG002  # every byte is looked at anyway
    ) -> Scan:
        return _describe(offset, expect, _walk_segment(name, data, offset))

    def scan_columns(self, name: str, data: memoryview, offset: int, expect: Expectation) -> tuple[Scan, Columns]:
        """The results of ``scan`` and ``decode``, from one pass over the bytes."""
        found = _walk_segment(name, data, offset)
        return _describe(offset, expect, found), _decode(data, expect, found)

    def commits(self, name: str, data: memoryview, offset: int, expect: Expectation) -> list[Commit]:
        first, before, made = expect.sequence or 0, 0, []
        found = _walk_segment(name, data, offset)
        for start, end, after in found.commits.columns().T.tolist():
            notes = [found.notes.get(number, -1) for number in range(before, after)] if found.notes else [-1]
            noted = None if max(notes) < 0 else max(notes) * _SECOND
            made.append(Commit(offset + start, offset + end, first + before, first + after, None, None, noted))
            before = after
        return made

    def decode(self, name: str, data: memoryview, offset: int, expect: Expectation) -> Columns:
        return _decode(data, expect, _walk_segment(name, data, offset))


def _walk_segment(name: str, data: memoryview, offset: int) -> Commands:
    """The walk over a piece. Redis names a base file in RDB form once it is whole, so all of its bytes are commits."""
    match = NAME.fullmatch(name.rpartition("/")[2])  # callers may give the path, for errors to name it
    if match is None:
        raise WrongFormatError(name, RedisAofFormat.name, "its name is not that of a base or incremental file")
    if match["kind"] != "base.rdb":
        return walk(name, data, offset)
    return _cut_blocks(offset, len(data))


def _cut_blocks(offset: int, size: int) -> Commands:
    """The commits of ``size`` bytes from ``offset`` on: the blocks of a base file in RDB form. A block counts where it
    begins, so that its number does not depend on how the file was read."""
    first, end = -offset % BLOCK_BYTES, offset + size
    edges = [*([0] if first else []), *range(first, size, BLOCK_BYTES), size]
    begun = -(-offset // BLOCK_BYTES)
    ends = edges[1:]
    found = Commands(end=size, blocks=-(-end // BLOCK_BYTES) - begun)
    for at, to in zip(edges, ends, strict=False):
        found.commits.add((at, to, -(-(offset + to) // BLOCK_BYTES) - begun))
        found.last_commit = at
    return found


def _describe(offset: int, expect: Expectation, found: Commands) -> Scan:
    first, records = expect.sequence or 0, found.blocks + len(found.commands)
    return Scan(
        start=offset,
        end=offset + found.end,
        commits=len(found.commits),
        records=records,
        first=first if records else None,
        next=first + records if len(found.commits) else expect.sequence,
        epoch=expect.epoch,
        lowest=None,
        highest=None,
        last_commit=offset + found.last_commit,
        tail=found.tail,
        damage=found.damage,
        wanted=found.wanted,
    )


def _decode(data: memoryview, expect: Expectation, found: Commands) -> Columns:
    """The commands as they are stored, without the annotations before them."""
    first = expect.sequence or 0
    starts, ends, key_starts, key_lengths = found.commands.columns()
    key_starts = np.where(key_lengths < 0, starts, key_starts)  # places must not go back
    return Columns(
        data=data,
        sequences=np.arange(first, first + len(starts), dtype=np.int64),
        timestamps=None,
        key_starts=key_starts,
        key_lengths=key_lengths,
        value_starts=starts,
        value_lengths=ends - starts,
        extra=command_columns(data, starts, ends, found.notes),
    )
