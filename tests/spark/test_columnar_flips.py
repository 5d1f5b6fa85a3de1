"""Both engines find each flipped bit of a sealed segment, and heal it."""

from __future__ import annotations

import os
from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from litelog.codec.frame_codecs import Compression
from litelog.spark.options import Engine
from tests.builders.replica_builder import ReplicaBuilder, make_log
from tests.builders.spark_shipping import require_columnar, run_and_count
from tests.sampling import sampled

if TYPE_CHECKING:
    from pathlib import Path

FLIPS_OF_A_QUERY = 300


def _rows_by_log(frame: Any) -> dict[str, list[tuple[Any, ...]]]:
    found: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for row in frame.collect():
        found[row.log.rpartition("/")[2]].append((row.sequence, row.timestamp, row.key, row.value))
    return {log: sorted(rows) for log, rows in found.items()}


def _flip(objects: dict[str, bytes], whole: Path, place: Path, bit: int) -> None:
    """Make a replica at ``place`` as the one at ``whole``, except for one bit of its sealed segment."""
    for key, body in objects.items():
        (place / key).parent.mkdir(parents=True, exist_ok=True)
        if "/segments/" in key:
            changed = bytearray(body)
            changed[bit // 8] ^= 1 << bit % 8
            (place / key).write_bytes(changed)
        else:
            os.link(whole / key, place / key)


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
def test_a_flipped_bit_is_found_and_healed_by_both_engines(
    spark: Any, tmp_path: Path, compression: Compression
) -> None:
    """Each replica has another byte of its only sealed segment damaged, and still has the WAL segments of it. One query
    reads many replicas. Java passes each of them on to Python: no bit is without effect on its checks."""
    require_columnar(spark)
    builder, (segment,) = ReplicaBuilder(), make_log([[3, 1, 2, 4]])
    generation = builder.add()
    generation.compression = compression
    generation.ship_segment(segment, cuts=[1])
    generation.snapshot(1)
    objects = builder.objects()
    (sealed,) = (key for key in objects if "/segments/" in key)
    whole = tmp_path / "whole"
    for key, body in objects.items():
        (whole / key).parent.mkdir(parents=True, exist_ok=True)
        (whole / key).write_bytes(body)
    undamaged = spark.read.format("litelog").option("includeMetadata", True).load(str(whole))
    assert run_and_count(undamaged)["python"] == 0
    (wanted,) = _rows_by_log(undamaged).values()
    assert len(wanted) == 10
    places = sampled(range(len(objects[sealed])), 250, f"bytes of a sealed segment that Spark reads, {compression}")
    bits = [8 * place + Random(place).randrange(8) for place in places]
    for start in range(0, len(bits), FLIPS_OF_A_QUERY):
        flipped = bits[start : start + FLIPS_OF_A_QUERY]
        folder = tmp_path / f"{start}"
        for bit in flipped:
            _flip(objects, whole, folder / f"bit-{bit}", bit)
        frames = {
            engine: spark.read.format("litelog").option("engine", engine).load(f"{folder}/*") for engine in Engine
        }
        for engine, frame in frames.items():
            rows = _rows_by_log(frame)
            assert {log for log in rows if rows[log] != wanted} == set(), engine
            assert set(rows) == {f"bit-{bit}" for bit in flipped}
        assert run_and_count(frames[Engine.JAVA].select("*"))["python"] == len(flipped)
