"""A log that its writer compacted is compared record by record: what it still holds is in the replica, as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from litelog.formats.columns import Columns
from litelog.formats.kafka import KafkaFormat
from litelog.verify.rewritten import find_unlike
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon
from tests.builders.log_builder import LogBuilder
from tests.builders.recorded_logs import unpack
from tests.builders.verify_helper import found, verified

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def columns(*records: tuple[int, int, bytes | None, bytes]) -> Columns:
    """Records of (sequence, time, key, value)."""
    data, keys, values = b"", [], []
    for _, _, key, value in records:
        keys.append((len(data), -1 if key is None else len(key)))
        data += key or b""
        values.append((len(data), len(value)))
        data += value
    starts, lengths = np.array(values, np.int64).reshape(-1, 2).T
    key_starts, key_lengths = np.array(keys, np.int64).reshape(-1, 2).T
    sequences = np.array([record[0] for record in records], np.int64)
    times = np.array([record[1] for record in records], np.int64)
    return Columns(memoryview(data), sequences, times, key_starts, key_lengths, starts, lengths)


HELD = [(sequence, sequence * 10, b"k%d" % (sequence % 3), b"v" * sequence) for sequence in range(20)]


def compare(local: Sequence[tuple[int, int, bytes | None, bytes]], held: Sequence[slice]) -> int | None:
    replica = iter([columns(*HELD[part]) for part in held])
    half = len(local) // 2
    return find_unlike([columns(*local[:half]), columns(*local[half:])], replica)


PIECES = [slice(0, 20)], [slice(0, 7), slice(7, 8), slice(8, 20)]


@pytest.mark.parametrize("held", PIECES)
@pytest.mark.parametrize("kept", [range(20), range(0, 20, 2), [3, 19], [0], []])
def test_any_part_of_the_records_is_alike(held: Sequence[slice], kept: Sequence[int]) -> None:
    assert compare([HELD[number] for number in kept], held) is None
    newer = (25, 1, None, b"not shipped yet")
    assert compare([*(HELD[number] for number in kept), newer], held) is None


@pytest.mark.parametrize("held", PIECES)
@pytest.mark.parametrize(
    "changed",
    [
        (8, 81, b"k2", b"v" * 8),
        (8, 80, b"k1", b"v" * 8),
        (8, 80, None, b"v" * 8),
        (8, 80, b"", b"v" * 8),
        (8, 80, b"k2", b"v" * 7 + b"w"),
        (8, 80, b"k2", b"v" * 7),
        (8, 80, b"k2x", b"v" * 8),
    ],
)
def test_a_record_with_other_content_is_found(
    held: Sequence[slice], changed: tuple[int, int, bytes | None, bytes]
) -> None:
    local = [HELD[number] for number in range(0, 20, 2)]
    local[4] = changed
    assert compare(local, held) == 8


def test_a_record_that_the_replica_lacks_is_found() -> None:
    local = [HELD[number] for number in range(2, 12)]
    assert compare(local, [slice(0, 5), slice(7, 20)]) == 5
    assert compare(local, [slice(3, 20)]) == 2


@pytest.mark.slow
def test_a_compacted_partition_is_compared_by_its_records(tmp_path: Path) -> None:
    """The broker's cleaner rewrote the partition after it was shipped."""
    before, after = (unpack("kafka", f"{when}_compaction", tmp_path / when) for when in ("before", "after"))
    log = LogBuilder(str(before), KafkaFormat())
    daemon = Daemon(log, MemoryStore("test"), str(tmp_path / "state"))
    daemon.sync()
    report = verified(daemon.store, log.format, against=str(after))
    assert found(report) == []
    assert report.against is not None
    rewritten = [each.file for each in report.against.not_compared if each.reason == "rewritten"]
    assert rewritten, "the cleaner changed log segments"
    segments = sorted(path for path in after.iterdir() if path.suffix == ".log" and path.stat().st_size)
    kept = LogBuilder(str(after), KafkaFormat())
    other = unpack("kafka", "plain_none", tmp_path / "other")
    plain = next(path for path in other.iterdir() if path.suffix == ".log")
    kept.replace(plain.read_bytes(), segments[0].name)
    (kind, key), *_ = found(verified(daemon.store, log.format, against=str(after)))
    assert (kind, key) == ("differs", str(after))
