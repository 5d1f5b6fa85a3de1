"""``litelog forget``: removes a replica from the set that a log's truncation waits for."""

from __future__ import annotations

import os

import click

from litelog.errors import ConfigError
from litelog_cli.arguments import PLACE
from litelog_cli.config_file import choose_state_dir, read_config
from litelog_cli.daemon_options import daemon_config_option
from litelog_cli.output import echo, print_json
from litelog_cli.owner_state import require_readable


@click.command(
    epilog="""\b
Examples:
  litelog forget /var/lib/events file:///backup/old
  litelog forget /var/lib/events s3://bucket/gone --json
\b
Nothing in the replica is changed. A daemon whose configuration still names the
replica adds it again at its next start: remove it there first, unless you want
to continue after the replica was lost, or emptied on purpose. The daemon then
takes the replica as it finds it, and begins it again if it is empty.
Exit codes: 0 done, 1 failure, 2 usage, or no such replica, 5 its daemon is running.
"""
)
@click.argument("log_dir", type=PLACE)
@click.argument("replica_url", type=PLACE)
@daemon_config_option
@click.option("--state-dir", metavar="FOLDER", help="Where the daemon keeps its state.  [default: as for replicate]")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def forget(log_dir: str, replica_url: str, config_file: str | None, state_dir: str | None, as_json: bool) -> None:
    """Stop the truncation of LOG_DIR from waiting for a replica.

    A log that is truncated keeps what any of its replicas lacks, even if the configuration no longer names the replica.
    This command ends that. It also deletes what the daemon knows about the replica.
    """
    from litelog.log.replica_registry import ReplicaSet, log_state_folder
    from litelog.shipping.final_error import remove_final_error
    from litelog.shipping.state import StateFolder, Unclaimed
    from litelog.stores.registry import redact

    kept_in = choose_state_dir(state_dir, read_config(config_file) if state_dir is None else None)
    folder = log_state_folder(kept_in, log_dir)
    require_readable(kept_in, log_dir)
    replicas = ReplicaSet(folder)
    replicas.require_whole()
    names = replicas.names() or {}
    name = _find(kept_in, log_dir, replica_url, dict(names))
    if name is None:
        known = ", ".join(sorted(names.values())) or "none"
        raise ConfigError(f"{redact(replica_url)}: {log_dir} does not wait for this replica (known: {known})")
    what = f"the daemon of {log_dir} runs; stop it first: the state of {names[name]}"
    with StateFolder(os.path.join(folder, name), what) as kept:
        replicas.remove(name)
        remove_final_error(kept.path)
        state = kept.load()
        if state is not None:
            kept.save(Unclaimed(state.owner, state.log))
    left = sorted(url for other, url in names.items() if other != name)
    if as_json:
        print_json({"log": log_dir, "forgotten": names[name], "remaining": left})
    else:
        echo(f"forgotten: {names[name]}; {log_dir} waits for {', '.join(left) or 'no replica, and keeps everything'}")


def _find(state_dir: str, log_dir: str, url: str, names: dict[str, str]) -> str | None:
    """The replica's name in the set, found by its configured URL or by its client's URL."""
    from litelog.errors import LitelogError
    from litelog.replicator.wiring import state_folder_of
    from litelog.stores.registry import open_store

    try:
        store = open_store(url, {})
    except LitelogError:  # its backend is no longer installed, or it needs options
        place = url
    else:
        place = store.url
        store.close()
    name = os.path.basename(state_folder_of(state_dir, log_dir, url, place))
    if name in names:
        return name
    matching = [other for other, known in names.items() if known in (url, place)]
    return matching[0] if len(matching) == 1 else None
