"""``litelog mirror``: keeps a byte-equal copy of a log that a daemon serves, and promotes that copy to a log."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from litelog.errors import DivergedError, ExitCode, PrunedError
from litelog.units import format_size
from litelog_cli.arguments import PLACE
from litelog_cli.configured import find_replica
from litelog_cli.listed import replica_config_option
from litelog_cli.logging_setup import say
from litelog_cli.output import echo, print_json
from litelog_cli.progress import quiet_option, showing_progress, watching_status
from litelog_cli.signals import acting_on_signals

if TYPE_CHECKING:
    from litelog.log.recovery import OnTrailing
    from litelog.restore.mirror import Mirror
    from litelog_cli.configured import ConfiguredReplica

ONCE_SECONDS = 1.0
"""With --once: how long the mirror waits for news."""


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """The options of ``litelog mirror``."""

    pattern: str | None
    once: bool
    on_fork: str
    on_trailing: OnTrailing
    as_json: bool
    quiet: bool


@click.command(
    epilog="""\b
Examples:
  litelog mirror http://a:9977/logs/orders /var/lib/orders
  litelog mirror --config litelog.yml https://a:9977/logs/orders /var/lib/orders
  litelog mirror --once --json http://a:9977/logs/orders /var/lib/orders
  litelog mirror --promote /var/lib/orders s3://bucket/orders
\b
Run it again to continue, also after kill -9. While the source cannot be reached
the mirror waits. If the log's history forks, the mirror ends with exit code 1
and stays as it is; with --on-fork new it is renamed to FOLDER.GENERATION, and
another one begins.
\b
--promote makes the mirror a log to write to, once its source is gone. It first
reads what the log's replicas have and the mirror lacks. Then start a daemon for
it, with replicate --takeover: the daemon of the source is fenced.
\b
Exit codes: 0 done, 1 failure or fork, 2 usage, 3 no replica there yet, 6 damage.
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
    help="What to do if the mirror cannot continue: end, or rename it and begin another one.",
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
@replica_config_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@quiet_option
def mirror(places: tuple[str, ...], is_promotion: bool, config_file: str | None, **options: Any) -> int:
    """Keep a byte-equal copy of a log that a daemon serves. It follows the log within milliseconds."""
    from litelog.system.memory import keep_freed_memory

    keep_freed_memory()
    given = MirrorOptions(**options)
    if len(places) < 2 or (len(places) > 2 and not is_promotion):
        raise click.UsageError("write LOG_URL FOLDER, or --promote FOLDER REPLICA_URL...")
    if is_promotion:
        folder, *urls = places
        _promote(folder, [_find(url, config_file) for url in urls], given)
        return ExitCode.DONE
    url, folder = places
    source = _find(url, config_file)
    stop = Event()
    with acting_on_signals(lambda _: stop.set()):
        while not _mirror(source, folder, given, stop):
            pass
    return ExitCode.DONE


def _find(url: str, config_file: str | None) -> ConfiguredReplica:
    place = PLACE.convert(url, None, None)
    return find_replica(place, config_file)


def _mirror(source: ConfiguredReplica, folder: str, options: MirrorOptions, stop: Event) -> bool:
    """Mirror until ``stop`` is set. Return False if the mirror was set aside, so that another one has to begin."""
    from litelog.restore.mirror import set_aside
    from litelog.restore.opened_mirror import opened_mirror

    quiet = options.quiet or options.as_json
    try:
        with ExitStack() as stack:
            with showing_progress("restore", quiet=quiet) as show:
                opened = opened_mirror(
                    source.url,
                    source.options,
                    folder,
                    pattern=options.pattern,
                    on_trailing=options.on_trailing,
                    progress=None if show is None else lambda progress: show(progress.restored, None),
                )
                mirrored = stack.enter_context(opened)
            _run(mirrored, source.url, options, stop)
            _report(mirrored, source.url, folder, options)
    except (DivergedError, PrunedError) as error:
        if options.on_fork == "error":
            raise
        path = set_aside(folder)
        said = f"litelog: {error}: the mirror is now {path}; beginning another one"
        say(said, "mirror-forked", replica=source.url, output=path)
        return False
    return True


def _run(mirrored: Mirror, url: str, options: MirrorOptions, stop: Event) -> None:
    quiet = options.quiet or options.as_json
    if options.once:
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
        echo(f"mirrored {url} to {folder} up to {position}, {format_size(mirrored.appended)} more")


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
