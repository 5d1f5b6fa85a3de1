"""The verbs on logs that other programs wrote, as their users type them: a recorded log of each format."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import pytest

from litelog.errors import ExitCode
from litelog.formats.registry import open_format
from tests.builders.recorded_logs import unpack
from tests.builders.stdb_log import logical_bytes
from tests.sampling import sampled

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command


class Recorded(NamedTuple):
    """A recorded log: its folder below ``tests/fixtures``, its scene, and the columns of its format's own."""

    fixture: str
    scene: str
    columns: frozenset[str] = frozenset()


LOGS = {
    "kafka": Recorded("kafka", "rolled", frozenset({"headers", "timestampType", "producerId"})),
    "spacetimedb": Recorded("spacetimedb", "compressed", frozenset({"epoch", "transactions"})),
    "netlog": Recorded("netlog", "sets"),
    "influxdb": Recorded("influxdb", "topic_1"),
    "redis-aof": Recorded("redis_aof", "commands", frozenset({"command", "arguments", "ts"})),
}


class Scene:
    """A recorded log with two replicas, and the configuration that names them."""

    def __init__(self, litelog: Command, name: str) -> None:
        self.litelog, self.name = litelog, name
        self.log = unpack(LOGS[name].fixture, LOGS[name].scene, litelog.folder)
        self.config = litelog.folder / "litelog.yml"
        watermark = "    watermark: none\n" if name == "kafka" else ""
        self.config.write_text(
            f"state-dir: {litelog.folder}/daemon\naddr: off\nlogs:\n  - path: {self.log}\n    format: {name}\n"
            f"{watermark}    replicas:\n      - url: {litelog.folder}/a\n      - url: {litelog.folder}/b\n"
        )
        done = litelog("replicate", "--once", "--config", str(self.config))
        assert done.code == ExitCode.DONE, done.err

    def restore(self, *words: str) -> Path:
        """Restore into a new folder."""
        folder = self.litelog.folder / f"out-{len(list(self.litelog.folder.glob('out-*')))}"
        done = self.litelog("restore", *words, "-o", str(folder))
        assert done.code == ExitCode.DONE, done.err
        return folder

    def cat(self, *words: str) -> list[dict[str, object]]:
        done = self.litelog("cat", "--json", *words)
        assert done.code == ExitCode.DONE, done.err
        found: list[dict[str, object]] = done.lines
        return found

    def content(self, folder: Path) -> dict[str, bytes]:
        """The log segments of a folder, as the writer first wrote them."""
        order = open_format(self.name).segment_order
        return {path.name: logical(path) for path in folder.iterdir() if order(path.name) is not None}


def logical(path: Path) -> bytes:
    data = path.read_bytes()
    return logical_bytes(data) if path.name.endswith(".stdb.log") else data


@pytest.fixture
def scene(litelog: Command, request: pytest.FixtureRequest) -> Scene:
    return Scene(litelog, request.param)


def each(walk: str) -> pytest.MarkDecorator:
    """All of the logs at night, and two of them by day."""
    return pytest.mark.parametrize("scene", sampled(list(LOGS), 3, walk), indirect=True)


@each("restores of other formats")
def test_it_is_restored_to_a_sequence_a_time_and_a_generation(scene: Scene) -> None:
    litelog, whole = scene.litelog, scene.content(scene.log)
    records = scene.cat("a")
    assert records == scene.cat(str(scene.log), "--format", scene.name)
    assert set(records[0]) == {"sequence", "timestamp", "key", "value", *LOGS[scene.name].columns}
    last, middle = (int(str(record["sequence"])) for record in (records[-1], records[len(records) // 2]))
    (generation,) = litelog("generations", "--json", "a").lines
    for words in ((), ("--sequence", str(last)), ("--timestamp", "0s"), ("--generation", generation["generation"])):
        if last + 1 < generation["next"] and "--sequence" in words:
            continue  # markers follow the last record
        assert scene.content(scene.restore("a", *words)) == whole
    some = scene.cat(str(scene.restore("a", "--sequence", str(middle))), "--format", scene.name)
    assert some == records[: len(some)]
    assert 0 < len(some) <= len(records) // 2 + 1
    early = litelog("restore", "a", "-o", "early", "--timestamp", "1999-01-01T00:00:00Z")
    assert (early.code, "nothing that early" in early.err) == (ExitCode.NOTHING_TO_RESTORE, True)


@each("checks of other formats")
def test_it_is_listed_verified_and_repaired_from_another_replica(scene: Scene) -> None:
    litelog, log = scene.litelog, str(scene.log)
    listed = litelog("segments", "--json", "a").lines
    assert {line["file"] for line in listed} == scene.content(scene.log).keys()
    assert [line["log_bytes"] for line in listed] == [len(scene.content(scene.log)[line["file"]]) for line in listed]
    for words in (("a", "--against", log), (log, "--format", scene.name)):
        done = litelog("verify", *words)
        assert (done.code, done.out.splitlines()[-1]) == (ExitCode.DONE, "all is well")
    (status,) = json.loads(litelog("status", "--json", "--config", str(scene.config)).out)["logs"]
    assert {replica["next"] for replica in status["replicas"]} == {listed[-1]["next"]}
    lost = sorted((litelog.folder / "a").rglob("*.segment.lz4"))[0]
    lost.unlink()
    damaged = litelog("verify", "a")
    assert (damaged.code, lost.name in damaged.out) == (ExitCode.CORRUPTION, True)
    assert litelog("restore", "a", "-o", "alone").code == ExitCode.CORRUPTION
    assert scene.content(scene.restore("a", "b")) == scene.content(scene.log)


@each("mistakes with other formats")
def test_another_format_ships_nothing_and_truncation_is_off(scene: Scene) -> None:
    litelog = scene.litelog
    before = scene.content(scene.log)
    for other in [name for name in LOGS if name != scene.name]:
        words = ("--watermark", "none") if other == "kafka" else ()
        done = litelog("replicate", "--once", "--format", other, *words, str(scene.log), "wrong")
        assert done.code != ExitCode.DONE
        assert f"--format {scene.name}" in done.err
        assert not (litelog.folder / "wrong" / "generations").exists()
    assert scene.content(scene.log) == before
    text = scene.config.read_text()
    scene.config.write_text(text.replace("    replicas", "    truncate: {max-bytes: 1MiB}\n    replicas"))
    done = litelog("config", "check", "--config", str(scene.config))
    assert done.code == (ExitCode.DONE if scene.name == "spacetimedb" else ExitCode.USAGE)
    assert ("leave truncate out" in done.err) is (scene.name != "spacetimedb")


PARTITIONS = {"orders-0": "rolled", "orders-1": "plain_none", "payments-0": "transactions"}
NOT_OF_THE_LOG = (
    *("00000000000000000000.index", "00000000000000000000.timeindex", "00000000000000000000.txnindex"),
    *("00000000000000000009.snapshot", "00000000000000000009.log.deleted", "00000000000000000009.log.cleaned"),
    "00000000000000000009.log.swap",
)


@pytest.fixture
def broker(litelog: Command) -> Path:
    """The data folder of a broker with three partitions, and the configuration that names it."""
    data = litelog.folder / "data"
    data.mkdir()
    for name, scene in PARTITIONS.items():
        recorded = unpack("kafka", scene, litelog.folder)
        recorded.rename(data / name)
        for file in NOT_OF_THE_LOG:
            (data / name / file).write_text("of the broker")
    (data / "orders-9.3a7f-delete").mkdir()
    (data / "meta.properties").write_text("version=1\n")
    (litelog.folder / "litelog.yml").write_text(
        f"state-dir: {litelog.folder}/daemon\naddr: off\nlogs:\n  - dir: {data}\n    format: kafka\n"
        f"    watermark: none\n    replicas:\n      - url: {litelog.folder}/replicas/{{name}}\n"
    )
    return data


def test_all_partitions_of_a_broker_are_found_and_restored_to_one_time(litelog: Command, broker: Path) -> None:
    done = litelog("replicate", "--once", "--config", "litelog.yml")
    assert (done.code, "skipped" in done.err) == (ExitCode.DONE, False), done.err
    assert {path.name for path in (litelog.folder / "replicas").iterdir()} == PARTITIONS.keys()
    logs = {name: litelog("cat", "--json", f"replicas/{name}").lines for name in PARTITIONS}
    times = {name: [datetime.fromisoformat(each["timestamp"]) for each in records] for name, records in logs.items()}
    moment = sorted(times["orders-0"])[len(times["orders-0"]) // 2]
    words = ("restore", "--all", "--config", "litelog.yml", "--timestamp", moment.isoformat(), "--into", "out")
    done = litelog(*words, "--if-replica-exists")
    assert done.code == ExitCode.DONE, done.err
    for name, records in logs.items():
        folder = litelog.folder / "out" / (broker / name).relative_to("/")
        later = next((number for number, each in enumerate(times[name]) if each > moment), len(records))
        restored = litelog("cat", "--json", "--format", "kafka", str(folder)).lines if folder.exists() else []
        assert restored == records[: len(restored)]
        assert len(restored) <= later
        assert not {path.name for path in folder.rglob("*")} & set(NOT_OF_THE_LOG)
        if name == "orders-0":  # a batch for each record
            assert len(restored) == later > 0


def test_a_name_that_is_almost_a_log_segment_is_one_warning_and_is_not_shipped(litelog: Command, broker: Path) -> None:
    (broker / "orders-0" / "0000000000000000099.log").write_bytes(b"19 digits")
    for _ in range(2):
        done = litelog("replicate", "--once", "--config", "litelog.yml")
        assert done.code == ExitCode.DONE, done.err
        assert done.err.count("not a kafka log segment, skipped: 0000000000000000099.log") == 1
    listed = litelog("segments", "--format", "kafka", str(broker / "orders-0")).err
    assert listed.count("not a kafka log segment, skipped: 0000000000000000099.log") == 1
    files = {line["file"] for line in litelog("segments", "--json", "replicas/orders-0").lines}
    assert "0000000000000000099.log" not in files


@pytest.mark.parametrize("name", [*LOGS, "an empty partition"])
def test_nothing_is_appended_to_the_log_of_another_program(litelog: Command, name: str) -> None:
    if name in LOGS:
        folder = unpack(LOGS[name].fixture, LOGS[name].scene, litelog.folder)
    else:
        folder = litelog.folder / "orders-0"
        folder.mkdir()
        (folder / "partition.metadata").write_text("version: 0\ntopic_id: 4Ti5s1ECRkCPz9bfxuFpSQ")
        (folder / f"{0:020d}.log").touch()
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    done = litelog("append", str(folder), text="one\n")
    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert "is the folder of a log of " in done.err
    assert "append to a folder of its own" in done.err
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_a_command_cut_off_before_another_file_of_redis_is_damage(litelog: Command) -> None:
    """Redis says so, too: "the truncated file is not the last file". It does not start with such a folder."""
    folder = unpack("redis_aof", "commands", litelog.folder)
    name = "appendonly.aof.1.incr.aof"
    (folder / name).write_bytes((folder / name).read_bytes()[:100])
    log = ("--format", "redis-aof", folder.name)
    shipped = litelog("replicate", "--once", *log, "replica")
    assert (shipped.code, f"{name}: corrupt commit at offset 62" in shipped.err) == (ExitCode.CORRUPTION, True)
    assert litelog("restore", "replica", "-o", "restored", "-q").code == ExitCode.DONE
    assert (litelog.folder / "restored" / name).read_bytes() == (folder / name).read_bytes()[:62]
    read = litelog("cat", *log)
    assert (read.code, f"{name}: corrupt commit at offset 62" in read.err) == (ExitCode.CORRUPTION, True)
    found = litelog("verify", *log)
    assert (found.code, f"{name}      62" in found.out) == (ExitCode.CORRUPTION, True)


def test_a_base_file_of_an_empty_data_set_is_shipped_with_its_annotation(litelog: Command) -> None:
    """As Redis writes it with aof-timestamp-enabled yes and aof-use-rdb-preamble no."""
    folder = litelog.folder / "appendonlydir"
    folder.mkdir()
    files = {
        "a.aof.2.base.aof": b"#TS:1795832897\r\n",
        "a.aof.2.incr.aof": b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n",
        "a.aof.manifest": b"file a.aof.2.base.aof seq 2 type b\nfile a.aof.2.incr.aof seq 2 type i\n",
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    log = ("--format", "redis-aof", folder.name)
    assert litelog("replicate", "--once", *log, "replica").code == ExitCode.DONE
    assert litelog("verify", *log).code == ExitCode.DONE
    assert litelog("restore", "replica", "-o", "restored", "-q").code == ExitCode.DONE
    assert {path.name: path.read_bytes() for path in (litelog.folder / "restored").iterdir()} == files


def test_files_of_lines_that_are_skipped_are_one_warning_in_a_listing(litelog: Command) -> None:
    folder = litelog.folder / "app"
    folder.mkdir()
    (folder / "1.log").write_text("one\n")
    (folder / "notes.txt").write_text("not of the log\n")
    listed = litelog("segments", "--format", "lines", "--pattern", "*.log", str(folder))
    assert (listed.code, listed.err.count("skipped: notes.txt")) == (ExitCode.DONE, 1)


@pytest.mark.parametrize("words", [(), ("--format", "kafka", "--watermark", "none")])
def test_the_data_folder_of_a_broker_is_no_log_but_holds_logs(
    litelog: Command, broker: Path, words: tuple[str, ...]
) -> None:
    done = litelog("replicate", "--once", *words, str(broker), "one")
    assert done.code == ExitCode.FAILURE
    assert f"orders-0 is a log of Kafka: give that one, or give {broker} as dir: with format: kafka" in done.err
    assert not (litelog.folder / "one" / "generations").exists()
    assert "holds logs of Kafka, such as orders-0, and no replica" in litelog("verify", str(broker)).err


def test_fragments_of_a_journal_are_recognised_and_the_option_is_named(litelog: Command) -> None:
    (folder,) = (path for path in unpack("gazette", "journal", litelog.folder).iterdir() if path.name == "part=0000")
    for words in (("cat", str(folder)), ("verify", str(folder)), ("replicate", "--once", str(folder), "replica")):
        done = litelog(*words)
        assert done.code != ExitCode.DONE
        assert "a Gazette journal" in done.err
        assert "--format gazette" in done.err
    assert litelog("cat", "--format", "gazette", str(folder)).code == ExitCode.DONE


@each("replicas compared with logs of another format")
def test_a_comparison_with_a_log_of_another_format_names_that_format(scene: Scene) -> None:
    others = {name: log for name, log in LOGS.items() if name != scene.name}
    for name, log in others.items():
        (scene.litelog.folder / f"of-{name}").mkdir()
        other = unpack(log.fixture, log.scene, scene.litelog.folder / f"of-{name}")
        done = scene.litelog("verify", "--json", "a", "--against", str(other))
        assert done.code == ExitCode.CORRUPTION
        (anomaly,) = json.loads(done.out)["anomalies"]
        assert (anomaly["kind"], f"(format {name})" in str(anomaly)) == ("foreign", True)


def test_a_comparison_with_a_log_of_another_format_under_the_same_names(litelog: Command) -> None:
    assert litelog("append", "own", text="one\n").code == ExitCode.DONE
    assert litelog("replicate", "--once", "own", "replica").code == ExitCode.DONE
    (name,) = (path.name for path in (litelog.folder / "own").glob("*.log"))
    recorded = unpack("kafka", "plain_none", litelog.folder)
    assert (recorded / name).exists()
    assert "is a log of Kafka (format kafka)" in litelog("verify", "replica", "--against", str(recorded)).out
