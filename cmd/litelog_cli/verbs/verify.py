"""``litelog verify``: checks whether a replica holds all that its writers promised."""

from __future__ import annotations

import logging
import os
import shlex
from typing import TYPE_CHECKING, Any, cast

import click

from litelog.dataclass import dataclass
from litelog.errors import ConfigError, EncryptedError, ExitCode, LitelogError, NoReplicaError
from litelog.formats.registry import open_stored_format
from litelog.units import format_count, format_duration, format_iso, format_size
from litelog_cli.arguments import FORMAT, PLACE, SAMPLE, opened_replica
from litelog_cli.checkpoints import CheckpointOptions, checkpoint_options, follow_task, read_task
from litelog_cli.config_file import choose_state_dir, read_config
from litelog_cli.configured import find_replica, is_as_of, require_present
from litelog_cli.journals import GAZETTE, verify_fragments
from litelog_cli.listed import as_of_option, replica_config_option
from litelog_cli.local_logs import check_local, find_local_check, local_exit_code, local_verdict, print_local
from litelog_cli.logging_setup import say
from litelog_cli.output import echo, error_json, format_number, format_place, kind_of, print_json, print_table
from litelog_cli.owner_state import find_acknowledged
from litelog_cli.progress import quiet_option, report_walk, showing_progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.formats import LogFormat
    from litelog.stores.object_store import ObjectReplicaClient, ObjectStore
    from litelog.verify.findings import Acknowledged, Scope, Watch
    from litelog.verify.local_compare import Comparison
    from litelog.verify.local_report import LocalReport
    from litelog.verify.report import VerifyReport
    from litelog_cli.drill import DrillResult

DEFAULT_PARALLELISM = 4
MAX_PARALLELISM = 64
"""The library's limit."""


SEED_BITS = 32


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """The arguments and options of ``litelog verify``."""

    replica_url: str
    against: str | None
    state_dir: str | None
    share: float
    seed: int | None
    restore_drill: bool
    temp_dir: str | None
    format_name: str | None
    pattern: str | None
    local: bool
    expected: str | None
    trusted_keys: tuple[str, ...]
    save_checkpoint: str | None
    sign_key: str | None
    next_key: str | None
    parallelism: int
    config_file: str | None
    strict: bool
    as_json: bool
    quiet: bool


@click.command(
    epilog="""\b
Examples:
  litelog verify file:///backup/events
  litelog verify file:///backup/events --against /var/lib/events
  litelog verify s3://bucket/events --sample 5%
  litelog verify file:///backup/events --restore-drill --temp-dir /scratch
  litelog verify --config /etc/litelog.yml s3://bucket/events
  litelog verify file:///backup/events --json
  litelog verify --format gazette s3://bucket/acme/clicks/part-000
  litelog verify /var/lib/events
  litelog verify --local /var/lib/events
  litelog verify --format kafka /var/lib/kafka/orders-0
  litelog verify s3://bucket/events --save-checkpoint c-1 --sign-key key.pem
  litelog verify s3://bucket/events --expect-at-least c-1 --trusted-key pub.pem
  litelog verify s3://bucket/events --trusted-key pub.pem
\b
Exit codes: 0 all is well, 1 something could not be read or judged, 2 usage,
3 there is nothing, 6 anomalies, or less than was expected. Without an identity,
only names, sizes and framing of an encrypted replica are checked: the exit code
is 6 for an anomaly, or else 1. A leftover (a foreign name, an object that no
reader needs) is reported, and counts as an anomaly only with --strict.
"""
)
@click.argument("replica_url", metavar="REPLICA_URL|LOG_DIR", type=PLACE)
@click.option(
    "--against",
    metavar="LOG_DIR",
    type=PLACE,
    help="Compare with the log in this folder, and list what was not compared. Does not change the log.",
)
@click.option(
    "--state-dir",
    metavar="FOLDER",
    help="Where the daemon of the log of --against keeps its state.  [default: as for replicate]",
)
@click.option(
    "--sample",
    "share",
    type=SAMPLE,
    default=1.0,
    help="Read all structure, but only this share of the contents.  [default: 100%]",
)
@click.option("--seed", type=click.IntRange(0), help="Seed of the sample.  [default: random, and printed]")
@click.option(
    "--restore-drill", is_flag=True, help="Also restore the replica to a temporary folder, and check the result."
)
@click.option(
    "--temp-dir", metavar="FOLDER", help="Folder for the restore drill.  [default: the system's temporary folder]"
)
@click.option(
    "--format",
    "format_name",
    type=FORMAT,
    help="Check only the log's own files in LOG_DIR, which have this format. With gazette: a journal's fragments.",
)
@click.option(
    "--pattern",
    metavar="PATTERN",
    help="Pattern for the names of log segments (formats lines and raw).  [default: all]",
)
@click.option("--local", is_flag=True, help="Check only the log's own files in LOG_DIR.")
@checkpoint_options
@click.option(
    "--parallelism",
    type=click.IntRange(1, MAX_PARALLELISM),
    default=DEFAULT_PARALLELISM,
    show_default=True,
    help="Objects to read in parallel.",
)
@replica_config_option
@as_of_option
@click.option("--strict", is_flag=True, help="Treat leftovers that no reader needs as anomalies, too.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@quiet_option
def verify(**arguments: Any) -> int:
    """Check all that a replica or the folder of a log holds, without changing anything.

    Checks claims, generations, the chain of WAL segments, sealed segments with their footers and frames, snapshots, and
    the objects that they name. Reports each anomaly with its kind and the object's key, and continues after it.

    Given LOG_DIR, checks the log's own files: each anomaly has its file, offset, sequence and kind. If the
    configuration names the log, checks its replica as well, unless --local or --format is given. With an option that
    only replicas have, such as --sample, checks only the replica.
    """
    options = VerifyOptions(**arguments)
    if options.format_name == GAZETTE:
        return _verify_journal(options)
    place, pattern, config_file = options.replica_url, options.pattern, options.config_file
    check = find_local_check(place, options.format_name, pattern, config_file, only_local=options.local)
    is_of_replica = _replica_option(options) is not None or is_as_of()
    if check is None or (is_of_replica and not check.is_all):
        return _verify_replica(options, None)
    _refuse_options(options, "a log's own files")
    local = check_local(check, shown=not (options.quiet or options.as_json))
    if not options.as_json:
        print_local(local)
    elif check.is_all:
        print_json(local.as_json())
    code = local_exit_code(local, strict=options.strict)
    if check.is_all:
        return code
    try:
        return _worse(code, _verify_replica(options, local))
    except LitelogError as error:
        if code is ExitCode.DONE:
            raise
        say(f"litelog: {error}", "failed", level=logging.ERROR, exit_code=int(error.exit_code))
        if options.as_json:
            what = error_json(kind_of(error), str(error), int(error.exit_code))
            print_json({"local": local.as_json(), "error": what})
        return code


def _worse(one: int, other: int) -> int:
    """The exit code of two checks: damage is worse than something that could not be read."""
    return max(one, other, key=(ExitCode.DONE, ExitCode.FAILURE, ExitCode.CORRUPTION).index)


def _verify_replica(options: VerifyOptions, local: LocalReport | None) -> int:
    """Verify a replica, and print its report. ``local``: what was found in the log's own files."""
    from random import SystemRandom

    from litelog.system.memory import keep_freed_memory
    from litelog.verify.findings import Scope, Watch

    _require_folders(options)
    task = read_task(_checkpoint(options))
    if task is not None and task.compares_contents and options.share < 1:
        raise click.UsageError(f"{_checkpoint(options).given()} needs all of the contents: leave out --sample")
    keep_freed_memory()
    scope = Scope(options.share, SystemRandom().getrandbits(SEED_BITS) if options.seed is None else options.seed)
    replica = find_replica(options.replica_url, options.config_file)
    with opened_replica(replica.url, replica.options) as opened:
        client = cast("ObjectReplicaClient", opened)
        known = None
        if options.against is not None:
            known = find_acknowledged(
                _state_dir(options.state_dir, options.config_file), options.against, replica.url, client.url
            )
        with showing_progress("verify", quiet=options.quiet or options.as_json) as show:
            watch = Watch(
                None if show is None else lambda progress: show(progress.bytes, progress.total_bytes),
                walk=report_walk("verify", quiet=show is None),
            )
            report = _check(client.store, options, scope, known, watch)
        if report.is_empty and not (options.trusted_keys and report.checkpoints):
            raise NoReplicaError(client.url)
        drill = None
        if options.restore_drill:
            drill = _drill(client, options)
        code = exit_code(report, drill, strict=options.strict)
        following = next((each.next for each in reversed(report.generations)), None)
        checkpoints = follow_task(task, client, options.pattern, following, is_sound=code == ExitCode.DONE)
    if options.as_json:
        drilled, checked = None if drill is None else drill.as_json(), None if local is None else local.as_json()
        print_json({**report.as_json(), "drill": drilled, "local": checked, **checkpoints.as_json()})
    else:
        if local is not None:
            echo()
        is_expected = checkpoints.exit_code == ExitCode.DONE
        _print(report, scope, drill, has_keys=bool(options.trusted_keys), is_expected=is_expected)
        checkpoints.show()
        if local is not None and local_exit_code(local, strict=options.strict) is not ExitCode.DONE:
            echo(f"the log's own files: {local_verdict(local)}")
    return _worse(code, checkpoints.exit_code)


def _check(
    store: ObjectStore, options: VerifyOptions, scope: Scope, known: Acknowledged | None, watch: Watch
) -> VerifyReport:
    """Check a replica, or what can be checked of it without an identity. ``known``: what its owner acknowledged."""
    from litelog.verify.execution import verify as verify_replica
    from litelog.verify.without_identity import verify_without_identity

    try:
        return verify_replica(
            store,
            formats=lambda name: open_stored_format(name, options.pattern),
            scope=scope,
            parallelism=options.parallelism,
            acknowledged=known,
            against=options.against,
            watch=watch,
        )
    except EncryptedError:
        if _replica_option(options) is not None:
            raise  # it needs the contents
        return verify_without_identity(store, parallelism=options.parallelism, watch=watch)


def _checkpoint(options: VerifyOptions) -> CheckpointOptions:
    keys = (options.sign_key, options.next_key)
    return CheckpointOptions(options.expected, options.trusted_keys, options.save_checkpoint, *keys)


def _verify_journal(options: VerifyOptions) -> int:
    """Verify the fragments of a journal. Raises UsageError for an option that they do not have."""
    _refuse_options(options, f"the fragments of a journal (--format {GAZETTE})")
    if options.pattern is not None:
        raise click.UsageError(f"--pattern is not for the fragments of a journal (--format {GAZETTE})")
    place, config_file = options.replica_url, options.config_file
    return verify_fragments(place, config_file, options.parallelism, as_json=options.as_json, quiet=options.quiet)


def _refuse_options(options: VerifyOptions, checked: str) -> None:
    """Raise UsageError for an option that only replicas have. ``checked``: what is checked instead of one."""
    option = _replica_option(options)
    if option is not None:
        raise click.UsageError(f"{option} is not for {checked}")
    require_present(checked)


def _replica_option(options: VerifyOptions) -> str | None:
    """The first given option that only replicas have; None if there is none."""
    given = {
        "--against": options.against is not None,
        "--state-dir": options.state_dir is not None,
        "--sample": options.share < 1,
        "--restore-drill": options.restore_drill,
        "--temp-dir": options.temp_dir is not None,
    }
    return next((option for option, is_given in given.items() if is_given), None) or _checkpoint(options).given()


def _require_folders(options: VerifyOptions) -> None:
    """Raise UsageError for a folder that no option uses, and UsageError or ConfigError for one that does not exist."""
    against, temp_dir = options.against, options.temp_dir
    if options.state_dir is not None and against is None:
        raise click.UsageError("--state-dir needs --against")
    if temp_dir is not None and not options.restore_drill:
        raise click.UsageError("--temp-dir needs --restore-drill")
    if temp_dir is not None and not os.path.isdir(temp_dir):
        raise ConfigError(f"--temp-dir {temp_dir}: no such folder")
    if against is not None and not os.path.isdir(against):
        raise click.UsageError(f"--against {against}: no such folder")


def _state_dir(given: str | None, config_file: str | None) -> str:
    """The folder in which the daemon keeps its state, found as the daemon itself finds it."""
    return choose_state_dir(given, read_config(config_file) if given is None else None)


def _drill(client: ObjectReplicaClient, options: VerifyOptions) -> DrillResult:
    from litelog_cli.drill import run_drill

    def formats(name: str) -> LogFormat:
        return open_stored_format(name, options.pattern)

    with showing_progress("restore drill", quiet=options.quiet or options.as_json) as show:
        return run_drill(client, options.against, options.temp_dir, formats, options.parallelism, show)


def exit_code(report: VerifyReport, drill: DrillResult | None, *, strict: bool) -> int:
    """The exit code for a verification and its drill. ``strict``: leftovers count as anomalies."""
    unjudged = report.counts.get("version", 0)
    if report.harmful > unjudged or (strict and report.anomalies) or (drill is not None and drill.is_corrupt):
        return ExitCode.CORRUPTION
    if (
        _is_unchecked(report)
        or unjudged
        or report.hidden
        or report.failed
        or report.unknown_formats
        or (drill is not None and drill.error is not None)
    ):
        return ExitCode.FAILURE
    return ExitCode.DONE


def _is_unchecked(report: VerifyReport) -> bool:
    """Whether the replica has contents, and the sample held none of them."""
    return 0 < report.share < 1 and not report.content_bytes and bool(report.sealed_segments + report.wal_segments)


def _print(report: VerifyReport, scope: Scope, drill: DrillResult | None, *, has_keys: bool, is_expected: bool) -> None:
    columns = ("generation", "relation", "state", "end", "next", "snapshots", "sealed", "WAL")
    rows = [
        (
            held.generation,
            held.relation or "no claim",
            "ended" if held.ended else "open",
            format_place(held.end),
            format_number(held.next),
            format_number(held.snapshots),
            format_number(held.sealed_segments),
            format_number(held.wal_segments),
        )
        for held in report.generations
    ]
    print_table(columns, rows, ("next", "snapshots", "sealed", "WAL"))
    if report.anomalies:
        echo()
        marked = [(str(it.kind), it.key, it.what if it.harmful else f"{it.what} (harmless)") for it in report.anomalies]
        print_table(("anomaly", "object", ""), marked)
        total = sum(report.counts.values())
        if total > len(report.anomalies):
            echo(f"... and {total - len(report.anomalies)} more")
    for failure in report.failures:
        echo(f"could not be read: {failure}")
    for name in report.unknown_formats:
        echo(f"format {name} is not installed here: its commits were not checked")
    echo()
    for line in summary(report, scope, drill, has_keys=has_keys, is_expected=is_expected):
        echo(line)


MAX_NAMED = 5
"""How many log segments that were not compared are listed for each reason; --json lists more."""

_REASONS = {
    "newer": "newer than what the replica holds",
    "earlier": "only in an earlier generation",
    "rewritten": "rewritten by the log's writer since (records are compared instead, unless sampled)",
    "empty": "empty",
    "sampled": "not in the sample",
}


def _left_out(comparison: Comparison) -> Iterator[str]:
    """Yield what was not compared: a line for each reason, with the first names."""
    if comparison.missing:
        missing = format_count(comparison.missing, "log segment")
        yield f"not compared: {missing} missing in the replica, an anomaly each"
    named: dict[str, list[str]] = {}
    for each in comparison.not_compared:
        named.setdefault(each.reason, []).append(each.file)
    for reason, files in named.items():
        more = f" and {len(files) - MAX_NAMED} more" if len(files) > MAX_NAMED else ""
        yield f"not compared: {len(files)} {_REASONS[reason]}: {', '.join(files[:MAX_NAMED])}{more}"
    if unlisted := comparison.left_out - len(comparison.not_compared):
        yield f"not compared: {unlisted} more"


def _about_versions(report: VerifyReport) -> Iterator[str]:
    """Yield what was not checked of the versions of objects, or how to go back before somebody changed them."""
    versions = report.versions
    if versions.error is not None:
        yield f"not checked: what somebody deleted or overwrote: {versions.error}"
    if versions.tampered_since is not None:
        as_of = format_iso(versions.tampered_since)
        yield (
            f"objects were deleted or overwritten since {as_of}: to read the replica as it was, "
            f"litelog restore {shlex.quote(report.replica)} -o FOLDER --as-of {as_of}"
        )


def summary(
    report: VerifyReport,
    scope: Scope,
    drill: DrillResult | None,
    *,
    has_keys: bool = False,
    is_expected: bool = True,
) -> Iterator[str]:
    """Yield what was read and compared, and the verdict at the end. ``has_keys``: whether --trusted-key is given.
    ``is_expected``: whether the replica is as the checkpoints say."""
    if report.hidden:
        yield (
            f"looked at the names, sizes and framing of {format_count(report.hidden, 'object')} "
            f"({format_size(report.object_bytes)}); not checked: records, headers, footers, snapshots, the chain of "
            "digests, signatures. --identity FILE checks them"
        )
        yield from _about_versions(report)
        yield _verdict(report, drill)
        return
    objects = report.claims + report.snapshots + report.sealed_segments + report.wal_segments
    yield (
        f"read {format_count(objects, 'object')} ({format_size(report.object_bytes)}) and checked "
        f"{format_size(report.content_bytes)} of the log in {format_duration(report.seconds)}"
    )
    if report.checkpoints:
        hint = "" if has_keys else "; verify --trusted-key PEM_FILE shows who signed them"
        yield f"the replica holds {format_count(report.checkpoints, 'checkpoint')}{hint}"
    if not scope.is_all:
        yield f"sampled {scope.share * 100:g}% of the contents: --sample {scope.share * 100:g}% --seed {scope.seed}"
    if report.against is not None:
        with_log = report.against
        older = f", {format_count(with_log.gone, 'older one')} no longer in the log" if with_log.gone else ""
        yield (
            f"compared {format_count(with_log.files, 'log segment')} ({format_size(with_log.bytes)}) with "
            f"{with_log.folder}{older}; {format_size(with_log.behind)} there are not in the replica yet"
        )
        yield from _left_out(with_log)
    yield from _about_versions(report)
    if drill is not None:
        yield str(drill)
    verdict = _verdict(report, drill)
    yield verdict if is_expected else verdict.replace(WELL, AGREES)


WELL = "all is well"
AGREES = "the objects agree with each other"
"""Instead of ``WELL``, for a replica that is not as expected."""


def _verdict(report: VerifyReport, drill: DrillResult | None) -> str:
    """The last line: the first of these that is so."""
    lying = sum(report.counts.values()) - report.harmful
    hidden, failed = format_count(report.hidden, "object"), format_count(report.failed, "object")
    verdicts = (
        (report.harmful, format_count(report.harmful, "anomaly", "anomalies")),
        (report.failed, f"no anomaly was found, but {failed} could not be read"),
        (report.is_empty, "no replica is here, only checkpoints"),
        (report.hidden, f"names, sizes and framing are sound; the contents of {hidden} were NOT checked"),
        (report.unknown_formats, "no anomaly was found, but the commits were not checked"),
        (_is_unchecked(report), "no contents were checked: the sample holds none; take a larger --sample"),
        (
            drill is not None and drill.error is not None,
            "the replica holds all that its writers promised, but it could NOT be restored here",
        ),
        (True, WELL + (f" (leftovers that no reader needs: {lying})" if lying else "")),
    )
    return next(words for holds, words in verdicts if holds)
