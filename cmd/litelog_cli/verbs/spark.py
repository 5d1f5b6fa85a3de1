"""``litelog spark JOB``: runs jobs on Spark, on this machine, on a cluster's master, or through spark-submit."""

from __future__ import annotations

import logging
import time
import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import click

from litelog.errors import ExitCode, LitelogError, NoReplicaError
from litelog.events import fields
from litelog.units import format_size
from litelog_cli.arguments import PLACE, SAMPLE
from litelog_cli.configured import find_replica
from litelog_cli.listed import replica_config_option
from litelog_cli.output import echo, print_json, print_table, with_times
from litelog_cli.progress import quiet_option, showing_progress
from litelog_cli.spark_maintain import maintain
from litelog_cli.task_errors import find_task_error

if TYPE_CHECKING:
    from collections.abc import Callable

_Command = TypeVar("_Command", bound="Callable[..., Any]")

_logger = logging.getLogger(__name__)

DEFAULT_SQL = "SELECT count(*) AS records, min(sequence) AS first, max(sequence) AS last FROM log"

EPILOG = """\b
Examples:
  litelog spark export s3://bucket/events /data/events --partition-by date
  litelog spark verify s3://bucket/events
  litelog spark stats s3://bucket/events --json
  litelog spark hybrid s3://bucket/events /data/events --sql 'SELECT count(*) FROM log'
  litelog spark maintain s3://bucket/events --max-age 30d --confirm
\b
On a cluster, with litelog and pyarrow in the Python of its workers:
  litelog spark stats s3://bucket/events --master spark://host:7077
  spark-submit --master yarn "$(python -c 'import litelog_cli.__main__ as m; print(m.__file__)')" \\
      spark export s3://bucket/events s3://bucket/table
"""


class _Assignment(click.ParamType[tuple[str, str]]):
    """A parameter NAME=VALUE."""

    name = "name=value"

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, rest = value.partition("=")
        if not equals or not name.strip():
            self.fail(f"{name!r} has no value: write NAME=VALUE", param, ctx)
        return name.strip(), rest


def _session_options(command: _Command) -> _Command:
    """Add the options of every job: where Spark runs, and how it reads."""
    options = [
        click.option("--master", help="Spark's master.  [default: local[*], or spark-submit's]"),
        click.option("--driver-memory", default="2g", show_default=True, help="Memory of the driver's JVM."),
        click.option("--conf", multiple=True, type=_Assignment(), help="A setting of Spark; repeatable."),
        click.option(
            "-o", "--option", multiple=True, type=_Assignment(), help="An option of the data source; repeatable."
        ),
        replica_config_option,
        quiet_option,
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.group(epilog=EPILOG)
def spark() -> None:
    """Read, check, query and export replicas on Spark, and maintain those that only Spark writes."""


spark.add_command(maintain)


@spark.command(
    epilog="""\b
Examples:
  litelog spark export s3://bucket/events /data/events
  litelog spark export file:///backup/events /data/events --partition-by hour
  litelog spark export s3://bucket/events s3://bucket/table --table delta \\
      --schema 'user STRING, amount DOUBLE'
\b
Run it again to add newer records. It repeats the unfinished work of a run that
was killed, and the table holds each record once. The only bound that -o may set
is startingSequence: a new table begins there.
"""
)
@click.argument("replica_url", type=PLACE)
@click.argument("target", type=PLACE)
@click.option(
    "--partition-by", type=click.Choice(["date", "hour"]), help="Write a folder for each day or hour of timestamps."
)
@click.option("--schema", help="Parse values, which are JSON, into these columns: 'user STRING, amount DOUBLE'.")
@click.option(
    "--lenient", is_flag=True, help="With --schema: turn values that do not fit into nulls, instead of failing."
)
@click.option("--table", type=click.Choice(["parquet", "delta", "iceberg"]), default="parquet", show_default=True)
@click.option(
    "--iceberg-table", help="With --table iceberg: CATALOG.NAMESPACE.TABLE, of a catalog configured for pyiceberg."
)
@click.option(
    "--target-option", multiple=True, type=_Assignment(), help="Option of the target's store: s3.NAME or store.NAME."
)
@_session_options
def export(
    replica_url: str,
    target: str,
    partition_by: str | None,
    schema: str | None,
    lenient: bool,
    table: str,
    iceberg_table: str | None,
    target_option: tuple[tuple[str, str], ...],
    **common: Any,
) -> None:
    """Add all records of a replica that the Parquet, Delta or Iceberg table TARGET lacks."""
    from litelog.spark.jobs import export as run_export

    url, options = _place(replica_url, common)
    with _Session("export", common) as session:
        done = run_export(
            session.spark,
            url,
            target,
            partition_by=partition_by,
            schema=schema,
            lenient=lenient,
            table=table,
            iceberg_table=iceberg_table,
            options=options,
            target_options=dict(target_option) or None,
            progress=session.progress,
        )
    what = f"{done.rows} records in {done.files} files ({format_size(done.bytes)})"
    echo(f"exported {what}; the table holds all records below sequence {done.next}")


@spark.command(
    epilog="""\b
Examples:
  litelog spark verify s3://bucket/events
  litelog spark verify s3://bucket/events --sample 5% --json
\b
Exit codes: 0 all is well, 1 something could not be read, 3 there is nothing,
6 anomalies that a reader may meet.
"""
)
@click.argument("replica_url", type=PLACE)
@click.option("--sample", "share", type=SAMPLE, default=1.0, show_default="100%", help="Share of the contents to read.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random choice of that share."
)
@click.option("--pattern", help="Pattern for the names of log segments (formats lines and raw).  [default: all]")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@_session_options
def verify(replica_url: str, share: float, seed: int, pattern: str | None, as_json: bool, **common: Any) -> int:
    """Check all that a replica holds, in parallel, without changing anything."""
    from litelog.spark.jobs import verify as run_verify

    url, options = _place(replica_url, common)
    with _Session("verify", common) as session:
        report = run_verify(
            session.spark,
            url,
            share=share,
            seed=seed,
            pattern=pattern,
            options=options,
            progress=session.progress,
        )
    if report.is_empty:
        raise NoReplicaError(report.replica)
    if as_json:
        print_json(report.as_json())
    else:
        marked = [(str(it.kind), it.key, it.what if it.harmful else f"{it.what} (harmless)") for it in report.anomalies]
        if marked:
            print_table(("anomaly", "object", ""), marked)
        for failure in report.failures:
            echo(f"could not be read: {failure}")
        objects = report.claims + report.snapshots + report.sealed_segments + report.wal_segments
        echo(f"read {objects} objects and checked {format_size(report.content_bytes)} of the log")
        echo("all is well" if not report.harmful else f"{report.harmful} anomalies")
    if report.harmful:
        return ExitCode.CORRUPTION
    return ExitCode.FAILURE if report.failed else ExitCode.DONE


@spark.command(
    epilog="""\b
Examples:
  litelog spark stats s3://bucket/events
  litelog spark stats s3://bucket/events -o startingTimestamp=2026-11-21 --json
"""
)
@click.argument("replica_url", type=PLACE)
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as one JSON object.")
@_session_options
def stats(replica_url: str, as_json: bool, **common: Any) -> None:
    """Count what a log holds: records, bytes, ratio, rate over time, gaps, duplicates, keys."""
    from litelog.spark.jobs import stats as run_stats

    url, options = _place(replica_url, common)
    with _Session("stats", common) as session:
        found = run_stats(session.spark, url, options=options, progress=session.progress)
    if as_json:
        numbers = with_times(found.as_json(), "lowest_timestamp", "highest_timestamp")
        print_json({**numbers, "rate": [with_times(bucket, "time") for bucket in numbers["rate"]]})
        return
    ratio = "-" if found.ratio is None else f"{found.ratio:.2f}"
    rows = [
        ("records", str(found.records)),
        ("sequences", "-" if found.first is None else f"{found.first}-{found.last}"),
        ("bytes of keys and values", format_size(found.bytes)),
        ("bytes of the log", format_size(found.log_bytes)),
        ("stored", format_size(found.stored_bytes)),
        ("ratio", ratio),
        ("gaps", f"{found.gaps} ({found.missing} sequences)"),
        ("duplicates", str(found.duplicates)),
        ("different keys", f"about {found.keys}"),
        ("records without a key", str(found.without_key)),
    ]
    print_table(("", ""), rows)
    if found.rate:
        echo()
        rate = [
            (_render(bucket.start), str(bucket.records), f"{bucket.records / found.bucket_seconds:.1f}")
            for bucket in found.rate
        ]
        print_table(("from", "records", "a second"), rate, ("records", "a second"))


@spark.command(
    epilog="""\b
Examples:
  litelog spark hybrid s3://bucket/events /data/events
  litelog spark hybrid s3://bucket/events /data/events \\
      --sql 'SELECT key, count(*) AS n FROM log GROUP BY key ORDER BY n DESC LIMIT 10'
"""
)
@click.argument("replica_url", type=PLACE)
@click.argument("target", type=PLACE)
@click.option("--sql", default=DEFAULT_SQL, show_default=True, help="Query to run; the view is called log.")
@click.option(
    "--target-option", multiple=True, type=_Assignment(), help="Option of the target's store: s3.NAME or store.NAME."
)
@_session_options
def hybrid(replica_url: str, target: str, sql: str, target_option: tuple[tuple[str, str], ...], **common: Any) -> None:
    """Query a log: reads the exported table TARGET, and the replica after the table's end. Prints each row as JSON."""
    from litelog.spark.jobs import query

    url, options = _place(replica_url, common)
    with _Session("hybrid", common) as session:
        lines = query(
            session.spark,
            url,
            target,
            sql,
            options=options,
            target_options=dict(target_option) or None,
            progress=session.progress,
        )
    for line in lines:
        echo(line)


class _Session:
    """A Spark session for one job. A litelog error keeps its message and exit code, even if a Spark task raised it."""

    def __init__(self, job: str, common: dict[str, Any]) -> None:
        self._job = job
        self._common = common
        self._closing = ExitStack()
        self.spark: Any = None
        self.progress: Callable[[int, int], None] | None = None

    def __enter__(self) -> _Session:
        from litelog.spark.spark_session import is_active, session

        logging.getLogger("py4j").setLevel(logging.WARNING)
        warnings.filterwarnings("ignore", message="PySpark does not yet", category=FutureWarning)  # pandas: not used
        common = self._common
        is_ours = not is_active()
        level = "ERROR" if _logger.isEnabledFor(logging.DEBUG) else "FATAL"  # traces of errors that are reported anyway
        config = {"spark.log.level": level, **dict(common["conf"])}
        self.spark = session(
            f"litelog {self._job}", master=common["master"], driver_memory=common["driver_memory"], config=config
        )
        if is_ours:
            self._closing.callback(self.spark.stop)
        self.progress = self._closing.enter_context(showing_progress(self._job, quiet=common["quiet"]))
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._closing.close()
        raised = None
        if isinstance(error, Exception) and not isinstance(error, LitelogError):
            raised = find_task_error(str(error))
        if raised is not None:
            said = "%s: raised by a Spark task"
            _logger.debug(said, self._job, exc_info=error, extra=fields("task-failed", job=self._job))
            raise raised from None


@spark.command(
    epilog="""\b
Examples:
  litelog spark jar -o litelog-spark.jar
  spark-submit --jars litelog-spark.jar job.py
"""
)
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False), help="Where to write the jar.")
def jar(output: str) -> None:
    """Compile the columnar reader, for a cluster. Needs a JDK, and the Spark that will run it.

    Keep "litelog-spark" at the beginning of the jar's name: sessions know it by that.
    """
    from litelog.spark.jvm.jar import build_jar
    from litelog.spark.spark_session import require_spark

    require_spark()
    echo(str(build_jar(output)))


def _place(replica_url: str, common: dict[str, Any]) -> tuple[str, dict[str, object]]:
    """The replica's URL, and the options of the data source: those of the command override the configured ones."""
    replica = find_replica(replica_url, common["config_file"])
    return replica.url, {
        **{f"store.{name}": value for name, value in replica.options.items()},
        **dict(common["option"]),
    }


def _render(micros: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(micros // 1_000_000))
