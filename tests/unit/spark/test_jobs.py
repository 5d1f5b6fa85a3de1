"""The jobs without Spark: their tasks run here, one after the other."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders.child import runs_in_child
from tests.builders.growing_replica import GrowingReplica

pytest.importorskip("pyarrow")

from litelog.errors import ConfigError, CorruptObjectError, TruncatedError
from litelog.spark.jobs import export, exported, hybrid, stats, verify
from litelog.spark.jobs import manifest as manifests
from litelog.spark.jobs.json_columns import MalformedJsonError, parse_values
from litelog.spark.jobs.local_tasks import LocalTasks
from litelog.spark.jobs.manifest import list_runs, read_manifest
from litelog.spark.spark_session import _explained
from litelog.stores.registry import open_store
from tests.builders.replica_builder import make_log, make_segment
from tests.builders.spark_reading import table_sequences

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class KilledError(Exception):
    """A process dies."""


class Tasks(LocalTasks):
    """A session that may die before it has the results of its tasks."""

    def __init__(self, *, killed: bool = False) -> None:
        self._killed = killed

    def run(self, count: int, work: Callable[[Any], Any]) -> list[Any]:
        rows = super().run(count, work)
        if self._killed:
            raise KilledError
        return rows


def newest_bounds(target: str) -> tuple[int, ...]:
    store = open_store(target)
    return read_manifest(store, list_runs(store)[1][-1]).plan.bounds


@pytest.fixture
def replica(tmp_path: Path) -> GrowingReplica:
    return GrowingReplica(tmp_path / "replica")


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "table")


@pytest.mark.slow
@pytest.mark.parametrize("died", [False, True])
def test_records_that_retention_removed_are_not_an_export(replica: GrowingReplica, target: str, died: bool) -> None:
    """Neither a new run nor a run that died exports them. If data may be lost, the manifest says where it continues."""
    replica.grow(2)
    export(Tasks(), replica.url, target)
    replica.grow(1, 4)
    if died:
        with pytest.raises(KilledError):
            export(Tasks(killed=True), replica.url, target)
    replica.grow(3, first=2)
    with pytest.raises(TruncatedError) as caught:
        export(Tasks(), replica.url, target)
    assert (caught.value.requested, caught.value.first_available) == (2, 3)
    done = export(Tasks(), replica.url, target, options={"failOnDataLoss": False})
    assert (done.first, done.next, done.rows) == (3, 10, 7)
    assert (newest_bounds(target)[0], newest_bounds(target)[-1]) == (3, 10)
    assert table_sequences(target) == [0, 1, *range(3, 10)]
    assert export(Tasks(), replica.url, target).runs == 0


def test_a_log_segment_that_a_final_stands_for_begins_a_table(replica: GrowingReplica, target: str) -> None:
    """The log segment's WAL segment states no first record."""
    log = make_log([[3], [2]])
    replica.generation.stand_for_sealed(log[0])
    replica.generation.ship_segment(log[1], final=None)
    assert export(Tasks(), replica.url, target).first == 0
    assert table_sequences(target) == list(range(5))


@pytest.mark.parametrize(
    ("name", "value"),
    [("endingSequence", 3), ("startingTimestamp", "2026-01-01"), ("endingTimestamp", "2026-01-01")],
)
def test_bounds_that_a_next_run_could_not_hold_to_are_refused(
    replica: GrowingReplica, target: str, name: str, value: object
) -> None:
    replica.grow(5)
    with pytest.raises(ConfigError, match=name):
        export(Tasks(), replica.url, target, options={name: value})
    assert not os.path.exists(target)


def test_rows_for_malformed_data_are_not_records(replica: GrowingReplica, target: str) -> None:
    replica.grow(5)
    jobs: list[Callable[..., Any]] = [export, hybrid, lambda spark, url, _, **given: stats(spark, url, **given)]
    for job in jobs:
        with pytest.raises(ConfigError, match=r"PERMISSIVE.*DROPMALFORMED leaves it out"):
            job(Tasks(), replica.url, target, options={"mode": "permissive"})
    assert not os.path.exists(target)


@pytest.mark.slow
def test_a_table_begins_where_its_first_export_says(replica: GrowingReplica, target: str) -> None:
    """Whole log segments may precede the table's first record, or a part of one."""
    replica.grow(4, 4)
    done = export(Tasks(), replica.url, target, options={"startingSequence": 5})
    assert (done.first, done.next, done.rows) == (5, 8, 3)
    replica.grow(2, 4)
    with pytest.raises(ConfigError, match="this table begins with 5"):
        export(Tasks(), replica.url, target, options={"startingSequence": 10})
    assert export(Tasks(), replica.url, target, options={"startingSequence": 5}).rows == 6
    assert table_sequences(target) == list(range(5, 14))


@pytest.mark.parametrize("stamp", [1_700_000_000_000_000_000, -(1 << 62), 253_402_300_800_000_000])
def test_a_timestamp_that_is_not_a_date_is_reported_where_it_is_to_be_one(
    replica: GrowingReplica, target: str, stamp: int
) -> None:
    """Its unit may be nanoseconds, for example. Without a column for dates it is valid."""
    replica.generation.ship_segment(make_segment(0, [3, 2, 1], [0, stamp, 5]), final=None)
    with pytest.raises(ConfigError, match=rf"sequence 3 has the timestamp {stamp} microseconds.*partition_by"):
        export(Tasks(), replica.url, target, partition_by="date")
    assert export(Tasks(), replica.url, target).rows == 6
    assert table_sequences(target) == list(range(6))


def test_an_option_that_is_not_known_is_named(replica: GrowingReplica, target: str) -> None:
    """Every job names it, for every place."""
    replica.grow(5)
    with pytest.raises(ConfigError, match=r"target has no option 'endpoint'.*s3\.NAME.*store\.endpoint"):
        export(Tasks(), replica.url, target, target_options={"endpoint": "http://localhost:1"})
    with pytest.raises(ConfigError, match="verify has no option 'bogus'"):
        verify(Tasks(), replica.url, options={"bogus": 1})
    assert not os.path.exists(target)
    export(Tasks(), replica.url, target)
    with pytest.raises(ConfigError, match="target has no option 'endpoint'"):
        hybrid(Tasks(), replica.url, target, target_options={"endpoint": "http://localhost:1"})
    with pytest.raises(ConfigError, match="target has no option 'mode'"):
        exported(Tasks(), target, options={"mode": "FAILFAST"})


def test_a_target_in_a_folder_takes_none_of_the_options_of_the_replicas_store(
    replica: GrowingReplica, target: str
) -> None:
    replica.grow(5)
    assert export(Tasks(), replica.url, target, options={"s3.endpoint": "http://localhost:1"}).rows == 5


def nested(depth: int) -> bytes:
    return b'{"version": 1, "plan": ' + b"[" * depth + b"]" * depth + b"}"


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "deep": (lambda: nested(100_000), "nested more than 4 deep"),
    "many lists": (lambda: b'{"version": 1, "files": [' + b"[]," * (1 << 20) + b"[]]}", "lists and objects"),
    "many values": (lambda: b'{"version": 1, "files": [' + b"1," * (4 << 20) + b"1]}", "values"),
    "no JSON": (lambda: b"\xff\xfe", "codec"),
    "a list": (lambda: b"[]", "not a JSON object"),
    "NaN": (lambda: b'{"version": NaN}', "not a number"),
    "another version": (lambda: b'{"version": 2}', "version of the export is 2, expected 1"),
    "a boolean": (lambda: b'{"version": true}', "version of the export is True, expected 1"),
    "no plan": (lambda: b'{"version": 1, "files": []}', "not a JSON object"),
}


@pytest.mark.parametrize("kind", ["", ".plan"])
@pytest.mark.parametrize(("make_body", "what"), HOSTILE.values(), ids=HOSTILE)
@runs_in_child
def test_a_document_of_an_export_is_measured_before_it_is_parsed(
    replica: GrowingReplica, target: str, kind: str, make_body: Callable[[], bytes], what: str
) -> None:
    replica.grow(2)
    store = open_store(target)
    key = f"_litelog/00000001{kind}.json"
    store.put(key, [make_body()])
    with pytest.raises(CorruptObjectError, match=what) as caught:
        export(Tasks(), replica.url, target)
    assert caught.value.key == key
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("plan", "run"), 2),
        (("plan", "run"), True),
        (("plan", "bounds"), []),
        (("plan", "bounds"), [3, 1]),
        (("plan", "bounds"), [-1, 1]),
        (("plan", "bounds"), [0, 1 << 64]),
        (("plan", "bounds"), {"0": 1}),
        (("plan", "log"), 7),
        (("plan", "generation"), "../x"),
        (("plan", "shape"), []),
        (("plan", "shape", "table"), {}),
        (("plan", "more"), 1),
        (("files",), {}),
        (("files", 0), "a"),
        (("files", 0, "path"), "/etc/passwd"),
        (("files", 0, "path"), "../other/00000001-000000.parquet"),
        (("files", 0, "path"), "a\ud800"),
        (("files", 0, "rows"), -1),
        (("files", 0, "bytes"), 1.5),
        (("files", 0, "first"), 1 << 64),
        (("files", 0, "partition"), {"date": 1}),
        (("files", 0, "more"), 1),
    ],
)
def test_each_field_of_an_exports_documents_has_one_type_and_range(
    replica: GrowingReplica, target: str, path: tuple[str | int, ...], value: object
) -> None:
    replica.grow(2)
    export(Tasks(), replica.url, target)
    store = open_store(target)
    key = "_litelog/00000001.json"
    with store.open(key) as stream:
        document = json.load(stream)
    held = document
    for name in path[:-1]:
        held = held[name]
    held[path[-1]] = value
    store.put(key, [json.dumps(document).encode()], create_only=False)
    with pytest.raises(CorruptObjectError) as caught:
        read_manifest(store, 1)
    assert caught.value.key == key


def test_a_run_that_could_not_be_read_again_is_not_committed(
    replica: GrowingReplica, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica.grow(2)
    monkeypatch.setattr(manifests, "MAX_FILES", 1)
    with pytest.raises(ConfigError, match="needs more than 1 files or ranges"):
        export(Tasks(), replica.url, target)
    assert list_runs(open_store(target)) == ([], [])


@pytest.mark.slow
def test_a_first_export_that_failed_pins_nothing(replica: GrowingReplica, target: str) -> None:
    """The job removes the files of its tasks. A process that still works on the run sees that the run was given up."""
    replica.grow(5)
    with pytest.raises(KilledError):
        export(Tasks(killed=True), replica.url, target, partition_by="hour")
    assert table_sequences(target) == list(range(5))

    class Overtaken(Tasks):
        def run(self, count: int, work: Callable[[Any], Any]) -> list[Any]:
            rows = super().run(count, work)
            assert export(Tasks(), replica.url, target, partition_by="date").rows == 5
            return rows

    with pytest.raises(ConfigError, match="given up run 1"):
        export(Overtaken(), replica.url, target, partition_by="hour")
    store = open_store(target)
    assert list_runs(store) == ([1, 2], [1, 2])
    assert [read_manifest(store, run).is_given_up for run in (1, 2)] == [True, False]
    replica.grow(3)
    with pytest.raises(ConfigError, match="partition_by"):
        export(Tasks(), replica.url, target, partition_by="hour")
    assert export(Tasks(), replica.url, target, partition_by="date").rows == 3
    assert table_sequences(target) == list(range(8))


def test_files_of_an_abandoned_run_are_removed_even_if_the_abandoning_run_was_killed(
    replica: GrowingReplica, target: str
) -> None:
    replica.grow(5)
    with pytest.raises(KilledError):
        export(Tasks(killed=True), replica.url, target)
    (left,) = [name for name in os.listdir(target) if name.endswith(".parquet")]
    with open(os.path.join(target, left), "rb") as file:
        body = file.read()
    with pytest.raises(KilledError):
        export(Tasks(killed=True), replica.url, target, options={"startingSequence": 2})
    with open(os.path.join(target, left), "wb") as file:
        file.write(body)  # as if the run had died before it removed them
    assert export(Tasks(), replica.url, target).rows == 5
    assert table_sequences(target) == list(range(5))


@pytest.mark.slow
def test_a_run_that_a_delta_table_holds_is_not_given_up(replica: GrowingReplica, target: str) -> None:
    pytest.importorskip("deltalake")
    replica.grow(5)
    export(Tasks(), replica.url, target, table="delta")
    os.unlink(os.path.join(target, "_litelog", "00000001.json"))  # as if the run had died after Delta's commit
    with pytest.raises(ConfigError, match="in the delta table already"):
        export(Tasks(), replica.url, target)
    assert export(Tasks(), replica.url, target, table="delta").rows == 5


@pytest.mark.parametrize(
    ("module", "shape"),
    [("deltalake", {"table": "delta"}), ("pyiceberg", {"table": "iceberg", "iceberg_table": "a.b.c"})],
)
def test_a_missing_package_is_reported_before_anything_is_written(
    replica: GrowingReplica, target: str, module: str, shape: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    replica.grow(5)
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=f"needs {module}"):
        export(Tasks(), replica.url, target, **shape)  # type: ignore[arg-type]
    assert not os.path.exists(target)


@pytest.mark.parametrize(
    ("values", "malformed"),
    [
        ([b'{"a": 1}{"a": 2}', b""], [0, 1]),
        ([b'{"a": ', b'1}{"a": 2}'], [0, 1]),
        ([b'{"a": 1', b',"b": 2}{"a": 3}', b'{"a": 4}'], [0, 1]),
        ([b'{"a": 1}', b'{"a": 2}, "value": {}'], [1]),
        ([b'{"a": 1}', b'{"a": 2}}\n{"value": {"a": 3}', b" "], [1, 2]),
        ([b'{"a": 1}', b"null", b' {"a": 2}\n\t'], [1]),
        ([b"null", b'{"a": 2}', b"[1]", b"1"], [0, 2, 3]),
        ([b'\xef\xbb\xbf{"a": 1}', b'{"a": 2}'], [0]),
        ([b'{"a": 1, "b": "\xff"}', b'{"a": 2}'], [0]),
    ],
)
def test_each_value_is_one_object_and_no_part_of_one(values: list[bytes], malformed: list[int]) -> None:
    """The neighbours of a value make no difference."""
    from pyarrow import array, binary, int32, schema, string

    wanted = schema([("a", int32()), ("b", string())])
    given, sequences = array(values, binary()), array(range(len(values)))
    with pytest.raises(MalformedJsonError, match=f"sequence {malformed[0]}: "):
        parse_values(given, sequences, wanted, lenient=False)
    found = parse_values(given, sequences, wanted, lenient=True)
    assert found.column("a").to_pylist() == [
        None if number in malformed else json.loads(value)["a"] for number, value in enumerate(values)
    ]


@pytest.mark.slow
def test_a_jvm_that_ends_at_once_may_have_ended_for_its_master() -> None:
    ended = RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.")
    assert "the master bogus" in str(_explained(ended, "bogus"))
    assert "master" not in str(_explained(ended, None))
