"""Each name in JSON has one meaning and one type, which the glossary in ``etc/docs/scripting.md`` lists."""

from __future__ import annotations

import ast
import re
import shutil
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from litelog.log.mirror_note import MirrorNote, mirror_note
from litelog.server.report import PARTS
from litelog_cli.main import litelog as all_verbs
from replica_clients.file import FileStore
from tests.builders.batch_replicas import die_in_write, small_appends
from tests.builders.documents import section
from tests.builders.recorded_logs import unpack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Command

ROOT = Path(__file__).parents[2]
GLOSSARY = dict(
    re.findall(r"^\| `(\w+)` \| (\w+) \| [^|]+ \|$", section("etc/docs/scripting.md", "Names"), re.MULTILINE)
)
"""Names and types."""

TYPES = {
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float),
    "text": lambda value: type(value) is str,
    "boolean": lambda value: type(value) is bool,
    "list": lambda value: type(value) is list,
    "object": lambda value: type(value) is dict,
    "counts": lambda value: type(value) is dict and all(type(each) is int for each in value.values()),
    "bytes": lambda value: type(value) in (str, dict),
    "time": lambda value: type(value) is str and datetime.fromisoformat(value).utcoffset() is not None,
}

CASES = {
    "append": ["append log"],
    "cat": ["cat log", "cat backup", "cat nothing"],
    "check": ["check backup"],
    "config check": ["config check litelog.yml", "config check wrong.yml"],
    "consumers list": ["cat --consumer billing log", "consumers list log"],
    "consumers move": ["consumers move log billing 3"],
    "consumers delete": ["consumers delete log billing"],
    "copy": ["copy backup copied", "copy nothing copied"],
    "dismiss": ["dismiss log"],
    "forget": ["forget log backup"],
    "generations": ["generations backup", "generations nothing"],
    "influxdb export": ["influxdb export broker broker.snapshot"],
    "influxdb import": ["influxdb import broker.snapshot imported"],
    "key new": ["key new -o identity"],
    "key show": ["key new -o shown", "key show shown"],
    "ls": ["ls .", "ls"],
    "mirror": ["mirror --promote mirrored backup"],
    "prune": ["prune backup --max-age 1us", "prune backup --max-bytes 1 --confirm"],
    "replicate": ["replicate --once log backup", "replicate --once --config litelog.yml"],
    "repair": ["repair damaged backup", "repair damaged backup --confirm", "repair log", "repair damaged nothing"],
    "restore": [
        "restore backup -o restored",
        "restore backup -o other --dry-run",
        "restore backup -o restored --if-not-exists",
        "restore torn backup -o repaired",
        "restore --all --config litelog.yml --into all",
        "restore --all --config litelog.yml --into all",
        "restore --all --config litelog.yml --into other --dry-run",
    ],
    "segments": ["segments log", "segments backup"],
    "snapshot": ["snapshot log backup"],
    "snapshots": ["snapshots backup"],
    "status": ["status", "status backup"],
    "spark maintain": ["spark maintain merged", "spark maintain appended merged --max-age 1h --confirm"],
    "sync": ["sync"],
    "verify": [
        "verify backup --against log --restore-drill",
        "verify torn",
        "verify nothing",
        "verify log",
        "verify log --config litelog.yml",
        "verify backup --save-checkpoint c1",
        "verify backup --expect-at-least c1",
        "verify damaged",
    ],
    "version": ["version"],
    "wal": ["wal backup", "wal backup --headers"],
}


def mistakes(value: Any, where: str) -> Iterator[str]:
    """The names that are missing from the glossary, and the names with values of another type."""
    if isinstance(value, list):
        for each in value:
            yield from mistakes(each, where)
    if not isinstance(value, dict):
        return
    for name, inner in value.items():
        kind = GLOSSARY.get(name)
        if kind is None:
            yield f"{where}.{name} is not in the glossary"
        elif inner is not None and not TYPES[kind](inner):
            yield f"{where}.{name} is no {kind}: {inner!r}"
        if kind != "counts":
            yield from mistakes(inner, f"{where}.{name}")


def verbs_with_json(name: str, command: click.Command) -> Iterator[str]:
    """The full names of the verbs that have the option ``--json``."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            inner = command.get_command(context, each)
            assert inner is not None
            yield from verbs_with_json(f"{name} {each}".strip(), inner)
    elif any("--json" in parameter.opts for parameter in command.params):
        yield name


@pytest.fixture
def shipped(litelog: Command) -> Command:
    litelog.lines(30)
    for backup in ("backup", "torn"):
        assert litelog("replicate", "--once", "log", backup).code == 0
    litelog.lines(30)
    assert litelog("replicate", "--once", "log", "backup").code == 0
    wal = sorted((litelog.folder / "torn").rglob("*.wal.lz4"))
    wal[-1].write_bytes(wal[-1].read_bytes()[:-1])
    for replica in ("appended", "merged"):
        die_in_write(small_appends(4, inner=FileStore(str(litelog.folder / replica)), hours_ago=48))
    (litelog.folder / "litelog.yml").write_text("logs:\n  - path: log\n    replicas:\n      - url: backup\n")
    (litelog.folder / "wrong.yml").write_text("logs: 1\n")
    assert litelog("restore", "backup", "-o", "mirrored").code == 0
    mirror_note(str(litelog.folder / "mirrored")).write(MirrorNote("http://a/logs/log", "litelog", None, "0" * 16))
    unpack("influxdb", "table", litelog.folder / "broker")
    shutil.copytree(litelog.folder / "log", litelog.folder / "damaged")
    for segment in (litelog.folder / "damaged").glob("*.log"):
        segment.write_bytes(segment.read_bytes()[:-1])
    return litelog


def test_no_name_occurs_twice_in_the_glossary() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", section("etc/docs/scripting.md", "Names"), re.MULTILINE)
    assert len(rows) == len(set(rows)) == len(GLOSSARY)
    assert set(GLOSSARY.values()) == set(TYPES)


def test_every_name_that_a_verb_prints_is_in_the_glossary(shipped: Command) -> None:
    found = [
        mistake
        for commands in CASES.values()
        for command in commands
        for line in shipped(*command.split(), "--json", text="one more\n").lines
        for mistake in mistakes(line, command)
    ]
    assert not found, "\n".join(sorted(set(found)))


def test_every_verb_with_json_is_a_case() -> None:
    jobs = ("stats", "verify", "export", "compact", "copy", "restore")
    others = {"config show", *(f"spark {job}" for job in jobs)}
    """A verb that prints a configuration with its own keys, and verbs that need Spark or a table."""
    assert set(verbs_with_json("", all_verbs)) - others == set(CASES)


def test_every_field_of_the_http_answers_is_in_the_glossary() -> None:
    assert {name for part in PARTS for name in part.model_fields} - set(GLOSSARY) == set()


def test_every_field_of_a_log_line_is_in_the_glossary() -> None:
    found = set()
    for path in (each for folder in ("litelog", "cmd", "replica_clients") for each in (ROOT / folder).rglob("*.py")):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            if name in ("fields", "event_fields", "say"):
                found |= {each.arg for each in call.keywords if each.arg is not None}
    assert found - set(GLOSSARY) - {"level", "trace"} == set()


def test_the_numbers_of_a_spark_job_are_in_the_glossary() -> None:
    stats = pytest.importorskip("litelog.spark.jobs.stats_job")
    bucket = stats.Bucket(0, 1, 1)
    values = dict.fromkeys(stats.Stats.__dataclass_fields__, 1)
    numbers = stats.Stats(**{**values, "rate": (bucket,)}).as_json()
    assert {*numbers, *numbers["rate"][0]} - set(GLOSSARY) == set()


def test_the_columns_of_the_reports_of_fleets_are_in_the_glossary() -> None:
    fleet = "litelog.spark.fleet"
    running, *jobs = (pytest.importorskip(f"{fleet}.{name}") for name in ("running", "copies", "restores", "exports"))
    columns = ",".join([running.REPORT, *(job.COLUMNS for job in jobs)])
    assert {column.split()[0] for column in columns.split(",")} - set(GLOSSARY) == set()
