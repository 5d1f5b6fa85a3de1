"""``litelog dismiss``: ends the warning that a log was rewound or rewritten."""

from __future__ import annotations

import os

import click

from litelog.errors import ConfigError
from litelog_cli.arguments import PLACE
from litelog_cli.config_file import choose_state_dir, read_config
from litelog_cli.output import echo, print_json
from litelog_cli.owner_state import require_readable


@click.command(
    epilog="""\b
Examples:
  litelog dismiss /var/lib/events
  litelog dismiss /var/lib/events s3://bucket/events
\b
When a log no longer holds what was shipped, because it was rewound, cut or
rewritten, its replica begins a new generation. status, the page and the metrics
show a warning for a day, or until it is dismissed. The dismissal is kept in the
state folder, so run this as the daemon's own user. A running daemon notices it
within a second. The next such change is a warning again.
Exit codes: 0 dismissed, 1 failure, 2 usage, or there is no such warning.
"""
)
@click.argument("log_dir", type=PLACE)
@click.argument("replica_url", type=PLACE, required=False)
@click.option("--config", "config_file", type=click.Path(), help="Configuration file of the daemon.")
@click.option("--state-dir", metavar="FOLDER", help="Where the daemon keeps its state.  [default: as for replicate]")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def dismiss(
    log_dir: str, replica_url: str | None, config_file: str | None, state_dir: str | None, as_json: bool
) -> None:
    """Dismiss the warning that a log was rewound or rewritten.

    Dismisses the warning of LOG_DIR for all its replicas, or only for REPLICA_URL.
    """
    from litelog.log.replica_registry import ReplicaSet, log_state_folder
    from litelog.shipping.divergence import dismiss as dismiss_divergence
    from litelog.shipping.state import StateError
    from litelog_cli.daemon_client import same_replica

    kept_in = choose_state_dir(state_dir, read_config(config_file))
    require_readable(kept_in, log_dir)
    folder = log_state_folder(kept_in, log_dir)
    dismissed = []
    for name, url in (ReplicaSet(folder).names() or {}).items():
        if replica_url is not None and not same_replica(replica_url, url):
            continue
        try:
            found = dismiss_divergence(os.path.join(folder, name))
        except OSError as error:
            raise StateError(f"{error.filename}: cannot be written ({error.strerror})") from error
        if found is not None:
            dismissed.append((url, found))
    if not dismissed:
        raise ConfigError(f"{log_dir}: there is no warning to dismiss (state folder {kept_in})")
    if as_json:
        replicas = [{"replica": url, "generation": found.generation} for url, found in dismissed]
        print_json({"log": log_dir, "dismissed": replicas})
        return
    for url, found in dismissed:
        echo(f"dismissed: {log_dir} to {url}: generation {found.generation} ({found.reason})")
