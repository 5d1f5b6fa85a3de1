"""``litelog verify --against`` finds the daemon's state, no matter how replica, log and state folder are spelled."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from litelog.errors import ExitCode
from litelog.objects.layout import parse_wal
from litelog_cli.owner_state import normal_place
from replica_clients.s3 import open_store
from tests.builders.servers import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

    from tests.builders.servers import S3Server


def ship_twice(litelog: Command, url: str, log: str = "log") -> None:
    for _ in range(2):
        litelog.lines(300, log)
        assert litelog("replicate", "--once", log, url).code == 0


def lose_newest(replica: Path) -> str:
    newest = max(path for path in replica.rglob("*") if parse_wal(str(path.relative_to(replica))) is not None)
    newest.unlink()
    return str(newest.relative_to(replica))


@pytest.mark.parametrize(
    ("shipped", "named"),
    [
        ("backup", "{folder}/backup/"),
        ("backup", "file://localhost{folder}/backup"),
        ("file://{folder}/backup", "backup"),
        ("{folder}/backup/", "link"),
        ("./backup", "x/../backup"),
    ],
)
def test_a_folder_is_one_place_no_matter_how_it_is_spelled(litelog: Command, shipped: str, named: str) -> None:
    ship_twice(litelog, shipped.format(folder=litelog.folder))
    os.symlink(litelog.folder / "backup", litelog.folder / "link")
    key = lose_newest(litelog.folder / "backup")
    done = litelog("verify", named.format(folder=litelog.folder), "--against", "./log/", "--json")
    assert done.code == ExitCode.CORRUPTION, done.err
    assert [(it["kind"], it["object"]) for it in done.lines[0]["anomalies"]] == [("missing", key)]


def test_another_replica_of_the_log_is_another_place(litelog: Command) -> None:
    ship_twice(litelog, "backup")
    litelog.lines(300)
    assert litelog("replicate", "--once", "log", "other").code == 0
    lose_newest(litelog.folder / "backup")
    done = litelog("verify", "other", "--against", "log")
    assert done.code == ExitCode.DONE, done.out


def test_the_daemon_that_came_furthest_is_believed(litelog: Command) -> None:
    ship_twice(litelog, "backup")
    litelog.lines(300)
    assert litelog("replicate", "--once", "--takeover", "log", f"file://{litelog.folder}/backup").code == 0
    key = lose_newest(litelog.folder / "backup")
    done = litelog("verify", "backup", "--against", "log", "--json")
    assert done.code == ExitCode.CORRUPTION, done.err
    assert ("missing", key) in [(it["kind"], it["object"]) for it in done.lines[0]["anomalies"]]


def test_state_is_where_the_configuration_has_it(litelog: Command) -> None:
    config = litelog.folder / "litelog.yml"
    config.write_text("state-dir: kept\nlogs: [{path: log, replicas: [{url: backup}]}]")
    for _ in range(2):
        litelog.lines(300)
        assert litelog("replicate", "--once", "--config", "litelog.yml").code == 0
    key = lose_newest(litelog.folder / "backup")
    assert litelog("verify", "backup", "--against", "log").code == ExitCode.DONE
    for place in ("backup", "log"):
        done = litelog("verify", "--config", "litelog.yml", place, "--against", "log", "--json")
        assert done.code == ExitCode.CORRUPTION, done.err
        assert [(it["kind"], it["object"]) for it in done.lines[0]["anomalies"]] == [("missing", key)]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("s3://bucket/a/b", "s3://bucket/a/b/"),
        ("s3://bucket/a/b", "s3a://bucket/a//b"),
        ("s3://bucket/a", "s3://bucket/a?endpoint=https://s3.eu-west-1.amazonaws.com"),
        ("s3://bucket/a?endpoint=https://Store:443/", "s3://bucket/a?endpoint=https://store"),
        ("s3://bucket/a?endpoint=http://store:80", "s3://bucket/a?endpoint=http://store."),
        ("s3://bucket/a%20b", "s3://bucket/a b"),
        ("gs://bucket/a", "gcs://bucket/a/"),
        ("az://box/a", "abfs://box/a"),
    ],
)
def test_spellings_of_one_place(one: str, two: str) -> None:
    assert normal_place(one) == normal_place(two)
    assert normal_place(one) is not None


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("s3://bucket/a", "s3://bucket/b"),
        ("s3://bucket/a", "s3://Bucket/a"),
        ("s3://bucket/a", "gs://bucket/a"),
        ("s3://bucket/a", "s3://bucket/a?endpoint=https://store"),
        ("s3://bucket/a?endpoint=https://store", "s3://bucket/a?endpoint=https://store:8443"),
        ("s3://bucket/a?endpoint=https://store", "s3://bucket/a?endpoint=http://store"),
        ("s3://bucket/a?endpoint=https://store/x", "s3://bucket/a?endpoint=https://store/y"),
        ("sftp://host:22/a", "sftp://host/a?x=1"),
        ("file:///a", "file:///a/b"),
    ],
)
def test_other_places(one: str, two: str) -> None:
    assert normal_place(one) != normal_place(two)


def test_masked_parts_of_a_url_are_not_guessed() -> None:
    assert normal_place("sftp://***@host/a") is None
    assert normal_place("https://host/a?container=***") is None


def test_a_bucket_is_one_place_no_matter_how_it_is_spelled(litelog: Command, server: S3Server) -> None:
    litelog.environment |= {"AWS_ACCESS_KEY_ID": ACCESS_KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY}
    place = f"s3://{server.make_bucket()}/{uuid4().hex}"
    ship_twice(litelog, f"{place}?endpoint={server.endpoint}&region={REGION}")
    store = open_store(place, server.options())
    key = max(info.key for info in store.list("") if parse_wal(info.key) is not None)
    store.delete([key])
    done = litelog("verify", f"{place}/?region={REGION}&endpoint={server.endpoint}/", "--against", "log", "--json")
    assert done.code == ExitCode.CORRUPTION, done.err
    assert [(it["kind"], it["object"]) for it in done.lines[0]["anomalies"]] == [("missing", key)]
