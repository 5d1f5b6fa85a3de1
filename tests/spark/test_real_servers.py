"""Stores that sign no URLs are read by Python, with either engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from litelog.spark.options import Engine
from litelog.stores.registry import open_store
from tests.builders.real_servers import AZURITE, FAKE_GCS, Kind, find_lacking, started
from tests.builders.replica_builder import ReplicaBuilder, make_log
from tests.builders.spark_shipping import require_columnar, run_and_count

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("kind", [AZURITE, FAKE_GCS], ids=lambda kind: kind.name)
def test_python_reads_what_java_has_no_url_of(spark: Any, kind: Kind, tmp_path: Path) -> None:
    """Also for ``engine=java``, and of each sealed segment."""
    if reason := find_lacking(kind):
        pytest.skip(reason)
    require_columnar(spark)
    builder, log = ReplicaBuilder(), make_log([[3, 1], [2, 4]])
    generation = builder.add()
    for segment in log:
        generation.ship_segment(segment, cuts=[1])
    generation.snapshot(2)
    server = started(kind, tmp_path)
    try:
        url, options = server.new_place()
        store = open_store(url, options)
        for key, body in builder.objects().items():
            store.put(key, [body])
        store.close()
        source = spark.read.format("litelog").options(**{f"store.{name}": value for name, value in options.items()})
        for engine in Engine:
            frame = source.option("engine", engine).load(url)
            assert sorted(row.sequence for row in frame.collect()) == list(range(10))
            assert frame.where("sequence = 7").count() == 1
        told = run_and_count(source.option("engine", Engine.JAVA).load(url))
        assert (told["requests"], told["python"] > 0) == (0, True)
    finally:
        server.end()
