"""The documents on Spark: their code and commands work, and they describe each option and column that exists."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest

from litelog.spark.options import READ_OPTIONS
from litelog.spark.scan.schema import FORMAT_TYPES, TYPES
from litelog.spark.sink.options import OPTIONS
from litelog.spark.stream.options import STREAM_OPTIONS
from litelog_cli.main import run
from tests.builders.documents import DOCUMENTS, RUN, blocks_of, section

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "etc/docs/spark.md"
BLOCKS = {
    document: found
    for document in DOCUMENTS
    if (found := [each for each in blocks_of(document) if each.language in RUN and each.uses_spark])
}


@pytest.mark.parametrize("document", BLOCKS)
def test_code_and_commands_of_the_documents_work(
    document: str, spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The blocks run one after the other in the existing session. Its workers have another folder: paths are whole."""
    for block in BLOCKS[document]:
        text = re.sub(r"\bevents-", f"{tmp_path}/events-", block.text)
        if block.language == "python":
            exec(compile(text, block.place, "exec"), {})
            continue
        for line in map(shlex.split, text.splitlines()):
            assert line[0] == "litelog"
            assert run([*line[1:], "--quiet"]) == 0, line
    if document == PAGE:
        said = capsys.readouterr().out
        assert "exported 1000 records" in said
        assert "all is well" in said
        assert '{"last":999}' in said
    assert spark.range(3).count() == 3  # the session of the other tests still works


def test_every_option_is_described() -> None:
    page = DOCUMENTS[PAGE]
    options = set(re.findall(r"`([A-Za-z]+)`", section(PAGE, "Options")))
    assert {*READ_OPTIONS, *STREAM_OPTIONS} - {"path", "paths"} <= options
    assert {*OPTIONS} - {"path"} <= {*re.findall(r"`([A-Za-z]+)(?:=true)?`", page)}


def test_every_column_is_described_with_its_type() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \| (`[^|]+`) \|", section(PAGE, "Columns"), re.MULTILINE)
    named = [(re.findall(r"`(\w+)`", names), re.findall(r"`([A-Z<>]+)`", kinds)) for names, kinds in rows]
    described = {name: kind.lower() for names, kinds in named for name, kind in zip(names, kinds, strict=True)}
    assert described == {**TYPES, **FORMAT_TYPES}
