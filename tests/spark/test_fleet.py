"""Jobs over many replicas, on Spark: the reports, and the commands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from litelog.spark import fleet
from litelog_cli.main import run
from tests.builders.growing_replica import GrowingReplica
from tests.builders.spark_reading import table_sequences

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 12


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    for number in range(COUNT):
        GrowingReplica(folder / f"log{number:02}").grow(*[3] * (1 + number % 3))
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_fleet_is_copied_verified_restored_and_exported(spark: Any, replicas: Path, tmp_path: Path) -> None:
    """A damaged copy, and a copy that another daemon wrote to, do not stop the others."""
    copies = tmp_path / "copies"
    report = fleet.copy(spark, f"{replicas}/*", str(copies))
    assert (report.count(), report.where("ok").count()) == (COUNT, COUNT)
    assert files(copies) == files(replicas)
    assert report.agg({"copied_bytes": "sum"}).first()[0] == report.agg({"stored_bytes": "sum"}).first()[0]

    (copies / "log03" / "epochs" / "00000002.json").write_bytes(b"another claim")
    damaged = min((copies / "log04").rglob("*.segment.lz4"))
    damaged.chmod(0o644)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    again = {row["name"]: row for row in fleet.copy(spark, f"{replicas}/*", str(copies)).where("NOT ok").collect()}
    assert {name: (row.error, row.exit_code) for name, row in again.items()} == {
        "log03": ("NotACopyError", 5),
        "log04": ("NotACopyError", 5),
    }
    found = fleet.verify(spark, f"{copies}/*", large_bytes=report.where("name = 'log02'").first().stored_bytes - 1)
    assert sorted(row["name"] for row in found.where("NOT ok").collect()) == ["log03", "log04"]
    assert found.count() == COUNT

    restored = fleet.restore(spark, f"{copies}/*", str(tmp_path / "logs"))
    assert sorted(row["name"] for row in restored.where("NOT ok").collect()) == ["log03", "log04"]
    records = sum(3 * (1 + number % 3) for number in range(COUNT) if number not in {3, 4})
    assert restored.selectExpr("sum(records)").first()[0] == records
    exported = fleet.export(spark, f"{replicas}/*", str(tmp_path / "tables"), partition_by="date", large_bytes=3000)
    assert exported.where("ok").count() == COUNT
    assert table_sequences(tmp_path / "tables" / "log05") == list(range(9))


def test_the_commands_take_patterns(
    spark: Any, replicas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pattern, copies = f"{replicas}/*", str(tmp_path / "copies")
    assert run(["spark", "copy", pattern, copies, "--quiet"]) == 0
    assert f"{COUNT} replicas (" in capsys.readouterr().out
    assert run(["spark", "verify", f"{copies}/*", "--json", "--quiet"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["name"] for line in lines] == [f"log{number:02}" for number in range(COUNT)]
    assert all(line["ok"] and line["harmful_count"] == 0 and line["error"] is None for line in lines)
    (tmp_path / "copies" / "log00" / "epochs" / "00000001.json").rename(tmp_path / "claim")
    assert run(["spark", "verify", f"{copies}/log0[01]", "--json", "--quiet"]) == 6
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["error"] and line["error"]["exit_code"] for line in lines] == [6, None]
    (tmp_path / "claim").rename(tmp_path / "copies" / "log00" / "epochs" / "00000001.json")
    assert run(["spark", "restore", f"{copies}/log0[0-2]", str(tmp_path / "logs"), "--quiet"]) == 0
    assert "3 replicas" in capsys.readouterr().out
    assert run(["spark", "export", f"{copies}/log0?", str(tmp_path / "tables"), "--quiet"]) == 0
    assert "exported 57 records; 0 failed" in capsys.readouterr().out
    (tmp_path / "copies" / "log00" / "epochs" / "00000001.json").unlink()
    assert run(["spark", "copy", copies + "/log00", copies + "/log01", str(tmp_path / "more"), "--quiet"]) == 3
    said = capsys.readouterr().out
    assert "NoReplicaError" in said
    assert "1 failed" in said
    assert run(["spark", "copy", copies + "/x*", str(tmp_path / "more"), "--quiet"]) == 3
    assert run(["spark", "copy", pattern, copies, "--config", "litelog.yml"]) == 2
