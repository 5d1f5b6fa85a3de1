"""A log of SpacetimeDB is read as its own crate reads it, over what a crashed writer leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litelog.errors import CorruptCommitError
from litelog.formats.spacetimedb import SpacetimeDBFormat
from litelog.log.reader import LogReader
from tests.builders.recorded_logs import unpack, what_was_read
from tests.builders.stdb_log import HEADERS, encode_commit, logical_bytes, segment_name

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = SpacetimeDBFormat()


def read(folder: Path, **options: object) -> list[int]:
    with LogReader(str(folder), FORMAT, **options) as reader:  # type: ignore[arg-type]
        return [record.sequence for record in reader]


@pytest.mark.parametrize("scene", ["version_0", "epochs", "torn", "torn_header", "empty", "compressed"])
def test_a_recorded_log_is_read_as_the_crate_reads_it(scene: str, tmp_path: Path) -> None:
    folder = unpack("spacetimedb", scene, tmp_path)
    firsts = [commit[0] for commit in what_was_read("spacetimedb", scene)["commits"]]
    assert read(folder) == firsts
    assert read(folder, start="latest") == firsts[-1:]
    for start in range(0, firsts[-1] + 2, max(1, firsts[-1] // 20)):
        assert read(folder, start=start) == [first for first in firsts if first >= start]


@pytest.mark.parametrize("after", [b"", encode_commit(1, b"1")])
def test_garbage_that_no_log_segment_continues_is_damage(tmp_path: Path, after: bytes) -> None:
    one = encode_commit(0, b"0")
    (tmp_path / segment_name(0)).write_bytes(HEADERS[1] + one + b"garbage that is a header" + after)
    (tmp_path / segment_name(2)).write_bytes(HEADERS[1] + encode_commit(2, b"2"))
    with LogReader(str(tmp_path), FORMAT) as reader:
        columns = reader.read()
        assert columns is not None
        assert columns.sequences.tolist() == [0]
        with pytest.raises(CorruptCommitError, match=f"{segment_name(0)}: corrupt commit at offset {10 + len(one)}"):
            reader.read()


def test_a_reader_continues_in_a_log_segment_that_was_compressed_meanwhile(tmp_path: Path) -> None:
    folder = unpack("spacetimedb", "compressed", tmp_path)
    packed = {path.name: path.read_bytes() for path in folder.glob("*.log")}
    firsts = read(folder)
    for path in sorted(folder.glob("*.log"))[:2]:
        path.write_bytes(logical_bytes(packed[path.name]))
        with LogReader(str(folder), FORMAT) as reader:
            found = list(reader.read().sequences)  # type: ignore[union-attr]
            temporary = folder / ".tmp"
            temporary.write_bytes(packed[path.name])
            temporary.rename(path)
            found += [record.sequence for record in reader]
        assert found == firsts
