"""Each log has one name. The name does not change when other logs are added, and no two logs share a name."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from litelog.errors import ConfigError
from litelog.spark.options import parse_options
from litelog.spark.scan.inputs import ScanInput, find_places
from litelog.spark.stream.batching import Budget
from litelog.spark.stream.follower import StreamFollower
from litelog.spark.stream.options import parse_stream_options
from tests.builders.replica_builder import ReplicaBuilder, client_of, make_log

ONE, OTHER = (f"s3://bucket/logs/a?endpoint=https://{name}" for name in ("one", "other"))


def _names(*urls: str) -> list[str]:
    return [place.name for place in find_places(parse_options({"paths": json.dumps(urls)}))]


def test_a_log_is_named_by_its_whole_path() -> None:
    assert _names(ONE) == ["bucket/logs/a"]
    assert _names(ONE, "s3://bucket/logs/b") == ["bucket/logs/a", "bucket/logs/b"]


def test_logs_of_one_path_on_two_endpoints_have_names_that_stay() -> None:
    first, second = _names(ONE, OTHER)
    assert first != second
    assert {first[:-9], second[:-9]} == {"bucket/logs/a"}
    assert _names(OTHER, "s3://bucket/logs/b", ONE) == [second, "bucket/logs/b", first]
    assert _names(f"{ONE}&session-token=canary", OTHER) == [first, second]
    assert _names("s3://bucket/a", "gs://bucket/a")[0][:-9] == "bucket/a"


def test_inputs_that_differ_only_in_a_secret_are_refused() -> None:
    with pytest.raises(ConfigError, match="name the log once") as caught:
        _names(f"{ONE}&session-token=canary", ONE)
    assert "canary" not in str(caught.value)


def _follower(*urls: str) -> StreamFollower:
    builder = ReplicaBuilder()
    builder.add().ship_segment(make_log([[2, 1]])[0], final=None)

    def open_one(place: ScanInput, _: object) -> Any:
        assert place.url in urls
        return client_of(builder.objects())

    return StreamFollower(parse_stream_options({"paths": json.dumps(urls)}), clients=open_one, pause=0.0)


@pytest.mark.slow
def test_a_stream_refuses_a_checkpoint_in_which_a_name_may_mean_another_log() -> None:
    budget = Budget(None, None)
    both, alone = _follower(ONE, OTHER), _follower(ONE)
    two = both.latest(both.initial(), budget)
    one = alone.latest(alone.initial(), budget)
    assert (sorted(two["logs"]), sorted(one["logs"])) == (sorted(_names(ONE, OTHER)), ["bucket/logs/a"])
    for urls, offsets in (((ONE, OTHER), one), ((ONE,), two)):
        with pytest.raises(ConfigError, match="has the same path"):
            _follower(*urls).latest(offsets, budget)
