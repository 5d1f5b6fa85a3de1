"""Columns that only some formats have: in a schema that asks for them, and with a batch's metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

from litelog.formats.capabilities import extra_columns
from litelog.formats.redis_aof import RedisAofFormat
from litelog.formats.spacetimedb import SpacetimeDBFormat
from litelog.spark.options import parse_options
from litelog.spark.scan.decoding import read_partition
from litelog.spark.scan.planning import plan, stated_columns
from litelog.spark.scan.schema import FORMAT_TYPES, Column, asked_columns, type_of
from litelog.stores.registry import open_store
from tests.builders.daemon_builder import Daemon
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.recorded_logs import unpack

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def rows(url: str, columns: Sequence[Column] | None = None, **options: str) -> list[dict[str, Any]]:
    parsed = parse_options({"path": url, **options})
    wanted = stated_columns(parsed) if columns is None else columns
    return [
        row
        for partition in plan(parsed).partitions
        for batch in read_partition(partition, wanted)
        for row in batch.to_pylist()
    ]


def asked(*names: str) -> tuple[Column, ...]:
    return asked_columns(parse_options({"path": "/a"}), [(name, FORMAT_TYPES[name.lower()], True) for name in names])


def ship(log: LogBuilder, folder: Path) -> str:
    url = f"file://{folder}/replica"
    Daemon(log, open_store(url), str(folder / "state"), backlog_sealer=True).sync()
    return url


@pytest.mark.slow
def test_commands_of_redis_have_names_and_arguments(tmp_path: Path) -> None:
    url = ship(LogBuilder(str(unpack("redis_aof", "commands", tmp_path)), RedisAofFormat()), tmp_path)
    found = rows(url, asked("Command", "arguments", "ts"))
    assert found[1] == {"Command": "SET", "arguments": [b"first:text", b"one"], "ts": None}
    assert any(row["ts"] for row in found)
    for options in ({"includemetadata": "true"}, {"includemetadata": "true", "startingsequence": "3"}):
        every = rows(url, **options)
        assert [row["arguments"] for row in every] == [row["arguments"] for row in found][-len(every) :]
        assert list(every[0])[-3:] == ["command", "arguments", "ts"]
    assert list(rows(url)[0]) == ["sequence", "timestamp", "key", "value"]


def test_commits_of_spacetimedb_count_their_transactions(tmp_path: Path) -> None:
    url = ship(LogBuilder(str(unpack("spacetimedb", "epochs", tmp_path)), SpacetimeDBFormat()), tmp_path)
    every = rows(url, includemetadata="true")
    assert sum(row["transactions"] for row in every) == every[-1]["sequence"] + every[-1]["transactions"]
    assert rows(url, asked("transactions")) == [{"transactions": row["transactions"]} for row in every]


def test_logs_of_another_format_have_nulls(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    log.roll(3)
    assert rows(ship(log, tmp_path), asked("command", "arguments")) == 3 * [{"command": None, "arguments": None}]


def test_the_types_are_those_of_the_formats() -> None:
    declared = {**extra_columns(RedisAofFormat()), **extra_columns(SpacetimeDBFormat())}
    assert {type_of(column) for column in asked(*FORMAT_TYPES)} == set(FORMAT_TYPES.values())
    assert declared.keys() - FORMAT_TYPES.keys() == {"epoch"}  # in Spark that is a generation's
