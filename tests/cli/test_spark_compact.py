"""``litelog spark compact``: the plan, what ``--confirm`` does, refusals."""

from __future__ import annotations

import json
import re
import sys
from subprocess import run
from typing import TYPE_CHECKING

from litelog.errors import ExitCode
from tests.builders.documents import section
from tests.builders.installed import needs

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

pytestmark = needs("pyarrow")

EXPORT = """
import sys
from pathlib import Path
from litelog.spark.jobs import export
from litelog.spark.jobs.local_tasks import LocalTasks
from tests.builders.growing_replica import GrowingReplica
replica = GrowingReplica(Path(sys.argv[1]) / "backup")
for _ in range(4):
    export(LocalTasks(), replica.grow(5).url, sys.argv[1] + "/table")
"""
"""Exports four runs in a separate process, which needs the libraries of tables."""


def export_runs(folder: Path) -> list[str]:
    run([sys.executable, "-c", EXPORT, str(folder)], check=True)
    return files_of(folder)


def files_of(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "table").glob("*.parquet"))


def test_small_files_become_one_on_confirmation(litelog: Command) -> None:
    before = export_runs(litelog.folder)
    assert len(before) == 4
    planned = litelog("spark", "compact", "table")
    assert planned.code == 0, planned.err
    assert planned.out.startswith("3 files (")
    assert "can become 1 file\nnothing was changed: add --confirm to do this" in planned.out
    assert files_of(litelog.folder) == before
    done = litelog("spark", "compact", "table", "--confirm")
    assert "became 1 file" in done.out, done.err
    assert len(files_of(litelog.folder)) == 2
    assert litelog("spark", "compact", "table").out == "nothing to compact\n"


def test_the_plan_for_programs_has_the_numbers_of_what_is_done(litelog: Command) -> None:
    export_runs(litelog.folder)
    planned, done = (
        json.loads(litelog("spark", "compact", "table", "--json", *more).out) for more in ((), ("--confirm",))
    )
    assert (planned["carried_out"], done["carried_out"]) == (False, True)
    assert (done["table"], done["replaced_count"], done["file_count"]) == ("parquet", 3, 1)
    assert {**planned, "carried_out": True} == done
    row = next(line for line in section("etc/docs/scripting.md", "JSON").splitlines() if "`spark compact`" in line)
    assert {*done} - {"version"} == {*re.findall(r"`(\w+)`", row)}


def test_what_is_no_export_is_refused(litelog: Command) -> None:
    missing = litelog("spark", "compact", "nothing")
    assert (missing.code, "has no export" in missing.err) == (ExitCode.NOTHING_TO_RESTORE, True)
    both = litelog("spark", "compact", "nothing", "--dry-run", "--confirm")
    assert (both.code, "exclude each other" in both.err) == (ExitCode.USAGE, True)
