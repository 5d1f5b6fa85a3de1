"""``litelog version``: prints what is installed."""

from __future__ import annotations

import json
import platform

import click

from litelog.version import VERSION
from litelog_cli.output import echo


@click.command(
    epilog="""\b
Examples:
  litelog version
  litelog version --json
"""
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def version(as_json: bool) -> None:
    """Print the versions of litelog, Python and the platform."""
    facts = {
        "litelog": VERSION,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }
    echo(json.dumps(facts) if as_json else "litelog {litelog} (Python {python}, {platform})".format(**facts))
