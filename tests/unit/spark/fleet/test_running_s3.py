"""Copies of a fleet to S3, and from one S3 to another, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("moto")

from litelog.spark.fleet.copies import CopyJob
from litelog.spark.fleet.replicas import find_fleet
from litelog.spark.fleet.running import run_one
from litelog.spark.fleet.verifications import VerifyJob
from litelog.verify.findings import Scope
from tests.builders.growing_replica import GrowingReplica

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders.servers import S3Server


@pytest.mark.slow
def test_a_fleet_is_copied_to_s3_and_between_buckets(server: S3Server, tmp_path: Path) -> None:
    for name in ("eu/orders", "us/orders"):
        GrowingReplica(tmp_path / name).grow(3, 2)
    options = {name: str(value) for name, value in server.options().items()}
    here, there = (f"s3://{server.make_bucket()}/logs" for _ in range(2))
    local = find_fleet(f"{tmp_path}/*/orders", {})
    assert [run_one(CopyJob(here, {}, options), replica)["message"] for replica in local] == [None, None]
    fleet = find_fleet(f"{here}/*/orders", options)
    assert [(it.name, it.objects, it.bytes) for it in fleet] == [(it.name, it.objects, it.bytes) for it in local]
    rows = [run_one(CopyJob(there, options, options), replica) for replica in fleet]
    assert [(row["message"], row["copied_bytes"]) for row in rows] == [(None, replica.bytes) for replica in local]
    for replica in find_fleet(f"{there}/*/*", options):
        row = run_one(VerifyJob(options, Scope(), None), replica)
        assert (row["name"], row["ok"], row["anomaly_count"]) == (replica.name, True, 0)
