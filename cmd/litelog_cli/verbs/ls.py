"""``litelog ls``: lists configured logs with their replicas, or the replicas below a place."""

from __future__ import annotations

import click

from litelog.errors import NoReplicaError
from litelog_cli.arguments import PLACE, opened_replica
from litelog_cli.config_file import config_path, read_config
from litelog_cli.listed import config_option
from litelog_cli.output import echo, print_json, print_table


@click.command(
    epilog="""\b
Examples:
  litelog ls
  litelog ls --config /etc/litelog.yml
  litelog ls s3://bucket/backups
  litelog ls --json /backup
"""
)
@click.argument("place", metavar="[URL]", required=False, type=PLACE)
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each replica.")
def ls(place: str | None, config_file: str | None, as_json: bool) -> None:
    """List the configured logs and their replicas, or the replicas at or below URL.

    Looks up to three levels below URL, with two requests for each name that it finds.
    """
    if place is None:
        _list_configured(config_file, as_json)
        return
    if config_file is not None:
        raise click.UsageError("--config and URL exclude each other")
    from litelog.stores.missing import find_replicas

    with opened_replica(place) as client:
        found = list(find_replicas(client.store))  # type: ignore[attr-defined]
        if not found:
            raise NoReplicaError(client.url)
        base = client.url.rstrip("/")
        urls = [f"{base}/{below}" if below else base for below in found]
    for url in urls:
        if as_json:
            print_json({"replica": url})
        else:
            echo(url)


def _list_configured(config_file: str | None, as_json: bool) -> None:
    from litelog.replicator.discovery import find_logs
    from litelog.stores.registry import redact
    from litelog.system.clock import SystemClock

    config = read_config(config_file)
    if config is None:
        raise click.UsageError(f"which logs? give --config, or a URL to look below ({config_path(None)} is not there)")
    rows = [
        (log.path, log.format, redact(replica.url))
        for log in find_logs(config, SystemClock())
        for replica in log.replicas
    ]
    if as_json:
        for path, log_format, url in rows:
            print_json({"log": path, "format": log_format, "replica": url})
    else:
        print_table(("log", "format", "replica"), rows)
