"""Maintenance merges, deletes and prunes in S3 as it does in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("moto")

from litelog.formats.registry import open_format
from litelog.retention.policy import RetentionPolicy
from litelog.spark.maintenance.plan import MaintenanceOptions
from litelog.stores.registry import open_store
from litelog.verify.execution import verify
from tests.builders.batch_replicas import die_in_write, records_of, run, small_appends

if TYPE_CHECKING:
    from tests.builders.servers import S3Server


@pytest.mark.slow
def test_small_log_segments_in_s3_become_one(server: S3Server) -> None:
    store = open_store(f"s3://{server.make_bucket()}/events", server.options())
    replica = small_appends(20, inner=store)
    die_in_write(replica)
    before = records_of(replica)
    done = run(replica)
    assert [len(group) for group in done.plan.merges] == [19]
    assert done.deleted == 2
    assert records_of(replica) == before
    assert run(replica).plan.is_empty
    run(replica, MaintenanceOptions(RetentionPolicy(max_age=3600.0)), hours=96)
    assert records_of(replica) == before
    replica.append()
    assert len(records_of(replica)) == len(before) + 2
    report = verify(replica.store, formats=open_format)
    assert [str(anomaly) for anomaly in report.anomalies if anomaly.harmful] == []
    store.close()
