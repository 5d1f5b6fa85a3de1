"""Daemons as processes on an S3 server that ignores If-None-Match: they refuse it, unless fencing is isolated."""

from __future__ import annotations

import json
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto.server")

from litelog.errors import ExitCode
from tests.builders.independent_reader import read_replica
from tests.builders.servers import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, S3Server
from tests.builders.short_waits import RUN_COMMAND, SHORT_LISTING
from tests.faults.figures import report
from tests.faults.processes import Spoken, litelog, segments, shipped
from tests.faults.s3_replicas import Bench, s3_bench
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.warm import Warm

    Run = Callable[..., subprocess.CompletedProcess[str]]

RECORDS = 400
HURRIED = SHORT_LISTING + RUN_COMMAND
"""The command, which lists few objects when it tries the store."""


@pytest.fixture
def bench(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_ACCESS_KEY)
    with s3_bench(server, tmp_path) as made:
        made.proxy.dropped_headers |= {"if-none-match", "if-match"}
        yield made


def url(bench: Bench) -> str:
    return f"s3://{bench.bucket}/replica?endpoint={bench.proxy.endpoint}&region={REGION}&read-timeout=20s"


@pytest.fixture
def run(warm: Warm) -> Run:
    """Runs the command to its end."""
    return partial(litelog, warm, program=HURRIED)


def replicate(bench: Bench, name: str, *options: str) -> tuple[str, ...]:
    """The words that replicate the bench's log, with a state folder of that name."""
    return ("replicate", "--json", "--state-dir", str(bench.folder / name), *options, bench.log.folder, url(bench))


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def began(daemon: Spoken) -> list[dict[str, Any]]:
    return [event for event in lines("".join(daemon.lines)) if event["event"] == "began"]


def test_by_default_such_a_store_is_refused_and_the_message_names_the_setting(bench: Bench, run: Run) -> None:
    bench.append()
    done = run(*replicate(bench, "state"))
    assert done.returncode == ExitCode.FAILURE
    assert "8 of 8 concurrent create-only puts of one key were accepted" in done.stderr
    assert "set fencing: isolated for this replica, which gives up" in done.stderr
    assert run("restore", url(bench), "-o", str(bench.folder / "out")).returncode == ExitCode.NOTHING_TO_RESTORE
    assert not list(bench.open(direct=True).list("")), "a claim, or objects of the trial, are left"


def test_a_store_configured_as_isolated_is_used_and_reported_everywhere(bench: Bench, run: Run) -> None:
    bench.append()
    configured = bench.folder / "litelog.yml"
    replica = {"url": url(bench), "fencing": "isolated"}
    configured.write_text(json.dumps({"logs": [{"path": bench.log.folder, "replicas": [replica]}]}))
    done = run("replicate", "--json", "--once", "--state-dir", str(bench.folder / "s"), "--config", str(configured))
    assert done.returncode == ExitCode.DONE, done.stderr
    first, *_ = done.stderr.splitlines()
    assert "fencing isolated: nothing keeps another daemon from writing there" in first
    assert "the first; fencing isolated" in done.stderr
    assert {event["fencing"] for event in lines(done.stdout) if event["event"] == "began"} == {"isolated"}
    listed = run("generations", "--json", url(bench))
    assert [facts["fencing"] for facts in lines(listed.stdout)] == ["isolated"]
    assert " isolated " in run("generations", "--wide", url(bench)).stdout
    assert run("restore", url(bench), "-o", str(bench.folder / "out")).returncode == ExitCode.DONE
    assert segments(bench.folder / "out") == bench.written()


def test_two_daemons_at_once_write_two_generations_that_both_restore(warm: Warm, bench: Bench, run: Run) -> None:
    """The first daemon's claim is held on its way until the second one, which found an empty replica, has shipped."""
    reached, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        go_on.wait(WAIT_SECONDS)

    bench.append()
    bench.proxy.plan.next("PUT", None, key_part="epochs/", meanwhile=hold)
    daemons = [Spoken(warm, HURRIED, *replicate(bench, "one", "--fencing", "isolated", "--sync-interval", "5ms"))]
    try:
        assert reached.wait(WAIT_SECONDS)
        words = replicate(bench, "two", "--fencing", "isolated", "--sync-interval", "5ms")
        daemons.append(Spoken(warm, HURRIED, *words))
        daemons[1].wait_for(lambda daemon: shipped(daemon) > 0)
        go_on.set()
        while bench.writer.next_sequence < RECORDS:
            bench.append()
            for daemon in daemons:
                daemon.wait_for(lambda daemon: shipped(daemon) >= bench.writer.next_sequence)
        assert all(daemon.process.poll() is None for daemon in daemons)
    finally:
        go_on.set()
        for daemon in daemons:
            daemon.kill()

    names = [began(daemon)[0]["generation"] for daemon in daemons]
    assert len({*names}) == 2
    assert all(name.startswith("00000001") for name in names)
    generations = read_replica(bench.open(direct=True))
    assert sorted(generations) == sorted(names)
    for name in names:
        assert generations[name].text() == b"".join(bench.written().values())
        output = bench.folder / f"restored-{name}"
        assert run("restore", "--generation", name, url(bench), "-o", str(output)).returncode == ExitCode.DONE
        assert segments(output) == bench.written()
    assert run("restore", url(bench), "-o", str(bench.folder / "latest")).returncode == ExitCode.DONE
    assert segments(bench.folder / "latest") == bench.written()
    chosen = run("wal", "--json", url(bench))
    assert {line["generation"] for line in lines(chosen.stdout)} == {max(names)}
    report("s3_isolated", daemons=2, generations=2, records=RECORDS, bytes_lost=0)


def test_a_taken_over_daemon_that_starts_again_is_fenced(warm: Warm, bench: Bench, run: Run) -> None:
    bench.append()
    old = Spoken(warm, HURRIED, *replicate(bench, "old", "--fencing", "isolated"))
    old.wait_for(lambda daemon: shipped(daemon) >= bench.writer.next_sequence)
    old.kill()
    assert run(*replicate(bench, "new", "--fencing", "isolated", "--once")).returncode == ExitCode.FENCED
    assert run(*replicate(bench, "new", "--fencing", "isolated", "--once", "--takeover")).returncode == ExitCode.DONE
    done = run(*replicate(bench, "old", "--fencing", "isolated"))
    assert done.returncode == ExitCode.FENCED
    assert "was succeeded by" in done.stderr


def test_check_shows_which_fencing_it_is_good_for(bench: Bench, run: Run) -> None:
    done = run("check", "--json", url(bench))
    *steps, result = lines(done.stdout)
    assert done.returncode == ExitCode.FAILURE
    assert result.pop("replica").startswith("s3://")
    assert result.pop("access")["thief"]
    assert result == {"version": 1, "fencing": "required", "usable": False, "usable_fencing": ["isolated"]}
    outcomes = {step["step"]: step["outcome"] for step in steps}
    assert outcomes.pop("create-only put refused") == "failed"
    assert outcomes.pop("one of 8 puts at once wins") == outcomes.pop("the same, in parts") == "skipped"
    assert set(outcomes.values()) == {"passed"}
    bench.proxy.dropped_headers.clear()
    done = run("check", "--json", url(bench))
    *steps, result = lines(done.stdout)
    assert done.returncode == ExitCode.DONE
    assert {step["outcome"] for step in steps} == {"passed"}
    assert result.pop("replica").startswith("s3://")
    assert {each["may"] for each in result.pop("access")["thief"]} <= {True, False}
    assert result == {"version": 1, "fencing": "required", "usable": True, "usable_fencing": ["required", "isolated"]}
    assert not list(bench.open(direct=True).list(""))
