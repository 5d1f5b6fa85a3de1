"""Kills the driver of a stream into a log at its system calls, again and again: each record is in the log once.

The driver runs micro-batches as Spark does, without a JVM: it plans a micro-batch, writes its partitions, commits it to
the sink, and then to its checkpoint. ``tests/spark/test_stream_sink.py`` kills Spark itself.
"""

from __future__ import annotations

import signal
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from litelog.formats.registry import open_format
from litelog.verify.execution import verify
from replica_clients.file import FileStore
from tests.builders.spark_writing import read_replica
from tests.faults.figures import report
from tests.faults.tracing import count_calls, run_traced, why_not_traced
from tests.sampling import SEED, times

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from tests.warm import Warm

pytestmark = pytest.mark.skipif(why_not_traced() is not None, reason=why_not_traced() or "")

CALLS = "?write,?link,?linkat,?rename,?renameat,?fsync,?fdatasync,?mkdir,?unlink,?unlinkat"
"""Those that change files. Not every machine has each of them."""
BATCH, BATCHES = 20, 2
"""Records of a micro-batch, and the micro-batches that come between one kill and the next."""

SCRIPT = """
import os
import pickle
import sys
import pyarrow
from pyspark.sql.types import StringType, StructType
from litelog.spark.sink.stream_writer import make_stream_writer
from litelog.spark.sink.writer import RunningTask

replica, checkpoint, size, stop = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
schema = StructType().add("value", StringType())
options = {"path": replica, "checkpointlocation": checkpoint, "segmentbytes": "16KiB"}
os.makedirs(checkpoint, exist_ok=True)
attempt = 0
for batch in range(max(map(int, filter(str.isdigit, os.listdir(checkpoint))), default=-1) + 1, stop):
    sent = pickle.dumps(make_stream_writer(options, schema, overwrite=False))
    messages = []
    for partition in range(2):
        numbers = range(batch * size + partition * size // 2, batch * size + (partition + 1) * size // 2)
        rows = pyarrow.RecordBatch.from_pydict({"value": [str(number) for number in numbers]})
        done = pickle.loads(sent).write_as(RunningTask(partition, attempt, "query"), [rows])
        messages.append(pickle.loads(pickle.dumps(done)))
        attempt += 1
    make_stream_writer(options, schema, overwrite=False).commit(messages, batch)
    with open(os.path.join(checkpoint, ".new"), "wb") as file:
        os.fsync(file.fileno())
    os.rename(file.name, os.path.join(checkpoint, str(batch)))
"""
"""As Spark does, each instance of the writer is used for one thing, and tasks get theirs pickled. The numbers of
attempts begin again with each driver."""


def run(place: Path, warm: Warm, stop: int, *tracing: str) -> subprocess.CompletedProcess[str]:
    """Run a driver until micro-batch ``stop``, not included, unless it is killed."""
    return run_traced(warm, tracing, SCRIPT, str(place / "replica"), str(place / "checkpoint"), str(BATCH), str(stop))


def find_points(place: Path, warm: Warm) -> list[tuple[str, int]]:
    """The calls of a driver at which to kill one: a name, and how often it was called before."""
    done = run(place, warm, BATCHES, "-o", str(place / "trace"), "-e", f"trace={CALLS}")
    assert done.returncode == 0, done.stderr
    counts = count_calls(place / "trace")
    return [(call, number) for call in sorted(counts) for number in range(1, counts[call] + 1)]


@pytest.mark.timeout(1800)
def test_a_driver_killed_again_and_again_leaves_each_record_once(tmp_path: Path, warm: Warm) -> None:
    chance, wanted = Random(f"{SEED} sink"), times(4, at_night=50)
    points = find_points(tmp_path, warm)
    kills: Counter[str] = Counter()
    stop = BATCHES
    while kills.total() < wanted:
        stop += BATCHES
        call, number = chance.choice(points)
        died = run(tmp_path, warm, stop, "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}")
        if died.returncode == -signal.SIGKILL:
            kills[call] += 1
        else:
            assert died.returncode == 0, died.stderr
    done = run(tmp_path, warm, stop + 1)
    assert done.returncode == 0, done.stderr
    url = str(tmp_path / "replica")
    found = Counter(int(record.value) for record in read_replica(url))
    lost = set(range((stop + 1) * BATCH)) - found.keys()
    twice = [value for value, times_found in found.items() if times_found > 1]
    report("sink_crash", kills=kills.total(), records=(stop + 1) * BATCH, lost=len(lost), twice=len(twice))
    assert (sorted(lost), twice, found.keys() - set(range((stop + 1) * BATCH))) == ([], [], set())
    assert [str(anomaly) for anomaly in verify(FileStore(url), formats=open_format).anomalies if anomaly.harmful] == []
