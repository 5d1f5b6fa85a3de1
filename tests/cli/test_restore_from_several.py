"""``litelog restore`` from several replicas: folders, and S3 over HTTP."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from litelog.errors import ExitCode
from replica_clients.s3 import open_store
from tests.builders.servers import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY
from tests.builders.short_waits import SHORT_TRIAL

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

    from tests.builders.servers import S3Server

DAMAGES = ("deleted", "cut", "header", "data")


@pytest.fixture
def replicas(litelog: Command) -> tuple[str, str]:
    """Two replicas of a log of 2500 records: the first in three WAL segments, the second, begun later, in two."""
    litelog.lines(1000)
    assert litelog("replicate", "--once", "log", "one").code == 0
    litelog.lines(1000)
    assert litelog("replicate", "--once", "log", "one", "two").code == 0
    litelog.lines(500)
    assert litelog("replicate", "--once", "log", "one", "two").code == 0
    return "one", "two"


@pytest.fixture
def further(litelog: Command, replicas: tuple[str, str]) -> tuple[str, str]:
    """The same. The first holds 700 more records, 500 of them in a WAL segment of which the second has a part."""
    litelog.lines(200)
    assert litelog("replicate", "--once", "log", "two").code == 0
    litelog.lines(500)
    assert litelog("replicate", "--once", "log", "one").code == 0
    return replicas


def segments(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.log")}


def objects(folder: Path) -> list[Path]:
    """A replica's objects in order, with WAL segments last."""
    return sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: ("wal" in str(path), path))


def damage(path: Path, how: str) -> None:
    path.chmod(0o600)
    body = bytearray(path.read_bytes())
    if how == "deleted":
        path.unlink()
    elif how == "cut":
        path.write_bytes(body[: len(body) // 2])
    else:
        body[40 if how == "header" else -20] ^= 1
        path.write_bytes(body)


@pytest.mark.parametrize("how", DAMAGES)
def test_each_object_of_the_furthest_replica_may_be_lost(litelog: Command, further: tuple[str, str], how: str) -> None:
    expected = segments(litelog.folder / "log")
    shutil.copytree(litelog.folder / "one", litelog.folder / "kept")
    lost = [path for path in objects(litelog.folder / "one") if "epochs" not in path.parts][:-1]
    assert len(lost) == 4
    for number, path in enumerate(lost):
        damage(path, how)
        done = litelog("restore", *further, "-o", f"out{number}", "--json")
        assert done.code == ExitCode.DONE, done.err
        assert segments(litelog.folder / f"out{number}") == expected
        (result,) = done.lines
        assert result["replica"].endswith("/one")
        assert result["repaired"][0]["object"].endswith(path.name)
        held = [repaired for repaired in result["repaired"] if repaired["file"]]
        assert bool(held) == (path.parent.name != "snapshots")
        assert all(
            repaired["replica"].endswith("/two") and repaired["end_offset"] > repaired["start_offset"]
            for repaired in held
        )
        path.unlink(missing_ok=True)
        shutil.copy(litelog.folder / "kept" / path.relative_to(litelog.folder / "one"), path)


def test_the_sources_of_replaced_bytes_are_reported_to_people(litelog: Command, further: tuple[str, str]) -> None:
    lost = objects(litelog.folder / "one")[-2]
    damage(lost, "data")
    done = litelog("restore", *further, "-o", "out")
    assert done.code == ExitCode.DONE
    assert f"{lost.name}: " in done.err
    assert "are from file://" in done.err
    assert "of it from file://" in done.out
    assert done.out.rstrip().endswith("/one")


def test_bytes_that_both_replicas_lost_are_corruption_and_nothing_is_left(
    litelog: Command, further: tuple[str, str]
) -> None:
    for how in ("data", "deleted"):
        for name in further:
            damage(objects(litelog.folder / name)[2 if name == "two" else 3], how)
        done = litelog("restore", *further, "-o", "out")
        assert done.code == ExitCode.CORRUPTION
        assert "generations/" in done.err or "missing" in done.err
        assert not list(litelog.folder.glob("*out*"))


def test_a_replica_that_is_empty_damaged_or_another_logs_is_named_and_skipped(
    litelog: Command, replicas: tuple[str, str]
) -> None:
    litelog.lines(9, "other")
    assert litelog("replicate", "--once", "other", "foreign").code == 0
    for path in (litelog.folder / "two" / "epochs").iterdir():
        damage(path, "cut")
    done = litelog("restore", "one", "nowhere", "foreign", "two", "-o", "out")
    assert done.code == ExitCode.DONE, done.err
    assert segments(litelog.folder / "out") == segments(litelog.folder / "log")
    for name in ("nowhere", "foreign", "two"):
        assert any("skipped" in line and f"/{name}: " in line for line in done.err.splitlines()), done.err


def test_a_replica_whose_driver_is_missing_is_skipped(litelog: Command, replicas: tuple[str, str]) -> None:
    done = litelog("restore", "nosuch://bucket/x", "one", "-o", "out", "--json")
    assert done.code == ExitCode.DONE
    assert [entry["replica"] for entry in done.lines[0]["skipped"]] == ["nosuch://bucket/x"]
    assert litelog("restore", "nosuch://bucket/x", "-o", "out2").code == ExitCode.USAGE


@pytest.mark.parametrize("more", [[], ["--if-replica-exists"]], ids=" ".join)
def test_a_restore_fails_if_a_replica_could_not_be_opened(litelog: Command, more: list[str]) -> None:
    done = litelog("restore", "nosuch://bucket/x", "nowhere", "-o", "out", *more)
    assert done.code == ExitCode.USAGE
    assert "skipped nosuch://bucket/x: no replica client for nosuch://" in done.err
    assert "nowhere: no replica there" in done.err


def test_diverged_replicas_are_not_chosen_between(litelog: Command, replicas: tuple[str, str]) -> None:
    shutil.copytree(litelog.folder / "two", litelog.folder / "old")
    assert litelog("restore", "one", "--sequence", "1999", "-o", "again").code == 0
    (litelog.folder / "log").rename(litelog.folder / "lost")
    (litelog.folder / "again").rename(litelog.folder / "log")
    litelog.lines(100)
    litelog.lines(100)
    assert litelog("replicate", "--once", "log", "fresh").code == 0
    done = litelog("restore", "one", "fresh", "-o", "out")
    assert done.code == ExitCode.FAILURE
    assert "diverged" in done.err
    assert "/one" in done.err
    assert "/fresh" in done.err
    assert litelog("replicate", "--once", "log", "two").code == 0  # this daemon knows the history that it leaves
    done = litelog("restore", "old", "two", "fresh", "-o", "out")
    assert done.code == ExitCode.DONE, done.err
    assert "/old: " in done.err
    assert segments(litelog.folder / "out") == segments(litelog.folder / "log")


def configure(litelog: Command, text: str) -> str:
    (litelog.folder / "litelog.yml").write_text(text)
    return "litelog.yml"


def test_a_configured_logs_folder_stands_for_its_replicas(litelog: Command, replicas: tuple[str, str]) -> None:
    log = litelog.folder / "log"
    config = configure(litelog, f"logs:\n- path: {log}\n  replicas: [{{url: nowhere}}, {{url: one}}, {{url: two}}]\n")
    for number, arguments in enumerate(
        (("--config", config, "log"), ("--config", config), ("--config", config, "two"))
    ):
        done = litelog("restore", *arguments, "-o", f"out{number}", "--json")
        assert done.code == ExitCode.DONE, done.err
        assert segments(litelog.folder / f"out{number}") == segments(log)
        assert ("nowhere" in done.err) == (number < 2)
    assert litelog("restore", "log", "-o", "out", LITELOG_CONFIG=config).code == ExitCode.DONE
    shutil.rmtree(log)
    assert litelog("restore", "log", "-o", "log", LITELOG_CONFIG=config).code == ExitCode.DONE
    assert segments(log) == segments(litelog.folder / "out")


def test_a_folder_that_is_not_a_configured_log_is_a_usage_error(litelog: Command, replicas: tuple[str, str]) -> None:
    config = configure(litelog, f"logs:\n- path: {litelog.folder}/log\n  replicas: [{{url: one}}]\n")
    done = litelog("restore", "--config", config, "elsewhere", "-o", "out")
    assert done.code == ExitCode.USAGE
    assert "/log" in done.err
    assert litelog("restore", "-o", "out").code == ExitCode.USAGE


def test_a_broken_default_configuration_does_not_matter_for_a_replicas_path(
    litelog: Command, replicas: tuple[str, str]
) -> None:
    broken = configure(litelog, "logs: 3\n")
    assert litelog("restore", "one", "-o", "out", LITELOG_CONFIG=broken).code == ExitCode.DONE
    assert litelog("restore", "log", "-o", "out2", LITELOG_CONFIG=broken).code == ExitCode.USAGE


@pytest.fixture
def s3(litelog: Command, server: S3Server) -> str:
    """A bucket's URL, for a command that has the credentials."""
    litelog.before = SHORT_TRIAL
    litelog.environment |= {"AWS_ACCESS_KEY_ID": ACCESS_KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY}
    return f"s3://{server.make_bucket()}/{uuid4().hex}?endpoint={server.endpoint}&region={REGION}"


@pytest.mark.parametrize("how", ["deleted", "data"])
def test_an_s3_replica_and_a_folder_help_each_other(
    litelog: Command, replicas: tuple[str, str], s3: str, server: S3Server, how: str
) -> None:
    assert litelog("replicate", "--once", "log", s3).code == 0
    litelog.lines(100)
    assert litelog("replicate", "--once", "log", "one").code == 0
    litelog.lines(300)
    assert litelog("replicate", "--once", "log", s3).code == 0
    store = open_store(s3.partition("?")[0], server.options())
    first = next(info.key for info in store.list("") if "/wal/" in info.key)
    with store.open(first) as stream:
        body = bytearray(stream.read())
    body[-20] ^= 1
    store.delete([first])
    if how == "data":
        store.put(first, [bytes(body)])
    done = litelog("restore", "one", s3, "-o", "out", "--json")
    assert done.code == ExitCode.DONE, done.err
    assert segments(litelog.folder / "out") == segments(litelog.folder / "log")
    (result,) = done.lines
    assert result["replica"].startswith("s3://")
    assert {repaired["replica"].rpartition("/")[2] for repaired in result["repaired"]} == {"one"}
    assert SECRET_ACCESS_KEY not in done.out + done.err


def test_an_s3_replica_that_is_down_is_skipped(
    litelog: Command, replicas: tuple[str, str], s3: str, server: S3Server
) -> None:
    missing = s3.replace("s3://bucket-", "s3://no-such-bucket-")
    done = litelog("restore", missing, "two", "-o", "out", "--json")
    assert done.code == ExitCode.DONE, done.err
    assert segments(litelog.folder / "out") == segments(litelog.folder / "log")
    (entry,) = done.lines[0]["skipped"]
    assert entry["replica"].startswith("s3://no-such-bucket-")
    assert "NoSuchBucket" in entry["reason"] or "bucket" in entry["reason"]
