"""How the verbs that ask the daemon find it."""

from __future__ import annotations

import click

daemon_config_option = click.option(
    "--config", "config_file", type=click.Path(), help="The daemon's configuration file."
)
daemon_addr_option = click.option(
    "--addr", help="Where the daemon listens: HOST:PORT or unix:/path.  [default: as configured]"
)
