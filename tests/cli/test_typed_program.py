"""A small program of a user passes mypy --strict against the installed package, and one with a mistake does not."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.sampling import times

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

PROGRAM = """
from datetime import UTC, datetime

import litelog


def run(folder: str, backup: str) -> int:
    with litelog.LogWriter(folder) as writer:
        first: int = writer.append(b"value").first
    with litelog.replicate(folder, backup) as replication:
        done: bool = replication.wait_synced(timeout=10.0)
    result = litelog.restore_log(backup, "copy", timestamp=datetime.now(UTC))
    plan = litelog.restore_log(backup, "copy", sequence=first, dry_run=True)
    with litelog.open_replica(backup) as records:
        for record in records:
            value: bytes = record.value
            print(value, record.sequence)
    report = litelog.verify_replica(backup)
    try:
        config = litelog.load_config("litelog.yml")
    except litelog.ConfigError as error:
        print(error)
    else:
        print(config.logs)
    print(litelog.__version__, plan.size, done, report.is_sound)
    return result.records
"""

MISTAKE = 'import litelog\n\nlitelog.restore_log("a", "b", sequence="last")\n'


def test_a_program_is_checked_against_the_types(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    pytest.importorskip("mypy", reason="needs mypy")
    (tmp_path / "right.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text(MISTAKE)
    assert pytestconfig.cache is not None
    kept = pytestconfig.cache.mkdir("typed-program")  # what mypy found in files that have not changed since
    options = ["--strict", "--config-file=", f"--cache-dir={times(kept, at_night=tmp_path / 'cache')}"]
    command = [sys.executable, "-m", "mypy", *options, "right.py", "wrong.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert done.returncode == 1, done.stdout + done.stderr
    assert {line.partition(":")[0] for line in errors} == {"wrong.py"}, done.stdout
