"""``litelog restore --all``: every log of a configuration, also those that only the replicas know."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode
from tests.builders.recorded_logs import unpack
from tests.sampling import times

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

CONFIGURATION = """
state-dir: state
addr: off
logs:
  - path: own
    replicas: [replica-of-own]
  - dir: logs
    pattern: "*/*"
    replicas: [{url: "replicas/{name}"}, {url: "more/{name}"}]
"""
MANY = times(100, at_night=1000)
EMPTY_AND_ROLLED = [("rolled", 0, 40), *(("empty", number, 0) for number in range(3))]
FOUND = ("kafka/orders", "kafka/pay ments", "mail/box")


@pytest.fixture
def tree(litelog: Command) -> Command:
    """Four replicated logs."""
    (litelog.folder / "c.yml").write_text(CONFIGURATION)
    for log in ("own", *(f"logs/{name}" for name in FOUND)):
        assert litelog("append", log, text=f"one of {log}\ntwo\n").code == 0
    assert litelog("replicate", "--once", "--config", "c.yml").code == 0
    return litelog


def files(folder: Path) -> dict[str, bytes]:
    """The log segments below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.log"))}


def lose(tree: Command) -> None:
    for name in ("own", "logs"):
        shutil.rmtree(tree.folder / name)


def test_all_lost_logs_are_restored_to_their_folders(tree: Command) -> None:
    before = files(tree.folder / "logs"), files(tree.folder / "own")
    lose(tree)
    done = tree("restore", "--all", "--config", "c.yml")
    assert (done.code, done.err) == (ExitCode.DONE, "")
    *each, last = done.out.splitlines()
    names = ["own", *(f"logs/{name}" for name in FOUND)]
    assert [line.partition(": restored ")[0] for line in each] == names
    assert last.startswith("restored 4 of 4 logs, ")
    assert (files(tree.folder / "logs"), files(tree.folder / "own")) == before


def test_logs_are_restored_to_the_same_paths_below_a_folder(tree: Command) -> None:
    done = tree("restore", "--all", "--config", "c.yml", "--into", "copy", "--json")
    *each, last = done.lines
    assert (last["log_count"], last["restored_count"], last["failed_count"]) == (4, 4, 0)
    below = tree.folder / "copy" / str(tree.folder).lstrip("/")
    assert [line["output"] for line in each] == [
        str(below / "own"),
        *(str(below / "logs" / name) for name in FOUND),
    ]
    assert files(below / "logs") == files(tree.folder / "logs")
    assert tree("cat", str(below / "own")).out == "one of own\ntwo\n"


def test_a_log_that_cannot_be_restored_does_not_stop_the_others(tree: Command) -> None:
    before = files(tree.folder / "logs")
    lose(tree)
    for place in ("replicas", "more"):
        for key in (tree.folder / place / "kafka" / "orders").rglob("*.lz4"):
            key.write_bytes(b"damaged")
    shutil.rmtree(tree.folder / "replica-of-own")
    done = tree("restore", "--all", "--config", "c.yml", "--json")
    assert done.code == ExitCode.CORRUPTION, "the highest exit code of the failures"
    own, orders, *others, last = done.lines
    assert (own["error"]["kind"], own["error"]["exit_code"]) == ("no-replica", ExitCode.NOTHING_TO_RESTORE)
    assert orders["error"]["exit_code"] == ExitCode.CORRUPTION
    assert [line["records"] for line in others] == [2, 2]
    assert (last["restored_count"], last["failed_count"]) == (2, 2)
    assert files(tree.folder / "logs") == {
        name: data for name, data in before.items() if not name.startswith("kafka/orders")
    }
    again = tree("restore", "--all", "--config", "c.yml", "--if-not-exists", "--if-replica-exists")
    assert (again.code, again.out.count("nothing to do (")) == (ExitCode.CORRUPTION, 3)
    assert "orders: " in again.err


@pytest.mark.parametrize("more", [[], ["--timestamp", "now"], ["--dry-run"]])
def test_partitions_without_records_are_left_out_if_they_may_be(litelog: Command, more: list[str]) -> None:
    """A broker has many: most of the fifty partitions of the consumers' offsets. A replica that lost all that followed
    its first snapshot is the same, so only a person can say that nothing is missing."""
    data = litelog.folder / "data"
    unpack("kafka", "rolled", data)
    for number in range(3):
        shutil.copytree(data / "rolled-0", data / f"empty-{number}", ignore=shutil.ignore_patterns("0*"))
        (data / f"empty-{number}" / f"{0:020d}.log").touch()
    marks = "".join(f"{topic} {number} {mark}\n" for topic, number, mark in EMPTY_AND_ROLLED)
    (data / "replication-offset-checkpoint").write_text(f"0\n{len(EMPTY_AND_ROLLED)}\n{marks}")
    replicas = "replicas: [{url: 'replicas/{name}'}, {url: 'more/{name}'}]"
    (litelog.folder / "c.yml").write_text(
        f"state-dir: state\naddr: off\nlogs:\n  - dir: data\n    format: kafka\n    {replicas}\n"
    )
    assert litelog("replicate", "--once", "--config", "c.yml").code == 0
    shutil.rmtree(data)
    refused = litelog("restore", "--all", "--config", "c.yml", *more)
    said = "after its first snapshot is lost"
    assert (refused.code, refused.err.count(said) >= 3) == (ExitCode.NOTHING_TO_RESTORE, True), refused.err
    shutil.rmtree(data, ignore_errors=True)
    alone = litelog("restore", "replicas/empty-0", "-o", "alone")
    assert (alone.code, said in alone.err) == (ExitCode.NOTHING_TO_RESTORE, True), alone.err
    done = litelog("restore", "--all", "--if-replica-exists", "--config", "c.yml", *more)
    assert (done.code, done.out.count(said) >= 3, done.err) == (ExitCode.DONE, True, "")
    assert done.out.endswith("; nothing to do for 3 logs\n")
    shutil.rmtree(data, ignore_errors=True)
    for store in ("replicas", "more"):  # an owner that has claimed a replica, and has not begun to ship to it
        shutil.rmtree(litelog.folder / store / "empty-1" / "generations")
    begun = litelog("restore", "--all", "--config", "c.yml", *more)
    assert (begun.code, begun.err.count("nothing of the log yet") > 0) == (ExitCode.NOTHING_TO_RESTORE, True)


@pytest.mark.slow
def test_very_many_logs_are_found_by_their_replicas_alone(tree: Command) -> None:
    whole = files(tree.folder / "logs" / "mail" / "box")
    lose(tree)
    for number in range(MANY):
        shutil.copytree(tree.folder / "replicas" / "mail" / "box", tree.folder / "replicas" / "many" / str(number))
    for key in (tree.folder / "replicas" / "many" / "7").rglob("*.lz4"):
        key.write_bytes(b"damaged")
    done = tree("restore", "--all", "--config", "c.yml")
    assert done.code == ExitCode.CORRUPTION
    assert done.out.splitlines()[-1].startswith(f"restored {MANY + 3:,} of {MANY + 4:,} logs, ")
    (failed,) = [line for line in done.err.splitlines() if "skipped" not in line]  # the other place lacks these logs
    assert "logs/many/7: " in failed
    restored = [log for log in (tree.folder / "logs" / "many").iterdir() if files(log) == whole]
    assert len(restored) == MANY - 1


def test_existing_logs_are_not_touched_unless_they_may_be_left_or_replaced(tree: Command) -> None:
    before = files(tree.folder)
    refused = tree("restore", "--all", "--config", "c.yml")
    assert refused.code == ExitCode.FAILURE
    assert refused.out.startswith("restored 0 of 4 logs, 0 B, in ")
    assert refused.out.endswith("; 4 logs failed\n")
    assert refused.err.count("exists already") == 4
    left = tree("restore", "--all", "--config", "c.yml", "--if-not-exists")
    assert (left.code, left.out.count("exists already")) == (ExitCode.DONE, 4)
    assert tree("restore", "--all", "--config", "c.yml", "--delta").code == ExitCode.DONE
    assert files(tree.folder) == before


def test_a_plan_of_all_logs_changes_nothing(tree: Command) -> None:
    lose(tree)
    done = tree("restore", "--all", "--config", "c.yml", "--dry-run")
    assert (done.code, done.out.splitlines()[-1].startswith("planned 4 of 4 logs")) == (ExitCode.DONE, True)
    assert not (tree.folder / "logs").exists()
    *each, last = tree("restore", "--all", "--config", "c.yml", "--dry-run", "--json").lines
    assert sum(line["log_bytes"] for line in each) == last["log_bytes"] > 0


def test_a_time_cuts_each_log_by_itself(tree: Command) -> None:
    lose(tree)
    done = tree("restore", "--all", "--config", "c.yml", "--timestamp", "2001-01-01", "--if-replica-exists")
    assert (done.code, done.out.count("nothing to do (")) == (ExitCode.DONE, 4)
    assert tree("restore", "--all", "--config", "c.yml", "--timestamp", "0s").code == ExitCode.DONE
    assert len(files(tree.folder / "logs")) == 3


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["replicas/kafka/orders"], "REPLICA_URL is for one log"),
        (["-o", "out"], "--output is for one log"),
        (["--sequence", "1"], "--sequence is for one log"),
        (["--follow"], "--follow is for one log"),
        (["--generation", "0000"], "--generation is for one log"),
    ],
)
def test_what_is_for_one_log_is_refused(tree: Command, more: list[str], said: str) -> None:
    done = tree("restore", "--all", "--config", "c.yml", *more)
    assert (done.code, said in done.err) == (ExitCode.USAGE, True)


def test_into_is_for_all_logs_and_all_needs_a_configuration(tree: Command) -> None:
    alone = tree("restore", "replica-of-own", "--into", "copy")
    assert (alone.code, "--into needs --all" in alone.err) == (ExitCode.USAGE, True)
    without = tree("restore", "--all")
    assert (without.code, "--all needs a configuration" in without.err) == (ExitCode.USAGE, True)
