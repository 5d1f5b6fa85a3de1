"""``litelog spark JOB``: runs jobs on Spark, on this machine, on a cluster's master, or through spark-submit."""

from __future__ import annotations

import time
from typing import Any

import click

from litelog.errors import ExitCode, NoReplicaError
from litelog.units import format_size
from litelog_cli.arguments import PLACE, SAMPLE
from litelog_cli.output import echo, print_json, print_table, with_times
from litelog_cli.spark_compact import compact
from litelog_cli.spark_fleet import collect_report, copy, is_fleet, report_fleet, restore
from litelog_cli.spark_maintain import maintain
from litelog_cli.spark_session import JobSession, find_place, session_options, target_option

DEFAULT_SQL = "SELECT count(*) AS records, min(sequence) AS first, max(sequence) AS last FROM log"

EPILOG = """\b
Examples:
  litelog spark export s3://bucket/events /data/events --partition-by date
  litelog spark verify s3://bucket/events
  litelog spark stats s3://bucket/events --json
  litelog spark hybrid s3://bucket/events /data/events --sql 'SELECT count(*) FROM log'
  litelog spark copy 's3://bucket/logs/*' s3://other/logs
  litelog spark restore 's3://bucket/logs/*' /restored
  litelog spark maintain s3://bucket/events --max-age 30d --confirm
  litelog spark compact /data/events --confirm
\b
On a cluster, with litelog and pyarrow in the Python of its workers:
  litelog spark stats s3://bucket/events --master spark://host:7077
  spark-submit --master yarn "$(python -c 'import litelog_cli.__main__ as m; print(m.__file__)')" \\
      spark export s3://bucket/events s3://bucket/table
"""


@click.group(epilog=EPILOG)
def spark() -> None:
    """Read, check, query, export, copy and restore replicas on Spark, and maintain what Spark writes."""


for _command in (compact, copy, restore, maintain):
    spark.add_command(_command)


@spark.command(
    short_help="Add a replica's new records to a table",
    epilog="""\b
Examples:
  litelog spark export s3://bucket/events /data/events
  litelog spark export file:///backup/events /data/events --partition-by hour
  litelog spark export s3://bucket/events s3://bucket/table --table delta \\
      --schema 'user STRING, amount DOUBLE'
  litelog spark export s3://bucket/users s3://bucket/latest --table delta \\
      --merge-on key
  litelog spark export 's3://bucket/logs/*' s3://bucket/tables
\b
Run it again to add newer records. It repeats the unfinished work of a run that
was killed, and the table holds each record once. The only bound that -o may set
is startingSequence: a new table begins there.
""",
)
@click.argument("replica_url", type=PLACE)
@click.argument("target", type=PLACE)
@click.option(
    "--partition-by", type=click.Choice(["date", "hour"]), help="Write a folder for each day or hour of timestamps."
)
@click.option(
    "--schema",
    metavar="COLUMNS",
    help="Parse values, which are JSON, into these columns: 'user STRING, amount DOUBLE'.",
)
@click.option(
    "--lenient", is_flag=True, help="With --schema: turn values that do not fit into nulls, instead of failing."
)
@click.option("--table", type=click.Choice(["parquet", "delta", "iceberg"]), default="parquet", show_default=True)
@click.option(
    "--iceberg-table",
    metavar="NAME",
    help="With --table iceberg: CATALOG.NAMESPACE.TABLE, of a catalog configured for pyiceberg.",
)
@click.option(
    "--merge-on",
    metavar="COLUMN",
    help="With --table delta: keep only the latest row for each value of this column, such as key.",
)
@target_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object; of a pattern, one for each replica.")
@session_options
def export(
    replica_url: str,
    target: str,
    partition_by: str | None,
    schema: str | None,
    lenient: bool,
    table: str,
    iceberg_table: str | None,
    merge_on: str | None,
    target_option: tuple[tuple[str, str], ...],
    as_json: bool,
    **common: Any,
) -> int:
    """Add all records of a replica that the Parquet, Delta or Iceberg table TARGET lacks.

    REPLICA_URL may be a pattern. Then each replica gets its own table below TARGET.
    """
    from litelog.spark.fleet import export as export_fleet
    from litelog.spark.jobs import export as run_export

    shape: dict[str, Any] = {"partition_by": partition_by, "schema": schema, "lenient": lenient, "table": table}
    shape["merge_on"] = merge_on
    if is_fleet(replica_url):
        if iceberg_table is not None:
            raise click.UsageError("--iceberg-table names one table: export the logs one by one")
        shape["target_options"] = dict(target_option) or None
        report = collect_report("export", common, export_fleet, replica_url, target, **shape)
        rows = sum(row.records or 0 for row in report)
        return report_fleet(report, f"exported {rows} records", as_json=as_json)
    url, options = find_place(replica_url, common)
    with JobSession("export", common) as session:
        done = run_export(
            session.spark,
            url,
            target,
            **shape,
            iceberg_table=iceberg_table,
            options=options,
            target_options=dict(target_option) or None,
            progress=session.progress,
        )
    if as_json:
        numbers = {"records": done.rows, "file_count": done.files, "written_bytes": done.bytes}
        print_json({"runs": done.runs, "first": done.first, "next": done.next, **numbers})
        return ExitCode.DONE
    what = f"{done.rows} records in {done.files} files ({format_size(done.bytes)})"
    echo(f"exported {what}; the table holds all records below sequence {done.next}")
    return ExitCode.DONE


@spark.command(
    short_help="Check all that a replica holds, in parallel",
    epilog="""\b
Examples:
  litelog spark verify s3://bucket/events
  litelog spark verify s3://bucket/events --sample 5% --json
  litelog spark verify 's3://bucket/logs/*'
\b
Exit codes: 0 all is well, 1 something could not be read, 3 there is nothing,
6 anomalies that a reader may meet.
""",
)
@click.argument("replica_url", type=PLACE)
@click.option("--sample", "share", type=SAMPLE, default=1.0, help="Share of the contents to read.  [default: 100%]")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random choice of that share."
)
@click.option(
    "--pattern",
    metavar="PATTERN",
    help="Pattern for the names of log segments (formats lines and raw).  [default: all]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@session_options
def verify(replica_url: str, share: float, seed: int, pattern: str | None, as_json: bool, **common: Any) -> int:
    """Check all that a replica holds, in parallel, without changing anything.

    REPLICA_URL may be a pattern: then all replicas that match it are checked.
    """
    from litelog.spark.fleet import verify as verify_fleet
    from litelog.spark.jobs import verify as run_verify

    given: dict[str, Any] = {"share": share, "seed": seed, "pattern": pattern}
    if is_fleet(replica_url):
        rows = collect_report("verify", common, verify_fleet, replica_url, **given)
        size = format_size(sum(row.log_bytes or 0 for row in rows))
        return report_fleet(rows, f"checked {size} of the logs", as_json=as_json)
    url, options = find_place(replica_url, common)
    with JobSession("verify", common) as session:
        report = run_verify(session.spark, url, **given, options=options, progress=session.progress)
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
    short_help="Count what a log holds",
    epilog="""\b
Examples:
  litelog spark stats s3://bucket/events
  litelog spark stats s3://bucket/events -o startingTimestamp=2026-11-21 --json
""",
)
@click.argument("replica_url", type=PLACE)
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as one JSON object.")
@session_options
def stats(replica_url: str, as_json: bool, **common: Any) -> None:
    """Count what a log holds: records, bytes, ratio, rate over time, gaps, duplicates, keys."""
    from litelog.spark.jobs import stats as run_stats

    url, options = find_place(replica_url, common)
    with JobSession("stats", common) as session:
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
    short_help="Query an exported table and what follows it",
    epilog="""\b
Examples:
  litelog spark hybrid s3://bucket/events /data/events
  litelog spark hybrid s3://bucket/events /data/events \\
      --sql 'SELECT key, count(*) AS n FROM log GROUP BY key ORDER BY n DESC LIMIT 10'
""",
)
@click.argument("replica_url", type=PLACE)
@click.argument("target", type=PLACE)
@click.option(
    "--sql", metavar="QUERY", default=DEFAULT_SQL, show_default=True, help="Query to run; the view is called log."
)
@target_option
@session_options
def hybrid(replica_url: str, target: str, sql: str, target_option: tuple[tuple[str, str], ...], **common: Any) -> None:
    """Query a log: reads the exported table TARGET, and the replica after the table's end. Prints each row as JSON."""
    from litelog.spark.jobs import query

    url, options = find_place(replica_url, common)
    with JobSession("hybrid", common) as session:
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


@spark.command(
    short_help="Compile the columnar reader, for a cluster",
    epilog="""\b
Examples:
  litelog spark jar -o litelog-spark.jar
  spark-submit --jars litelog-spark.jar job.py
""",
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


def _render(micros: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(micros // 1_000_000))
