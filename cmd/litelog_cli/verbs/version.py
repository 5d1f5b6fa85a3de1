"""``litelog version``: prints what is installed."""

from __future__ import annotations

import platform

import click

from litelog.version import VERSION
from litelog_cli.output import echo, print_json


@click.command(
    epilog="""\b
Examples:
  litelog version
  litelog version --json
"""
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def version(as_json: bool) -> None:
    """Print the versions of litelog, Python and the platform, and whether litelog's compiled part is used."""
    from litelog.native.library import describe, load

    facts: dict[str, object] = {
        "litelog": VERSION,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "compiled": load() is not None,
    }
    if as_json:
        print_json(facts)
    else:
        echo("litelog {litelog} (Python {python}, {platform})".format(**facts))
        echo(f"compiled part: {describe()}")
