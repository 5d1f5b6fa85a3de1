"""Readers that began before log segments were merged get each record once, also if the old generation is gone since."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")

from litelog.errors import PrunedError
from litelog.formats.litelog import SEGMENT_HEADER_BYTES, LitelogFormat
from litelog.reading.replica_reader import ReplicaReader
from litelog.restore.execution import restore
from litelog.restore.follow import CopyFollower
from litelog.restore.history_plan import Target, find_plan
from litelog.retention.policy import RetentionPolicy
from litelog.spark.maintenance.plan import MaintenanceOptions
from tests.builders.batch_replicas import client_of, commits_of, records_of, run, small_appends
from tests.builders.restoring import files_in
from tests.builders.spark_streaming import Query

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders.many_generations import CountedReplica

PRUNE = MaintenanceOptions(RetentionPolicy(max_age=3600.0))


def merge(replica: CountedReplica, *, prune: bool = False) -> None:
    """Merge; with ``prune``, delete all that is not needed after that."""
    run(replica, hours=24)
    if prune:
        run(replica, PRUNE, hours=30)


def test_a_reader_that_began_before_reads_to_the_end() -> None:
    replica = small_appends(6)
    with ReplicaReader(client_of(replica)) as reader:
        batches = reader.batches()
        found = list(next(batches).records())
        merge(replica)
        replica.append()
        found += [record for columns in batches for record in columns.records()]
    assert found == records_of(replica)


@pytest.mark.parametrize("prune", [False, True])
@pytest.mark.parametrize("batches", [1, 2, 4, 6])
def test_a_stream_goes_on_after_log_segments_were_merged(batches: int, prune: bool) -> None:
    """Its checkpoint is within the generation that was merged, or at its end."""
    replica = small_appends(5)
    query = Query(replica.url, maxFilesPerTrigger=1)
    for _ in range(batches):
        query.step()
    query.restart()
    merge(replica, prune=prune)
    replica.append()
    query.restart()
    query.run()
    assert query.sequences() == list(range(12))


def test_a_stream_that_missed_several_generations_goes_on() -> None:
    replica = small_appends(2)
    query = Query(replica.url).run()
    for _ in range(4):
        replica.append()
    merge(replica, prune=True)
    replica.append()
    query.restart()
    assert query.run().sequences() == list(range(14))


def test_a_batch_that_must_be_made_again_from_what_is_gone_is_an_error() -> None:
    replica = small_appends(5)
    query = Query(replica.url, maxFilesPerTrigger=2)
    for _ in range(3):
        query.step()
    merge(replica, prune=True)
    query.start()
    with pytest.raises(PrunedError):
        query.read(2)


def copied(replica: CountedReplica, folder: Path) -> CopyFollower:
    client = client_of(replica)
    plan = find_plan(client, Target(), LitelogFormat())
    restore(client, plan, str(folder), log_format=LitelogFormat())
    return CopyFollower(client, str(folder), plan, LitelogFormat())


def test_a_copy_that_follows_gets_only_what_is_new(tmp_path: Path) -> None:
    replica = small_appends(5)
    with copied(replica, tmp_path / "copy") as follower:
        for _ in range(3):
            merge(replica)
            replica.append()
            while follower.step():
                pass
    files = files_in(tmp_path / "copy")
    assert len(files) == 8
    content = b"".join(files[name][SEGMENT_HEADER_BYTES:] for name in sorted(files))
    assert content == commits_of(replica, tmp_path / "whole")


def test_a_copy_that_lags_behind_a_merge_ends_with_an_error(tmp_path: Path) -> None:
    replica = small_appends(3)
    with copied(replica, tmp_path / "copy") as follower:
        for _ in range(3):
            replica.append()
        merge(replica, prune=True)
        before = files_in(tmp_path / "copy")
        with pytest.raises(PrunedError):
            follower.step()
        assert files_in(tmp_path / "copy") == before


def test_a_copy_that_stands_after_what_was_merged_goes_on(tmp_path: Path) -> None:
    """The log segment at which it stands has its own name in the merged generation, too."""
    replica = small_appends(5)
    with copied(replica, tmp_path / "copy") as follower:
        replica.append()
        two = 2 * max(len(body) for body in files_in(tmp_path / "copy").values())
        done = run(replica, MaintenanceOptions(segment_bytes=two), hours=24)
        assert [len(group) for group in done.plan.groups] == [2, 2, 1, 1]
        while follower.step():
            pass
    files = files_in(tmp_path / "copy")
    content = b"".join(files[name][SEGMENT_HEADER_BYTES:] for name in sorted(files))
    assert content == commits_of(replica, tmp_path / "whole")
