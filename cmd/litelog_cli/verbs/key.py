"""``litelog key``: makes identities for encrypted replicas, and shows their public keys."""

from __future__ import annotations

import os

import click

from litelog.errors import OutputExistsError
from litelog_cli.output import echo, print_json


@click.group(
    epilog="""\b
Examples:
  litelog key new -o identity.txt
  litelog key show identity.txt
"""
)
def key() -> None:
    """Make and show the identities of those who read encrypted replicas."""


@key.command(
    short_help="Make an identity",
    epilog="""\b
Examples:
  litelog key new -o identity.txt
  litelog key new -o identity.txt --json

The file holds a secret key of age: keep it where the daemon is not, and keep a
second copy. Without it, the replica cannot be read. Write the public key that is
printed to recipients in the configuration.
""",
)
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(), required=True, help="File to write; it must not exist."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def new(output: str, as_json: bool) -> None:
    """Make an identity, write it to FILE, and print its public key."""
    from litelog.encryption.identities import new_identity

    secret, public = new_identity()
    try:
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise OutputExistsError(output) from None
    with os.fdopen(file, "w") as opened:
        opened.write(f"# public key: {public}\n{secret}\n")
        opened.flush()
        os.fsync(opened.fileno())
    _print([public], as_json)


@key.command(
    short_help="Show the public keys of an identity",
    epilog="""\b
Examples:
  litelog key show identity.txt
""",
)
@click.argument("identity", metavar="FILE", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(identity: str, as_json: bool) -> None:
    """Print the public keys of the identities in FILE."""
    from litelog.encryption.identities import read_identities

    _print([str(found.to_public()) for found in read_identities(identity).keys], as_json)


def _print(public: list[str], as_json: bool) -> None:
    if as_json:
        print_json({"public_keys": public})
    else:
        for each in public:
            echo(each)
