"""Plans: their requests, their size, the logs that they find, and logs in local folders."""

from __future__ import annotations

import glob
import json
import pickle
import shutil
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("boto3")

from litelog.errors import ConfigError, NothingToRestoreError, ReplicaGapError, TruncatedError
from litelog.spark.options import parse_options
from litelog.spark.query.counting import count_records
from litelog.spark.scan.inputs import find_places
from litelog.spark.scan.packing import MIN_PARTITION_BYTES, OPEN_COST_BYTES, USUAL_SLOTS, LocalItem, pack
from litelog.spark.scan.partitions import LocalPiece, WalPiece
from litelog.spark.scan.planning import has_timestamps, plan
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.registry import open_store
from tests.builders.fault_proxy import fault_proxy
from tests.builders.log_builder import make_log as make_folder
from tests.builders.planned_runs import sealed_and_wal
from tests.builders.replica_builder import ReplicaBuilder, make_log
from tests.builders.servers import CREDENTIALS, REGION
from tests.builders.spark_reading import planned, rows, stored, values
from tests.sampling import NIGHTLY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.builders.fault_proxy import FaultProxy
    from tests.builders.servers import S3Server


@pytest.fixture(scope="module")
def proxied(module_server: S3Server) -> Iterator[FaultProxy]:
    """A proxy before an S3 server. The proxy counts requests."""
    with fault_proxy(module_server.endpoint) as proxy:
        proxy.bucket = module_server.make_bucket()  # type: ignore[attr-defined]
        yield proxy


def _upload(proxy: FaultProxy, name: str, objects: Mapping[str, bytes]) -> dict[str, str]:
    """Upload objects as a replica. Returns the options for reading it through the proxy."""
    url = f"s3a://{proxy.bucket}/{name}"  # type: ignore[attr-defined]
    settings = {"endpoint": proxy.endpoint, "region": REGION, **CREDENTIALS}
    store = open_store(url.replace("s3a", "s3"), settings)
    for key, body in objects.items():
        store.put(key, [body])
    store.close()
    return {"path": url, **{f"s3.{option}": str(value) for option, value in settings.items()}}


@pytest.mark.slow
def test_a_plan_costs_four_requests_and_reading_lists_nothing(proxied: FaultProxy) -> None:
    options = _upload(proxied, "four", sealed_and_wal().objects())
    proxied.reset_counts()
    made = plan(parse_options(options))
    assert proxied.operations == {"LIST": 2, "GET": 2}
    proxied.reset_counts()
    assert len(rows(options["path"], made, **{name: options[name] for name in options if name != "path"})) == 14
    assert set(proxied.operations) == {"GET"}


@pytest.mark.slow
@pytest.mark.skipif(not NIGHTLY, reason="at night: a thousand puts")
def test_a_plan_of_several_wal_pages_lists_them_once(proxied: FaultProxy, module_server: S3Server) -> None:
    """1,100 names are two pages. Each page costs one request."""
    builder = sealed_and_wal()
    options = _upload(proxied, "pages", builder.objects())
    name = builder.generations[0].name
    store = open_store(f"s3://{proxied.bucket}/pages", module_server.options())  # type: ignore[attr-defined]
    for number in range(2, 1_100):
        store.put(f"generations/{name}/wal/{2:016x}/{10_000 * number:016x}.wal.lz4", [b"x"])
    store.close()
    proxied.reset_counts()
    made = plan(parse_options(options))
    assert proxied.operations == {"LIST": 3, "GET": 2}
    assert sum(len(piece) for piece in _wal(made)) == 1_100


@pytest.mark.slow
def test_a_plan_grows_with_its_objects_and_not_faster() -> None:
    """The test measures the size of the plan, not time. Partitions hold each object once, in a few bytes."""
    sizes = []
    for count in (1_000, 10_000):
        builder = ReplicaBuilder()
        generation = builder.add()
        url = stored(builder.objects())
        store = open_store(url)
        for number in range(count):
            store.put(f"generations/{generation.name}/wal/{0:016x}/{100 * number:016x}.wal.lz4", [b"x" * 50])
        made = planned(url)
        assert sum(len(piece) for piece in _wal(made)) == count
        assert len(made.partitions) == min(USUAL_SLOTS, count * (OPEN_COST_BYTES + 100) // MIN_PARTITION_BYTES)
        sizes.append(sum(len(pickle.dumps(partition)) for partition in made.partitions))
    assert sizes[1] < 12 * sizes[0]
    assert sizes[1] < 40 * 10_000


@pytest.mark.slow
def test_partitions_are_bounded_by_bytes() -> None:
    builder = ReplicaBuilder()
    generation = builder.add()
    generation.ship_segment(make_log([[1000] * 8])[0], cuts=range(8), final=None)
    url = stored(builder.objects())
    few, many = planned(url), planned(url, maxPartitionBytes="300k")
    assert len(few.partitions) == 1
    assert len(many.partitions) > 4
    assert values(url, many) == values(url, few)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mebibytes", "slots", "partitions"),
    [
        (16, None, 1),  # too small to be divided
        (100, None, 3),  # at least MIN_PARTITION_BYTES each
        (1280, None, 8),
        (5000, None, 16),
        (1280, 2, 4),
        (1280, 3, 3),
        (1280, 12, 12),
        (100, 64, 3),
        (40_000, 64, 128),
    ],
)
def test_partitions_come_in_whole_waves(mebibytes: int, slots: int | None, partitions: int) -> None:
    url = stored(sealed_and_wal().objects())
    log = planned(url).partitions[0].parts[0].log
    held = [
        LocalItem(log, LocalPiece("/log", number, number + 1), (1 << 20) - OPEN_COST_BYTES)
        for number in range(mebibytes)
    ]
    made = pack(held, 512 << 20, None, slots)
    assert len(made) == partitions
    sizes = [partition.raw_bytes for partition in made]
    assert max(sizes) - min(sizes) <= 1 << 20


def test_an_empty_place_is_reported_by_name(tmp_path: Path) -> None:
    url = stored({})
    with pytest.raises(NothingToRestoreError, match=url):
        planned(url)
    with pytest.raises(NothingToRestoreError, match="no such folder"):
        planned(str(tmp_path / "nowhere"))
    with pytest.raises(NothingToRestoreError, match="matches the pattern"):
        planned(str(tmp_path / "*"))


def test_a_log_without_records_has_no_rows(tmp_path: Path) -> None:
    """A claimed replica, and the folder of a log."""
    builder = ReplicaBuilder()
    builder.add()
    folder = make_folder(tmp_path / "log")
    folder.roll(0)
    for place in (stored(builder.objects()), folder.folder):
        assert rows(place, planned(place)) == []


@pytest.mark.parametrize(("name", "asked"), [("", None), ("litelog", None), ("lines", None), ("lines", "litelog")])
def test_a_folder_that_is_neither_a_log_nor_a_replica_is_reported(tmp_path: Path, name: str, asked: str | None) -> None:
    """The folder is empty, lies above a log, or has a log of another format than the requested one."""
    given = {"format": asked} if asked is not None else {}
    log = make_folder(tmp_path / "logs" / "log", name or "litelog")
    log.roll(2)
    (tmp_path / "empty").mkdir()
    folder = {"": str(tmp_path / "empty"), "litelog": str(tmp_path / "logs"), "lines": log.folder}[name]
    with pytest.raises(
        NothingToRestoreError, match="is not a replica, and has no log segment of format litelog"
    ) as told:
        planned(folder, **given)
    assert str(told.value).startswith(folder)
    pattern = f"{glob.escape(folder)[:-1]}?"
    with pytest.raises(NothingToRestoreError, match="matches the pattern"):
        planned(pattern, **given)


def test_a_pattern_skips_folders_that_are_not_logs(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_folder(tmp_path / name).roll(3)
    (tmp_path / "c").mkdir()
    assert len(values(str(tmp_path / "?"))) == 6


def test_a_log_that_has_only_begun_is_skipped_among_others(tmp_path: Path) -> None:
    """A replica that has only begun has no rows, whether a pattern finds it or it is named. A replica that lost its
    claims is always an error."""
    for name in ("full", "new"):
        builder = ReplicaBuilder()
        builder.store = open_store(str(tmp_path / "all" / name))  # type: ignore[assignment]
        builder.client = ObjectReplicaClient(builder.store)
        generation = builder.add()
        if name == "full":
            generation.ship_segment(make_log([[3]])[0], final=None)
    pattern, new = str(tmp_path / "all" / "*"), str(tmp_path / "all" / "new")
    assert [row["sequence"] for row in rows(pattern)] == [0, 1, 2]
    assert count_records(parse_options({"path": pattern})) == 3
    for url, options in [(new, {}), (f"{tmp_path}/all/n*", {}), (pattern, {"paths": json.dumps([f"file://{new}"])})]:
        held = [row["sequence"] for row in rows(url, **options)]
        assert held == ([0, 1, 2] if options else []), url
    shutil.rmtree(tmp_path / "all" / "new" / "epochs")
    with pytest.raises(ReplicaGapError):
        planned(pattern)


@pytest.mark.slow
def test_several_logs_are_distinguished(proxied: FaultProxy, tmp_path: Path) -> None:
    options: dict[str, str] = {}
    for name in ("logs/a", "logs/b", "other/a"):
        options = _upload(proxied, name, sealed_and_wal().objects())
    bucket = options.pop("path").rpartition("/other/a")[0]
    listed = {**options, "paths": json.dumps([f"{bucket}/logs/a", f"{bucket}/other/a"])}
    name = bucket.removeprefix("s3a://")
    assert _names(listed) == {f"{name}/logs/a": 14, f"{name}/other/a": 14}
    assert _names({**options, "path": f"{bucket}/logs/*"}) == {f"{name}/logs/a": 14, f"{name}/logs/b": 14}
    assert _names({**options, "path": f"{bucket}/*/[a]"}) == {f"{name}/logs/a": 14, f"{name}/other/a": 14}
    for name in ("x", "y"):
        store = open_store(str(tmp_path / "many" / name))
        sealed_and_wal().put_into(store)
    assert _names({"path": str(tmp_path / "many" / "?")}) == {
        f"{str(tmp_path)[1:]}/many/x": 14,
        f"{str(tmp_path)[1:]}/many/y": 14,
    }
    with pytest.raises(NothingToRestoreError, match="matches the pattern"):
        _names({**options, "path": f"{bucket}/nothing/*"})


@pytest.mark.slow
def test_a_log_is_read_once_no_matter_how_often_it_is_named(
    proxied: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = make_folder(tmp_path / "logs" / "a"), make_folder(tmp_path / "logs" / "b")
    log.roll(2)
    other.roll(3)
    monkeypatch.chdir(tmp_path)
    spelled = ["logs/b", log.folder, f"{log.folder}/", f"file://{log.folder}", "logs/./a", str(tmp_path / "logs" / "*")]
    root = str(tmp_path)[1:]
    assert _names({"paths": json.dumps(spelled)}) == {f"{root}/logs/b": 3, f"{root}/logs/a": 2}
    options = _upload(proxied, "once/a", sealed_and_wal().objects())
    url = options.pop("path")
    found = _names({**options, "paths": json.dumps([url, f"{url}/", f"{url[:-1]}*"])})
    assert found == {url.removeprefix("s3a://"): 14}


def test_a_log_has_the_same_name_whichever_others_there_are(tmp_path: Path) -> None:
    """The name is the whole path, also if only one log is named."""
    pattern, root = str(tmp_path / "*" / "ev"), str(tmp_path)[1:]
    first = make_folder(tmp_path / "t1" / "ev")
    first.roll(2)
    assert {row["log"] for row in rows(pattern)} == {f"{root}/t1/ev"}
    make_folder(tmp_path / "t2" / "ev").roll(1)
    assert {row["log"] for row in rows(pattern)} == {f"{root}/t1/ev", f"{root}/t2/ev"}
    assert {row["log"] for row in rows(first.folder, includeMetadata="true")} == {f"{root}/t1/ev"}


@pytest.mark.slow
def test_a_pattern_skips_folders_below_a_log(proxied: FaultProxy) -> None:
    options: dict[str, str] = {}
    for name in ("deep/a", "deep/b", "deep/c"):
        options = _upload(proxied, name, sealed_and_wal().objects())
    proxied.reset_counts()
    plan(parse_options({**options, "path": options["path"].rpartition("/")[0] + "/*"}))
    assert proxied.operations["LIST"] <= 4 + 3 * 2
    assert proxied.operations["GET"] == 3 * 2


def _names(options: Mapping[str, str]) -> dict[str, int]:
    places = {name: value for name, value in options.items() if name not in ("path", "paths")}
    found: dict[str, int] = {}
    given = options.get("path") or ""
    more = {"paths": options["paths"]} if "paths" in options else {}
    for row in rows(given, **places, **more) if given else _rows_of({**places, **more}):
        found[row["log"]] = found.get(row["log"], 0) + 1
    return found


def _rows_of(options: Mapping[str, str]) -> list[dict[str, object]]:
    from litelog.spark.scan.decoding import read_partition
    from litelog.spark.scan.schema import log_columns

    parsed = parse_options(options)
    columns = log_columns(parsed, has_timestamps=False)
    batches = (batch for made in plan(parsed).partitions for batch in read_partition(made, columns))
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_local_log_is_read_up_to_its_end_at_the_plan(tmp_path: Path, count: int) -> None:
    log = make_folder(tmp_path / "log")
    for _ in range(4):
        log.roll(5)
    made = planned(log.folder, numPartitions=count)
    assert len(made.partitions) == min(count, 4)
    log.append(3)
    log.roll(2)
    assert [row["sequence"] for row in rows(log.folder, made)] == list(range(20))
    assert [row["sequence"] for row in rows(log.folder, numPartitions=count)] == list(range(25))
    bounded = rows(log.folder, numPartitions=count, startingSequence=4, endingSequence=17)
    assert [row["sequence"] for row in bounded] == list(range(4, 17))


@pytest.mark.parametrize("name", ["lines", "raw"])
def test_a_local_log_of_another_format(tmp_path: Path, name: str) -> None:
    log = make_folder(tmp_path / "log", name)
    log.roll(3)
    log.roll(2)
    whole = b"".join(log.files().values())
    found = rows(log.folder, format=name, numPartitions=3, includeMetadata="true")
    ending = b"\n" if name == "lines" else b""
    assert b"".join(row["value"] + ending for row in found) == whole
    assert {row["generation"] for row in found} == {None}
    with pytest.raises(ConfigError, match="no timestamps"):
        rows(log.folder, format=name, startingTimestamp="2026-01-01")


@pytest.mark.parametrize(
    ("name", "value"), [("mode", "DROPMALFORMED"), ("mode", "PERMISSIVE"), ("generation", "00000001000000a1")]
)
def test_an_option_for_replicas_is_refused_with_a_folder(tmp_path: Path, name: str, value: str) -> None:
    log = make_folder(tmp_path / "log")
    log.roll(2)
    with pytest.raises(ConfigError, match=f"{log.folder}: is the folder of a log, not a replica: .*{value}"):
        planned(log.folder, **{name: value})
    assert len(values(log.folder, mode="FAILFAST", generation="latest")) == 2


@pytest.mark.slow
def test_a_format_is_the_one_of_folders_and_may_be_a_replicas_own(tmp_path: Path) -> None:
    url = stored(sealed_and_wal().objects())
    for name in ("nope", "lines"):
        with pytest.raises(ConfigError, match=f"{url}: is a replica, and its log has format litelog: .*={name}"):
            planned(url, format=name)
        with pytest.raises(ConfigError, match="is a replica"):
            has_timestamps(options := parse_options({"path": url, "format": name}), find_places(options))
    assert len(values(url, format="litelog")) == 14
    lines = make_folder(tmp_path / "log", "lines")
    lines.roll(3)
    assert len(_rows_of({"paths": json.dumps([url, lines.folder]), "format": "lines"})) == 17


@pytest.mark.slow
def test_a_local_log_has_places_and_its_start_is_checked(tmp_path: Path) -> None:
    log = make_folder(tmp_path / "log")
    log.roll(2)
    log.roll(3)
    texts = list(log.files().values())
    for row in rows(log.folder, includeMetadata="true"):
        text = texts[0 if row["sequence"] < 2 else 1]
        assert text[row["offset"] :].startswith(row["value"])
    log.delete(next(iter(log.files())))
    with pytest.raises(TruncatedError):
        rows(log.folder, startingSequence=0)
    lost = rows(log.folder, startingSequence=0, failOnDataLoss="false")
    assert [row["sequence"] for row in lost] == [2, 3, 4]


def _wal(made: object) -> list[WalPiece]:
    parts = [part for partition in made.partitions for part in partition.parts]  # type: ignore[attr-defined]
    return [piece for part in parts for piece in part.pieces if isinstance(piece, WalPiece)]
