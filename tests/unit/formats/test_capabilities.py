"""Members that a format may offer beyond the contract. A log is read even if its format has none of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import litelog
from litelog.formats import Expectation
from litelog.formats.capabilities import find_commit, first_sequence, is_divisible, scan_columns, scan_commits
from litelog.formats.litelog import LitelogFormat, encode_commit
from litelog.formats.log_format import LogFormat
from litelog.formats.raw import RawFormat
from litelog.log.reader import LogReader
from litelog.log.writer import LogWriter

CONTRACT = {name for name in {*vars(LogFormat), *LogFormat.__annotations__} if not name.startswith("_")}


class Only:
    """A format of another package: it has the members of the contract, and ``more``."""

    def __init__(self, inner: LogFormat, **more: object) -> None:
        self._inner = inner
        self._more = more

    def __getattr__(self, name: str) -> Any:
        if name in self._more:
            return self._more[name]
        if name not in CONTRACT:
            raise AttributeError(name)
        return getattr(self._inner, name)


def records(reader: LogReader) -> list[tuple[int, bytes]]:
    with reader:
        return [(record.sequence, bytes(record.value)) for columns in reader.batches() for record in columns.records()]


@pytest.fixture
def log(tmp_path: Path) -> str:
    folder = str(tmp_path / "log")
    with LogWriter(folder, segment_bytes=1 << 10) as writer:
        for number in range(40):
            writer.append([b"%d" % number, bytes(50)])
    return folder


@pytest.mark.parametrize("start", [0, 1, 17, 79, "latest"])
def test_a_format_with_the_contract_alone_gives_the_same_records(log: str, start: Any) -> None:
    plain = Only(LitelogFormat())
    assert records(LogReader(log, plain, start=start)) == records(LogReader(log, LitelogFormat(), start=start))


@pytest.mark.parametrize("format_class", [LitelogFormat, RawFormat])
def test_without_a_capability_its_default_is_taken(format_class: type[LogFormat]) -> None:
    plain = Only(format_class())
    name, data = "00000000000000000000.log", memoryview(encode_commit(0, 1, 1, [b"value"]))
    assert (is_divisible(plain), first_sequence(plain, name), find_commit(plain, data, 64, 0)) == (False, None, None)
    assert scan_commits(plain, name, data, 64, Expectation()) is None
    scan, columns = scan_columns(plain, name, data, 64, Expectation())
    assert scan == plain.scan(name, data, 64, Expectation())
    assert len(columns) == scan.records


@pytest.mark.slow
def test_another_packages_format_whose_sequences_count_bytes_is_cut_at_any_byte(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"0123456789")
    (tmp_path / "b.bin").write_bytes(b"abcdef")
    theirs = Only(RawFormat("*.bin"), name="blobs", divisible=True)
    assert records(LogReader(str(tmp_path), theirs, start=3, end=12)) == [(3, b"3456789"), (10, b"ab")]


@pytest.mark.slow
def test_no_module_outside_of_the_formats_asks_for_the_class_or_the_name_of_one() -> None:
    root = Path(litelog.__file__).parent
    asks = re.compile(r'isinstance\([^()]*, (Raw|Lines|Litelog|Pattern)Format\)|[=!]= ("raw"|"lines"|RawFormat\.name)')
    modules = [path for path in root.rglob("*.py") if root / "formats" not in path.parents]
    assert [str(path) for path in modules if asks.search(path.read_text())] == []
