"""``litelog cat`` prints records of logs and replicas, as bytes and as JSON."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode
from litelog_cli.main import BROKEN_PIPE
from tests.builders.journal_fragments import fragment

if TYPE_CHECKING:
    from conftest import Command


def numbers(out: str) -> list[int]:
    return [int(line.split()[1]) for line in out.splitlines()]


def test_appended_records_are_printed_unchanged(litelog: Command) -> None:
    text = litelog.lines(2500)
    done = litelog("cat", "log")
    assert (done.code, done.out) == (ExitCode.DONE, text)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--from", "beginning"], range(2500)),
        (["--from", "1500"], range(1500, 2500)),
        (["--from", "latest"], range(2499, 2500)),
        (["--from", "end"], range(0)),
        (["--from", "1d"], range(2500)),
        (["--to", "3"], range(3)),
        (["--from", "998", "--to", "1002"], range(998, 1002)),
        (["--to", "1day"], range(0)),
        (["--from", "2001-01-01T00:00:00Z", "--to", "0s"], range(2500)),
    ],
)
def test_a_range_begins_and_stops_exactly_there(litelog: Command, arguments: list[str], expected: range) -> None:
    litelog.lines(2500)
    done = litelog("cat", *arguments, "log")
    assert (done.code, numbers(done.out)) == (ExitCode.DONE, list(expected))


def test_json_holds_everything_of_a_record(litelog: Command) -> None:
    litelog("append", "--key-separator", "=", "log", text="a=b\nno key ü\n")
    first, second = litelog("cat", "--json", "log").lines
    assert (first["sequence"], first["key"], first["value"]) == (0, "a", "b")
    assert (second["sequence"], second["key"], second["value"]) == (1, None, "no key ü")
    assert first["timestamp"].endswith("Z")


def test_bytes_that_are_not_text_are_base64_in_json_and_unchanged_otherwise(litelog: Command) -> None:
    value = bytes(range(10, 256)).replace(b"\n", b"")
    command = [sys.executable, "-m", "litelog_cli"]

    def run(verb: str, text: bytes) -> bytes:
        surroundings = {"cwd": litelog.folder, "env": litelog.environment}
        return subprocess.run(
            [*command, verb, "log"], input=text, check=True, stdout=subprocess.PIPE, **surroundings
        ).stdout

    run("append", value + b"\n")
    assert run("cat", b"") == value + b"\n"
    (record,) = litelog("cat", "--json", "log").lines
    assert base64.b64decode(record["value"]["base64"]) == value


def test_following_prints_records_that_are_appended_later(litelog: Command) -> None:
    litelog.lines(3)
    process = litelog.start("cat", "--follow", "--from", "latest", "log")
    assert process.stdout
    assert process.stdout.readline() == "line 2\n"
    litelog("append", "log", text="later\n")
    assert process.stdout.readline() == "later\n"
    assert process.poll() is None


def test_a_reader_that_has_enough_ends_it_quietly(litelog: Command) -> None:
    litelog.lines(50_000)
    process = litelog.start("cat", "log")
    assert process.stdout
    assert process.stderr
    assert process.stdout.readline() == "line 0\n"
    process.stdout.close()
    assert process.wait(240) == BROKEN_PIPE
    assert process.stderr.read() == ""


def test_files_of_lines_are_read_by_their_pattern(litelog: Command) -> None:
    folder = litelog.folder / "app"
    folder.mkdir()
    (folder / "app-1.log").write_text("one\ntwo\n")
    (folder / "app-2.log").write_text("three\nunfin")
    done = litelog("cat", "--format", "lines", "--pattern", "app-*.log", "app")
    assert (done.code, done.out) == (ExitCode.DONE, "one\ntwo\nthree\n")
    assert litelog("cat", "--pattern", "app-*.log", "app").code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "soon"], "'soon' is not a place in a log: expected beginning"),
        (["--to", "latest"], "neither a sequence nor a time"),
        (["--generation", "0" * 16], "--generation is for replicas"),
        (["--format", "nonsense"], "no log format 'nonsense' (known: "),
        (["--config", "other.yml"], "not a log of other.yml (known: "),
    ],
)
def test_invalid_options_are_a_usage_error(litelog: Command, arguments: list[str], message: str) -> None:
    litelog.lines(1)
    replica = {"url": f"file://{litelog.folder}/replica"}
    config = {"logs": [{"path": f"{litelog.folder}/another", "replicas": [replica]}]}
    (litelog.folder / "other.yml").write_text(json.dumps(config))
    done = litelog("cat", *arguments, "log")
    assert done.code == ExitCode.USAGE
    assert message in done.err


@pytest.fixture
def truncated(litelog: Command) -> list[int]:
    """Make a log of lines in ``app`` of which a daemon has deleted the first files; return the sequences that are left.

    The daemon's state is in ``kept``, its configuration is in ``app.yml``."""
    folder = litelog.folder / "app"
    folder.mkdir()
    for number in range(5):
        (folder / f"app-{number}.log").write_text("".join(f"line {number * 3 + n}\n" for n in range(3)))
    log = {
        "path": str(folder),
        "format": "lines",
        "pattern": "app-*.log",
        "truncate": {"max-bytes": 0},
        "replicas": [{"url": f"file://{litelog.folder}/replica"}],
    }
    config = {"state-dir": str(litelog.folder / "kept"), "logs": [log]}
    (litelog.folder / "app.yml").write_text(json.dumps(config))
    done = litelog("replicate", "--once", "--config", "app.yml")
    assert done.code == ExitCode.DONE, done.err
    assert sorted(path.name for path in folder.iterdir()) == ["app-3.log", "app-4.log"]
    return list(range(9, 15))


FILES = ("--format", "lines", "--pattern", "app-*.log")


@pytest.mark.parametrize("arguments", [["--config", "app.yml"], [*FILES, "--state-dir", "kept"]])
def test_lines_that_were_truncated_keep_their_sequences(
    litelog: Command, truncated: list[int], arguments: list[str]
) -> None:
    done = litelog("cat", "--json", *arguments, "app")
    assert [(line["sequence"], line["value"]) for line in done.lines] == [(n, f"line {n}") for n in truncated]
    done = litelog("cat", "--from", "10", "--to", "12", *arguments, "app")
    assert (done.code, numbers(done.out)) == (ExitCode.DONE, [10, 11])


def test_the_default_configuration_says_where_state_is(litelog: Command, truncated: list[int]) -> None:
    done = litelog("cat", "--json", *FILES, "app", LITELOG_CONFIG="app.yml")
    assert [line["sequence"] for line in done.lines] == truncated


def test_a_replica_needs_no_state_folder(litelog: Command) -> None:
    done = litelog("cat", "--state-dir", "kept", "file:///nowhere")
    assert done.code == ExitCode.USAGE
    assert "--state-dir is for logs" in done.err


def test_a_log_that_is_not_there_is_named(litelog: Command) -> None:
    done = litelog("cat", "missing")
    assert done.code == ExitCode.FAILURE
    assert "missing: no such folder" in done.err


def test_a_flipped_byte_in_the_middle_is_corruption_with_its_place(litelog: Command) -> None:
    litelog.lines(2500)
    (segment,) = (litelog.folder / "log").glob("*.log")
    body = bytearray(segment.read_bytes())
    body[2000] ^= 1
    segment.write_bytes(body)
    done = litelog("cat", "log")
    assert done.code == ExitCode.CORRUPTION
    assert f"{segment.name}: corrupt commit at offset 64" in done.err


@pytest.mark.parametrize("form", ["replica", "file://{folder}/replica"])
def test_a_replica_is_read_like_a_log_under_any_name(litelog: Command, form: str) -> None:
    text = litelog.lines(2500)
    litelog("replicate", "--once", "log", "replica")
    place = form.format(folder=litelog.folder)
    assert litelog("cat", place).out == text
    assert numbers(litelog("cat", "--from", "998", "--to", "1002", place).out) == [998, 999, 1000, 1001]
    done = litelog("cat", "--from", "latest", "--json", place)
    assert json.loads(done.out)["value"] == "line 2499"


def test_following_a_replica_prints_records_that_are_shipped_later(litelog: Command) -> None:
    litelog.lines(3)
    litelog("replicate", "--once", "log", "replica")
    process = litelog.start("cat", "--follow", "--from", "latest", "replica")
    assert process.stdout
    assert process.stdout.readline() == "line 2\n"
    litelog("append", "log", text="later\n")
    litelog("replicate", "--once", "log", "replica")
    assert process.stdout.readline() == "later\n"


def test_following_a_journal_prints_later_fragments(litelog: Command) -> None:
    folder = litelog.folder / "clicks"
    folder.mkdir()
    process = litelog.start("cat", "--format", "gazette", "--follow", "clicks")
    assert process.stdout
    for begin, line in ((0, b"line 0\n"), (7, b"later\n")):
        name, body = fragment(begin, line)
        (folder / f"{name}.part").write_bytes(body)
        (folder / f"{name}.part").rename(folder / name)
        assert process.stdout.readline() == line.decode()
    assert process.poll() is None


def test_following_a_replica_ends_at_the_end_that_was_given(litelog: Command) -> None:
    litelog.lines(3)
    litelog("replicate", "--once", "log", "replica")
    assert numbers(litelog("cat", "--follow", "--to", "3", "replica").out) == [0, 1, 2]
    assert numbers(litelog("cat", "--follow", "--to", "3", "log").out) == [0, 1, 2]


def test_a_replica_knows_its_format(litelog: Command) -> None:
    litelog.lines(1)
    litelog("replicate", "--once", "log", "replica")
    done = litelog("cat", "--format", "raw", "replica")
    assert (done.code, "a replica knows its format" in done.err) == (ExitCode.USAGE, True)


@pytest.mark.parametrize("sealed", [True, False])
def test_raw_bytes_of_a_replica_begin_and_stop_where_those_of_the_log_do(litelog: Command, sealed: bool) -> None:
    folder = litelog.folder / "app"
    folder.mkdir()
    for number in range(2):
        (folder / f"app-{number}").write_bytes(b"".join(b"%d:%08d," % (number, at) for at in range(27273))[:300_000])
    files = ("--format", "raw", "--pattern", "app-*")
    litelog("replicate", "--once", *files, "app", "replica")
    if sealed:
        (folder / "app-2").write_bytes(b"and a little more")
        litelog("replicate", "--once", *files, "app", "replica")
    for arguments in (
        ["--from", "350000"],
        ["--from", "10", "--to", "20"],
        ["--from", "299990", "--to", "300010"],
        ["--to", "20"],
        ["--from", "latest"],
        ["--from", "end"],
    ):
        expected = litelog("cat", "--json", *files, *arguments, "app")
        done = litelog("cat", "--json", "--pattern", "app-*", *arguments, "replica")
        assert (done.code, done.lines) == (ExitCode.DONE, expected.lines), (arguments, done.err)


@pytest.mark.parametrize("follow", [[], ["--follow"]])
def test_records_without_timestamps_do_not_stop_at_a_time(litelog: Command, follow: list[str]) -> None:
    (litelog.folder / "app").mkdir()
    (litelog.folder / "app" / "app-1.log").write_text("one\ntwo\n")
    litelog("replicate", "--once", "--format", "lines", "--pattern", "app-*.log", "app", "replica")
    done = litelog("cat", *follow, "--to", "2020-01-01", "replica")
    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert "carry no timestamps to stop at: stop at a sequence" in done.err
