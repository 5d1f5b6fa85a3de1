"""``litelog mirror``: keeps a byte-equal copy of a log that a daemon serves, and promotes that copy to a log."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from litelog.dataclass import dataclass
from litelog.errors import ExitCode
from litelog.units import format_size
from litelog_cli.arguments import PLACE
from litelog_cli.configured import find_replica
from litelog_cli.listed import replica_config_option
from litelog_cli.logging_setup import say
from litelog_cli.output import echo, print_json
from litelog_cli.progress import quiet_option, showing_progress, watching_status
from litelog_cli.signals import ending_on_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litelog.log.recovery import OnTrailing
    from litelog.restore.execution import RestoreProgress
    from litelog.restore.mirror import Mirror
    from litelog.restore.opened_mirror import MirrorRules, OnFork
    from litelog_cli.configured import ConfiguredReplica


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """The options of ``litelog mirror``."""

    pattern: str | None
    once: bool
    on_fork: OnFork
    on_trailing: OnTrailing
    as_json: bool
    quiet: bool
    replicas: tuple[ConfiguredReplica, ...]

    @property
    def rules(self) -> MirrorRules:
        """How each log is mirrored."""
        from litelog.restore.opened_mirror import MirrorRules

        replicas = tuple((replica.url, replica.options) for replica in self.replicas)
        return MirrorRules(self.pattern, self.on_fork, self.on_trailing, replicas)


@click.command(
    epilog="""\b
Examples:
  litelog mirror http://a:9977/logs/orders /var/lib/orders
  litelog mirror --config litelog.yml https://a:9977/logs/orders /var/lib/orders
  litelog mirror --once --json http://a:9977/logs/orders /var/lib/orders
  litelog mirror --replica s3://bucket/orders http://a:9977/logs/orders orders
  litelog mirror 'http://a:9977/logs/app-*' /var/lib/mirrors
  litelog mirror --promote /var/lib/orders s3://bucket/orders
\b
Run it again to continue, also after kill -9. While the source cannot be
reached, the mirror waits, or follows a --replica. If the log's history forks,
the mirror ends with exit code 1 and stays as it is; with --on-fork new it is
renamed to FOLDER.GENERATION, and another mirror begins.
\b
A URL with * stands for all served logs whose names match. Each is mirrored
into FOLDER/NAME, and new logs are found as the daemon serves them. A log that
fails does not stop the others. A log that is no longer served keeps its mirror.
In --replica, * then stands for the log's name: 's3://bucket/*'.
\b
--promote makes the mirror a log to write to, once its source is gone. It first
reads what the log's replicas have and the mirror lacks. Then start a daemon for
it, with replicate --takeover: the daemon of the source is fenced.
\b
Exit codes: 0 done, 1 failure or fork, 2 usage, 3 no replica there yet, or no
log of such a name, 6 damage, 130 or 143: a signal came before the first restore
was complete, or the mirror had not ended 5 seconds after it.
"""
)
@click.argument("places", metavar="LOG_URL FOLDER | --promote FOLDER REPLICA_URL...", nargs=-1, required=True)
@click.option("--promote", "is_promotion", is_flag=True, help="Make the mirror in FOLDER a log to write to.")
@click.option("--once", is_flag=True, help="End after a second without new data.")
@click.option(
    "--on-fork",
    type=click.Choice(["error", "new"]),
    default="error",
    show_default=True,
    help="What to do if the mirror cannot continue: end, or rename it and begin a new mirror.",
)
@click.option(
    "--on-trailing",
    type=click.Choice(["trim", "error"]),
    default="trim",
    show_default=True,
    help="What to do with bytes after the last whole commit.",
)
@click.option(
    "--pattern",
    metavar="PATTERN",
    help="Pattern for the names of log segments (formats lines and raw).  [default: all]",
)
@click.option(
    "--replica",
    "replicas",
    multiple=True,
    metavar="REPLICA_URL",
    help="A replica of the log, to follow while the daemon cannot be reached; * is the log's name. Repeatable.",
)
@replica_config_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@quiet_option
def mirror(
    places: tuple[str, ...], is_promotion: bool, replicas: tuple[str, ...], config_file: str | None, **options: Any
) -> int:
    """Keep a byte-equal copy of a log that a daemon serves. It follows the log within milliseconds."""
    from litelog.restore.wal_restore import RestoreStoppedError
    from litelog.stores.served_logs import is_pattern
    from litelog.system.memory import keep_freed_memory
    from litelog_cli.mirror_all import mirror_all

    keep_freed_memory()
    given = MirrorOptions(**options, replicas=tuple(_find(url, config_file) for url in replicas))
    if len(places) < 2 or (len(places) > 2 and not is_promotion):
        raise click.UsageError("write LOG_URL FOLDER, or --promote FOLDER REPLICA_URL...")
    if replicas and is_promotion:
        raise click.UsageError("--replica is for a mirror that follows; with --promote, name replicas after the folder")
    is_group = not is_promotion and is_pattern(places[0])
    if any(("*" in replica) != is_group for replica in replicas):
        raise click.UsageError("write * for the log's name in --replica if LOG_URL is a pattern, and only then")
    if is_promotion:
        folder, *urls = places
        _promote(folder, [_find(url, config_file) for url in urls], given)
        return ExitCode.DONE
    url, folder = places
    source = _find(url, config_file)
    stop = Event()
    with ending_on_signals(stop, f"{url}: the same command continues") as arrived:
        if is_group:
            shown = {"once": given.once, "as_json": given.as_json, "quiet": given.quiet}
            return mirror_all(source, folder, given.rules, stop, arrived, **shown)
        try:
            _mirror(source, folder, given, stop)
        except RestoreStoppedError:
            said = f"litelog: {url}: stopped before {folder} was a mirror of it; the same command continues"
            say(said, "failed", level=logging.WARNING, replica=url, output=folder)
            return 128 + arrived[0]
    return ExitCode.DONE


def _find(url: str, config_file: str | None) -> ConfiguredReplica:
    place = PLACE.convert(url, None, None)
    return find_replica(place, config_file)


def _mirror(source: ConfiguredReplica, folder: str, options: MirrorOptions, stop: Event) -> None:
    from litelog.restore.opened_mirror import keep_mirror

    quiet = options.quiet or options.as_json

    @contextmanager
    def opening() -> Iterator[Callable[[RestoreProgress], None] | None]:
        with showing_progress("restore", quiet=quiet) as show:
            yield None if show is None else lambda progress: show(progress.restored, None)

    def use(mirrored: Mirror) -> None:
        _run(mirrored, source.url, options, stop)
        _report(mirrored, source.url, folder, options)

    def note_aside(path: str, error: Exception) -> None:
        said = f"litelog: {error}: the mirror is now {path}; beginning another one"
        say(said, "mirror-forked", replica=source.url, output=path)

    address = (source.url, source.options)
    keep_mirror(address, folder, options.rules, use, stop=stop, opening=opening, note_aside=note_aside)


def _run(mirrored: Mirror, url: str, options: MirrorOptions, stop: Event) -> None:
    quiet = options.quiet or options.as_json
    if options.once:
        from litelog.restore.mirror_group import ONCE_SECONDS

        while not stop.is_set() and mirrored.step(ONCE_SECONDS):
            pass
        return
    say(f"mirroring {url} (Ctrl-C ends it)", "mirroring", replica=url)
    with watching_status(
        quiet=quiet,
        look=lambda: f"mirroring: {format_size(mirrored.appended)} appended, up to {mirrored.position}",
    ):
        mirrored.run(stop)


def _report(mirrored: Mirror, url: str, folder: str, options: MirrorOptions) -> None:
    position = None if mirrored.position is None else str(mirrored.position)
    if options.as_json:
        print_json(
            {
                "replica": url,
                "output": folder,
                "position": position,
                "next": mirrored.next,
                "log_bytes": mirrored.appended,
            }
        )
    else:
        end = "" if position is None else f" up to {position}"
        echo(f"mirrored {url} to {folder}{end}, {format_size(mirrored.appended)} more")


def _promote(folder: str, replicas: list[ConfiguredReplica], options: MirrorOptions) -> None:
    from litelog.restore.opened_mirror import promote

    addresses = [(replica.url, replica.options) for replica in replicas]
    done = promote(folder, addresses, on_trailing=options.on_trailing)
    if options.as_json:
        print_json(
            {
                "replica": done.source,
                "output": done.folder,
                "position": str(done.position),
                "log_bytes": done.appended,
                "trimmed_bytes": done.trimmed,
            }
        )
        return
    echo(f"{done.folder} is a log to write to, up to {done.position}; {format_size(done.appended)} came from a replica")
    echo(f"now replicate it: litelog replicate --takeover {done.folder} {replicas[0].url}")
