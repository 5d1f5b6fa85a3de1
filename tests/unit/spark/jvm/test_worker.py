"""What the process of the columnar reader answers."""

from __future__ import annotations

import base64
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow

from litelog.spark.jvm.pickles import pickled
from litelog.spark.jvm.worker import serve
from tests.builders.growing_replica import GrowingReplica

if TYPE_CHECKING:
    from pathlib import Path


def asked(request: dict[str, Any]) -> tuple[Any, str]:
    """(answer, error) of a request."""
    text, answers = json.dumps(request | {"about_bytes": 0}).encode(), io.BytesIO()
    serve(io.BytesIO(len(text).to_bytes(4, "big") + text), answers)
    answers.seek(0)
    answer, error = (answers.read(int.from_bytes(answers.read(4), "big")) for _ in range(2))
    return json.loads(answer or b"null"), error.decode()


def test_the_tables_of_a_catalog_are_the_replicas_right_below_a_place(tmp_path: Path) -> None:
    for name in ("users", "orders", "deeper/orders"):
        GrowingReplica(tmp_path / name).grow(1)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("x")
    request = {"ask": "tables", "options": {"path": f"{tmp_path}/", "s3.region": "eu"}}
    assert asked(request) == (["orders", "users"], "")
    assert asked({"ask": "tables", "options": {"path": f"{tmp_path}/orders"}}) == ([], "")
    assert asked({"ask": "tables", "options": {"path": f"{tmp_path}/none"}}) == ([], "")
    answer, error = asked({"ask": "tables", "options": {"path": "nowhere://x"}})
    assert answer is None
    assert "nowhere" in error


def test_an_error_before_the_first_rows_follows_a_stream_without_rows() -> None:
    """A Python of another version, for example, cannot read the description of a log."""
    schema = {"type": "struct", "fields": [{"name": "value", "type": "binary", "nullable": True, "metadata": {}}]}
    log = base64.b64encode(pickled(io.BytesIO)).decode()
    request = {"ask": "read", "schema": json.dumps(schema), "log": log, "about_bytes": 0}
    text, answers = json.dumps(request).encode(), io.BytesIO()
    serve(io.BytesIO(len(text).to_bytes(4, "big") + text), answers)
    answers.seek(0)
    with pyarrow.ipc.open_stream(answers) as stream:
        assert stream.read_all().num_rows == 0
    error = answers.read(int.from_bytes(answers.read(4), "big")).decode()
    assert "a plan does not hold _io.BytesIO" in error
