"""A journal's fragments in Spark, without Spark: tasks, columns, bounds, and what is refused."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from litelog.errors import ConfigError, CorruptObjectError
from litelog.fragments.reader import JournalGapError
from litelog.spark.options import parse_options
from litelog.spark.scan.journal import journal_columns, plan_journal, read_journal, require_journal_columns
from litelog.spark.scan.schema import asked_columns
from tests.builders.journal_fragments import EXTENSIONS, fragment

if TYPE_CHECKING:
    from pathlib import Path

CONTENTS = [b"".join(b'{"n": %d}\n' % (10 * part + number) for number in range(10)) for part in range(len(EXTENSIONS))]
SIZES = [len(content) for content in CONTENTS]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    at = 0
    for content, extension in zip(CONTENTS, EXTENSIONS, strict=True):
        key, body = fragment(at, content, extension)
        (tmp_path / key).write_bytes(body)
        at += len(content)
    return tmp_path


def rows(journal: Path, **options: object) -> list[dict[str, Any]]:
    parsed = parse_options({"path": str(journal), "format": "gazette", **{k: str(v) for k, v in options.items()}})
    columns = journal_columns(parsed)
    batches = [batch for part in plan_journal(parsed) for batch in read_journal(part, columns)]
    return [row for batch in batches for row in batch.to_pylist()]


def test_each_line_is_a_row(journal: Path) -> None:
    found = rows(journal)
    assert [row["value"] for row in found] == b"".join(CONTENTS).split(b"\n")[:-1]
    assert found[11] == {"sequence": SIZES[0] + 10, "timestamp": None, "key": None, "value": b'{"n": 11}'}


@pytest.mark.parametrize(
    ("options", "tasks"),
    [({}, 1), ({"maxPartitionBytes": 200}, 3), ({"numPartitions": 2}, 2), ({"maxPartitionBytes": 1}, len(EXTENSIONS))],
)
def test_neighbouring_fragments_are_dealt_to_tasks(journal: Path, options: dict[str, object], tasks: int) -> None:
    given = {name: str(value) for name, value in options.items()}
    parsed = parse_options({"path": str(journal), "format": "gazette", **given})
    assert len(plan_journal(parsed)) == tasks
    assert rows(journal, **options) == rows(journal)


def test_bounds_are_offsets(journal: Path) -> None:
    first, stop = SIZES[0] + 10, SIZES[0] + SIZES[1] + 5
    found = rows(journal, startingSequence=first, endingSequence=stop)
    assert [row["sequence"] for row in found] == [
        row["sequence"] for row in rows(journal) if first <= row["sequence"] < stop
    ]


def test_a_gap_is_an_error_unless_loss_is_accepted(journal: Path) -> None:
    (removed,) = (path for path in journal.iterdir() if path.suffix == ".sz")
    os.remove(removed)
    with pytest.raises(JournalGapError, match=f"the bytes {sum(SIZES[:2])} to {sum(SIZES[:3]) - 1}"):
        rows(journal)
    assert [row["value"] for row in rows(journal, failOnDataLoss="false")] == b"".join(
        CONTENTS[:2] + CONTENTS[3:]
    ).split(b"\n")[:-1]


def test_a_damaged_fragment_fails_its_task(journal: Path) -> None:
    (damaged,) = (path for path in journal.iterdir() if path.suffix == ".raw")
    damaged.write_bytes(CONTENTS[0].replace(b"5", b"6"))
    with pytest.raises(CorruptObjectError, match="SHA-1 of the content"):
        rows(journal)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"includeMetadata": "true"}, "includeMetadata"),
        ({"pattern": "*"}, "pattern"),
        ({"mode": "DROPMALFORMED"}, "mode"),
        ({"startingTimestamp": "2026-11-25T00:00:00Z"}, "bounds by time"),
        ({"path": "/some/*"}, "several paths"),
    ],
)
def test_what_a_journal_has_not_is_refused(options: dict[str, str], what: str) -> None:
    parsed = parse_options({"path": "/journal", "format": "gazette", **options})
    with pytest.raises(ConfigError, match=f"are read without {what}"):
        journal_columns(parsed)


def test_a_column_of_replicas_is_refused() -> None:
    parsed = parse_options({"path": "/journal", "format": "gazette"})
    with pytest.raises(ConfigError, match="a journal has no column 'epoch'"):
        require_journal_columns(asked_columns(parsed, [("value", "binary", True), ("epoch", "bigint", True)]))
