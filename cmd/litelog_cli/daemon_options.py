"""Options of the verbs that ask a daemon: how they find it."""

from __future__ import annotations

import click


def _check_addr(_context: click.Context, _parameter: click.Parameter, addr: str | None) -> str | None:
    from litelog.config.models import check_addr

    try:
        return None if addr is None else check_addr(addr)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


daemon_config_option = click.option(
    "--config", "config_file", type=click.Path(), help="Configuration file of the daemon."
)
daemon_addr_option = click.option(
    "--addr",
    metavar="ADDRESS",
    callback=_check_addr,
    help="Address of the daemon: HOST:PORT or unix:/path.  [default: as configured]",
)
