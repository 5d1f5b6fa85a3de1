"""What a task does with its replicas: the jobs without Spark."""

from __future__ import annotations

import json
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

from litelog.restore.output import OutputFolder
from litelog.restore.plan import Target
from litelog.spark.fleet.copies import CopyJob
from litelog.spark.fleet.exports import ExportJob
from litelog.spark.fleet.replicas import FleetReplica, find_fleet
from litelog.spark.fleet.restores import RestoreJob
from litelog.spark.fleet.running import run_one
from litelog.spark.fleet.verifications import VerifyJob
from litelog.verify.findings import Scope
from tests.builders.growing_replica import GrowingReplica
from tests.builders.replica_builder import SECOND
from tests.builders.spark_reading import table_sequences

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def replica(tmp_path: Path) -> GrowingReplica:
    return GrowingReplica(tmp_path / "fleet" / "orders").grow(3, 2)


def found(tmp_path: Path) -> FleetReplica:
    (only,) = find_fleet(f"{tmp_path}/fleet/*", {})
    return only


def restore_job(tmp_path: Path, target: Target | None = None, *, delta: bool = False) -> RestoreJob:
    return RestoreJob(str(tmp_path / "logs"), {}, target or Target(), None, delta)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_replica_is_copied_below_the_target(replica: GrowingReplica, tmp_path: Path) -> None:
    job = CopyJob(str(tmp_path / "copies"), {}, {})
    first, second = (run_one(pickle.loads(pickle.dumps(job)), found(tmp_path)) for _ in range(2))
    assert (first["ok"], first["name"], first["exit_code"]) == (True, "orders", 0)
    assert first["copied_objects"] == first["objects"] > 0
    assert second["copied_objects"] == 0
    assert files(tmp_path / "copies" / "orders") == files(tmp_path / "fleet" / "orders")


def test_a_log_that_an_earlier_attempt_restored_is_done(replica: GrowingReplica, tmp_path: Path) -> None:
    first = run_one(restore_job(tmp_path), found(tmp_path))
    assert (first["ok"], first["there"], first["records"], first["log_segments"]) == (True, False, 5, 2)
    restored = files(tmp_path / "logs" / "orders")
    again = run_one(restore_job(tmp_path), found(tmp_path))
    assert (again["ok"], again["there"]) == (True, True)

    segment = tmp_path / "logs" / "orders" / sorted(restored)[-1]
    for changed in (restored[segment.name][:-1], restored[segment.name] + b"more"):
        segment.write_bytes(changed)
        row = run_one(restore_job(tmp_path), found(tmp_path))
        assert (row["ok"], row["error"], row["exit_code"]) == (False, "OutputExistsError", 1)
        assert segment.read_bytes() == changed
    assert run_one(restore_job(tmp_path, delta=True), found(tmp_path))["ok"]
    assert files(tmp_path / "logs" / "orders") == restored
    segment.unlink()
    assert run_one(restore_job(tmp_path), found(tmp_path))["error"] == "OutputExistsError"


@pytest.mark.parametrize("target", [Target(sequence=2), Target(timestamp=3 * SECOND)])
def test_a_bounded_restore_that_is_run_again_is_done(replica: GrowingReplica, tmp_path: Path, target: Target) -> None:
    """Also after the log has grown. What differs in a byte, or was restored up to another bound, is left alone."""
    bounded = restore_job(tmp_path, target)
    first = run_one(bounded, found(tmp_path))
    assert (first["ok"], first["there"]) == (True, False)
    restored = files(tmp_path / "logs")
    leftover = tmp_path / "logs" / ".orders.compared" / "log"
    leftover.mkdir(parents=True)
    (leftover / "half").write_bytes(b"of an attempt that was killed")
    replica.grow(4)
    again = run_one(bounded, found(tmp_path))
    assert (again["ok"], again["there"]) == (True, True)
    assert files(tmp_path / "logs") == restored

    for other in (Target(sequence=8), Target()):
        assert run_one(restore_job(tmp_path, other), found(tmp_path))["error"] == "OutputExistsError"
    segment = tmp_path / "logs" / max(restored)
    segment.write_bytes(restored[max(restored)][:-1] + b"?")
    assert run_one(bounded, found(tmp_path))["error"] == "OutputExistsError"
    (segment.parent / "more").write_bytes(b"")
    segment.write_bytes(restored[max(restored)])
    assert run_one(bounded, found(tmp_path))["error"] == "OutputExistsError"
    assert segment.read_bytes() == restored[max(restored)]


def test_two_attempts_compare_a_bounded_restore_one_after_the_other(replica: GrowingReplica, tmp_path: Path) -> None:
    bounded = restore_job(tmp_path, Target(sequence=2))
    run_one(bounded, found(tmp_path))
    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(lambda _: run_one(bounded, found(tmp_path)), range(8)))
    assert [(row["ok"], row["there"]) for row in rows] == [(True, True)] * 8
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["orders"]


def test_a_log_that_has_grown_is_not_taken_for_restored(replica: GrowingReplica, tmp_path: Path) -> None:
    assert run_one(restore_job(tmp_path), found(tmp_path))["ok"]
    replica.grow(4)
    assert run_one(restore_job(tmp_path), found(tmp_path))["error"] == "OutputExistsError"


def test_a_restore_waits_for_another_attempt(replica: GrowingReplica, tmp_path: Path) -> None:
    """The other attempt may be killed: then this one restores the log."""
    (tmp_path / "logs").mkdir()
    with ThreadPoolExecutor(1) as pool:
        with OutputFolder(str(tmp_path / "logs" / "orders")):
            started = threading.Event()

            def run() -> dict[str, Any]:
                started.set()
                return run_one(restore_job(tmp_path), found(tmp_path))

            row = pool.submit(run)
            started.wait()
            assert not os.path.exists(tmp_path / "logs" / "orders")
        assert row.result()["ok"]


def test_a_verification_reports_what_is_wrong(replica: GrowingReplica, tmp_path: Path) -> None:
    job = VerifyJob({}, Scope(), None)
    row = run_one(job, found(tmp_path))
    assert (row["ok"], row["anomaly_count"], json.loads(row["report"])["harmful_count"]) == (True, 0, 0)
    sealed = next((tmp_path / "fleet").rglob("*.segment.lz4"))
    sealed.chmod(0o644)
    sealed.write_bytes(sealed.read_bytes()[:-1])
    row = run_one(job, found(tmp_path))
    assert (row["ok"], row["error"], row["exit_code"]) == (False, "CorruptionError", 6)
    assert sealed.name in row["message"]
    row = run_one(job, FleetReplica(str(tmp_path / "none"), "none"))
    assert (row["ok"], row["error"], row["exit_code"]) == (False, "NoReplicaError", 3)


@pytest.mark.slow
def test_a_log_is_exported_in_one_task(replica: GrowingReplica, tmp_path: Path) -> None:
    job = ExportJob(str(tmp_path / "tables"), {"partition_by": "date"})
    row = run_one(job, found(tmp_path))
    assert (row["ok"], row["runs"], row["records"], row["next"]) == (True, 1, 5, 5)
    replica.grow(4)
    assert run_one(job, found(tmp_path))["records"] == 4
    assert table_sequences(tmp_path / "tables" / "orders") == list(range(9))


def test_an_error_that_is_not_litelogs_is_reported_as_well(tmp_path: Path) -> None:
    class Failing:
        columns = "a STRING"

        def run(self, replica: FleetReplica) -> dict[str, object]:
            raise MemoryError(replica.name)

    row = run_one(Failing(), FleetReplica(str(tmp_path), "x"))
    assert (row["ok"], row["error"], row["message"], row["exit_code"], row["a"]) == (False, "MemoryError", "x", 1, None)


def test_jobs_show_no_secrets(tmp_path: Path) -> None:
    secret = {"secret-access-key": "hidden"}
    jobs = [CopyJob("s3://u:hidden@b", secret, secret), RestoreJob("/o", secret, Target(), None, False)]
    jobs += [VerifyJob(secret, Scope(), None), ExportJob("s3://u:hidden@b", {"options": secret})]
    assert "hidden" not in repr([*jobs, FleetReplica("s3://u:hidden@b", "x")])
