"""Options of Spark readers: valid ones are accepted, invalid ones are refused with a reason, and no secret is shown."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.datasource import InputPartition

from litelog.errors import ConfigError
from litelog.spark.options import Mode, Range, parse_options
from litelog.spark.scan.partitions import LogPart, Partition, PlannedLog
from litelog.spark.scan.schema import log_columns
from litelog.spark.sink.options import parse_write_options
from litelog.spark.stream.options import parse_stream_options
from tests.builders.replica_builder import ReplicaBuilder, make_log
from tests.builders.spark_reading import planned, stored

SECRET = "not-to-be-shown"


def test_the_defaults_are_the_strict_ones() -> None:
    options = parse_options({"path": "s3://bucket/log"})
    assert (options.mode, options.fail_on_data_loss, options.generation) == (Mode.FAILFAST, True, None)
    assert (options.max_partition_bytes, options.num_partitions) == (512 << 20, None)


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n", "S3A"])
def test_the_schemes_of_s3_are_synonyms(scheme: str) -> None:
    assert parse_options({"path": f"{scheme}://bucket/log"}).paths[0].lower() == "s3://bucket/log"


def test_every_option_is_read() -> None:
    options = parse_options(
        {
            "paths": '["/a", "/b"]',
            "generation": "00000001000000a1",
            "startingsequence": "3",
            "endingsequence": "9",
            "startingtimestamp": "1970-01-01T00:00:01Z",
            "endingtimestamp": "1970-01-01 01:00:02+01:00",
            "mode": "permissive",
            "columnnameofcorruptrecord": "bad",
            "failondataloss": "false",
            "maxpartitionbytes": "64m",
            "numpartitions": "7",
            "includemetadata": "TRUE",
            "format": "lines",
            "pattern": "*.txt",
        }
    )
    bounds = options.range
    assert options.paths == ("/a", "/b")
    assert (bounds.first, bounds.stop, bounds.since, bounds.until) == (3, 9, 1_000_000, 2_000_000)
    assert (options.generation, options.mode, options.corrupt_column) == ("00000001000000a1", Mode.PERMISSIVE, "bad")
    assert (options.fail_on_data_loss, options.include_metadata) == (False, True)
    assert (options.max_partition_bytes, options.num_partitions) == (64 << 20, 7)
    assert (options.format, options.pattern) == ("lines", "*.txt")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("startingsequnce", "1", "did you mean startingSequence?"),
        ("numpartition", "1", "did you mean numPartitions?"),
        ("mode", "strict", "FAILFAST, DROPMALFORMED, PERMISSIVE"),
        ("startingsequence", "-1", "startingSequence='-1' must be a number from 0"),
        ("startingtimestamp", "yesterday", "startingTimestamp='yesterday' is not an ISO time"),
        ("endingtimestamp", "1700000000", "must be milliseconds since 1970"),
        ("generation", "newest", "generation"),
        ("failondataloss", "maybe", "true or false"),
        ("maxpartitionbytes", "many", "maxPartitionBytes='many'"),
        ("numpartitions", "0", "numPartitions='0' must be a number from 1"),
        ("columnnameofcorruptrecord", " ", "columnNameOfCorruptRecord is empty"),
        ("fs.s3a.acces.key", "x", "did you mean fs.s3a.access.key?"),
        ("paths", "s3://a/b", "JSON list"),
    ],
)
def test_an_invalid_option_is_reported_with_valid_ones(name: str, value: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options({"path": "/a", name: value})
    assert told in str(caught.value)


@pytest.mark.parametrize("pair", [("startingsequence", "endingsequence"), ("startingtimestamp", "endingtimestamp")])
def test_an_end_before_its_start_is_refused(pair: tuple[str, str]) -> None:
    late, early = ("9", "3") if "sequence" in pair[0] else ("2026-01-02", "2026-01-01")
    with pytest.raises(ConfigError, match="lies before"):
        parse_options({"path": "/a", pair[0]: late, pair[1]: early})


def test_no_place_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no log is given"):
        parse_options({})


def test_options_of_stores_are_translated_and_ours_win() -> None:
    options = parse_options(
        {
            "path": "s3a://bucket/log",
            "fs.s3a.access.key": "from-hadoop",
            "spark.hadoop.fs.s3a.secret.key": "secret",
            "fs.s3a.endpoint": "minio:9000",
            "fs.s3a.connection.ssl.enabled": "false",
            "fs.s3a.endpoint.region": "eu",
            "fs.s3a.path.style.access": "true",
            "s3.access-key-id": "ours",
            "store.read-timeout": "5s",
        }
    )
    assert options.store == {
        "access-key-id": "ours",
        "secret-access-key": "secret",
        "endpoint": "http://minio:9000",
        "region": "eu",
        "path-style": "true",
        "read-timeout": "5s",
    }


def test_hadoops_anonymous_provider_is_supported_and_others_are_reported() -> None:
    provider = "fs.s3a.aws.credentials.provider"
    nobody = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    assert parse_options({"path": "/a", provider: nobody}).store == {"anonymous": "true"}
    assert parse_options({"path": "/a", "s3.anonymous": "true"}).store == {"anonymous": "true"}
    with pytest.raises(ConfigError, match="leave it out"):
        parse_options({"path": "/a", provider: "org.example.Provider"})


def test_an_endpoint_without_a_scheme_is_https_as_hadoop_has_it() -> None:
    assert parse_options({"path": "/a", "fs.s3a.endpoint": "minio:9000"}).store["endpoint"] == "https://minio:9000"


def test_no_repr_shows_a_secret() -> None:
    url = f"abfs://user:{SECRET}@host/log?sig={SECRET}"
    options = parse_options({"path": url, "s3.secret-access-key": SECRET})
    log = PlannedLog("log", url, options.store, "litelog", None, False, None, None, options.range, options.mode, True)
    assert SECRET not in repr(options)
    assert SECRET not in repr(log)
    assert repr(InputPartition(Partition((LogPart(log, ()),), 5))) == "InputPartition(value=Partition(raw_bytes=5))"


def test_columns_are_not_null_where_that_is_true() -> None:
    def null(has_timestamps: bool, remote: bool = True, **options: str) -> dict[str, bool]:
        parsed = parse_options({"path": "/a", **options})
        columns = log_columns(parsed, has_timestamps=has_timestamps, has_generations=remote)
        return {column.title: column.nullable for column in columns}

    assert null(True) == {"sequence": False, "timestamp": False, "key": True, "value": False}
    assert null(False)["timestamp"] is True
    metadata = null(True, includemetadata="true")
    assert [metadata[name] for name in ("generation", "index", "offset", "epoch", "log")] == [False] * 5
    local = null(True, remote=False, includemetadata="true")
    assert [local[name] for name in ("generation", "index", "offset", "epoch", "log")] == [
        True,
        True,
        False,
        True,
        False,
    ]
    lenient = null(True, mode="PERMISSIVE")
    assert lenient == dict.fromkeys(("sequence", "timestamp", "key", "value", "_corrupt_record"), True)


@pytest.mark.parametrize("name", ["value", "Log", "generation"])
def test_the_column_for_malformed_data_is_not_one_of_the_logs_columns(name: str) -> None:
    given = {"path": "/a", "columnnameofcorruptrecord": name}
    with pytest.raises(ConfigError, match=f"columnNameOfCorruptRecord='{name}' is a column of the log"):
        log_columns(parse_options({**given, "mode": "PERMISSIVE"}), has_timestamps=True)
    assert len(log_columns(parse_options(given), has_timestamps=True)) == 4  # only PERMISSIVE adds that column


def test_several_logs_have_their_name_as_a_column() -> None:
    for paths in ('["/a", "/b"]', '["/logs/*"]'):
        columns = log_columns(parse_options({"paths": paths}), has_timestamps=True)
        assert columns[-1].title == "log"


@pytest.mark.parametrize(("text", "size"), [("65536", 64 << 10), ("64k", 64 << 10), ("1m", 1 << 20), ("8MiB", 8 << 20)])
def test_a_size_is_written_alike_for_reading_and_writing(text: str, size: int) -> None:
    assert parse_options({"path": "/a", "maxpartitionbytes": text}).max_partition_bytes == size
    assert parse_write_options({"path": "/a", "segmentbytes": text}).segment_bytes == size


@pytest.mark.slow
@pytest.mark.parametrize("text", ["many", "1", "2g", ""])
def test_a_size_of_log_segments_that_does_not_fit_is_reported(text: str) -> None:
    with pytest.raises(ConfigError, match=f"segmentBytes='{text}'"):
        parse_write_options({"path": "/a", "segmentbytes": text})


def test_kafkas_names_mean_the_same() -> None:
    given = {"path": "/a", "startingOffsets": "3", "endingOffsets": "9"}
    assert parse_options(given) == parse_options({"path": "/a", "startingSequence": "3", "endingSequence": "9"})
    assert parse_options({"path": "/a", "startingOffsets": "earliest", "endingOffsets": "latest"}).range == Range()
    times = {"path": "/a", "startingOffsetsByTimestamp": '{"a": 1700000000000}', "endingTimestamp": "1700000000001"}
    assert parse_options(times).by_log.values == {"startingTimestamp": {"a": 1_700_000_000_000_000}}
    stream = parse_stream_options({"path": "/a", "startingOffsets": "latest", "maxOffsetsPerTrigger": "5"})
    assert (stream.start.is_latest, stream.max_records) == (True, 5)
    for wrong, said in (
        ({"startingOffsets": "3", "startingSequence": "3"}, "mean the same"),
        ({"startingOffsets": '{"events": {"0": -1}}'}, "of 'events-0'='latest' must be a number"),
        ({"startingOffsets": "latest"}, "startingSequence='latest' must be a number"),
    ):
        with pytest.raises(ConfigError, match=said):
            parse_options({"path": "/a", **wrong})


def test_times_are_milliseconds_or_iso_times_in_a_zone() -> None:
    def since(text: str, **options: str) -> int | None:
        return parse_options({"path": "/a", "startingTimestamp": text, **options}).range.since

    assert since("1700000000000") == since("2023-11-14T22:13:20Z") == 1_700_000_000_000_000
    assert since("2023-11-14T22:13:20") == 1_700_000_000_000_000
    assert since("2023-11-14T23:13:20", timeZone="Europe/Berlin") == 1_700_000_000_000_000
    assert since("2023-11-14T22:13:20Z", timeZone="Europe/Berlin") == 1_700_000_000_000_000
    for zone, hour in (("+01:00", 23), ("UTC-3", 19), ("GMT+02:00", 0)):
        day = 15 if hour == 0 else 14
        assert since(f"2023-11-{day}T{hour:02}:13:20", timeZone=zone) == 1_700_000_000_000_000
    for text, zone in (
        ("1700000000", "UTC"),
        ("1700000000000000", "UTC"),
        ("2023-11-14", "Nowhere/Land"),
        ("x", "../x"),
        ("2023-11-14", "+99:00"),
    ):
        with pytest.raises(ConfigError, match=r"milliseconds since 1970|is not a time zone"):
            since(text, timeZone=zone)


@pytest.mark.slow
def test_there_are_as_many_tasks_as_asked_for_at_least() -> None:
    builder = ReplicaBuilder()
    builder.add().ship_segment(make_log([[1] * 20])[0], cuts=range(99), final=None)
    url = stored(builder.objects())
    assert [len(planned(url, minPartitions=least).partitions) for least in (1, 3, 8)] == [1, 3, 8]
    assert len(planned(url, minPartitions=8, numPartitions=2).partitions) == 2


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("subscribe", "load(URL) names the log"),
        ("kafka.bootstrap.servers", "no broker exists"),
        ("kafka.group.id", "a stream keeps its place in its checkpoint"),
        ("kafkaConsumer.pollTimeoutMs", "no broker exists"),
        ("minOffsetsPerTrigger", "Trigger.ProcessingTime"),
    ],
)
def test_an_option_that_only_kafka_has_says_what_to_use_here(name: str, hint: str) -> None:
    for parse in (parse_options, parse_stream_options, parse_write_options):
        with pytest.raises(ConfigError) as caught:
            parse({"path": "s3://bucket/log", name.lower(): "x"})
        assert f"no option {name.lower()!r}, which is Kafka's: " in str(caught.value)
        assert hint in str(caught.value)


def test_bounds_may_be_written_as_people_do() -> None:
    for word in ("oldest", "first", "beginning", "start", "earliest"):
        assert parse_options({"path": "/log", "startingsequence": word}).range == Range()
    for word in ("end", "now", "latest"):
        assert parse_options({"path": "/log", "endingsequence": word}).range == Range()
    found = parse_options({"path": "/log", "startingtimestamp": "2month3days", "endingtimestamp": "1day"}).range
    now = time.time() * 1_000_000
    assert found.since is not None
    assert found.until is not None
    day = 86_400_000_000
    assert 62 * day <= now + day - found.since <= 67 * day
    assert day <= now - found.until < 2 * day
