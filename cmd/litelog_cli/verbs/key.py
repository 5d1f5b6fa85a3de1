"""``litelog key``: makes and shows identities for encrypted replicas, and keys that sign checkpoints."""

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
  litelog key new --signing -o sign.pem > pub.pem
"""
)
def key() -> None:
    """Make and show keys: identities of those who read encrypted replicas, and keys that sign checkpoints."""


@key.command(
    short_help="Make an identity, or a key that signs",
    epilog="""\b
Examples:
  litelog key new -o identity.txt
  litelog key new -o identity.txt --json
  litelog key new --signing -o sign.pem > pub.pem

The file holds a secret key of age: keep it where the daemon is not, and keep a
second copy. Without it, the replica cannot be read. Write the public key that is
printed to recipients in the configuration.
With --signing, FILE holds a private Ed25519 key that signs checkpoints. The daemon
needs it, and verify --trusted-key needs the PEM text that is printed. Keep that
text where a person who can write to the replica cannot replace it.
""",
)
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(), required=True, help="File to write; it must not exist."
)
@click.option("--signing", is_flag=True, help="Make a key that signs checkpoints.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def new(output: str, signing: bool, as_json: bool) -> None:
    """Make an identity, write it to FILE, and print its public key."""
    if signing:
        from litelog.checkpoints.signing import new_key

        private, pem = new_key()
        content, public = private.decode(), pem.decode().rstrip()
    else:
        from litelog.encryption.identities import new_identity

        secret, public = new_identity()
        content = f"# public key: {public}\n{secret}\n"
    try:
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise OutputExistsError(output) from None
    with os.fdopen(file, "w") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    _print([public], as_json)


@key.command(
    short_help="Show the public keys in a file",
    epilog="""\b
Examples:
  litelog key show identity.txt
  litelog key show sign.pem > pub.pem
""",
)
@click.argument("identity", metavar="FILE", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(identity: str, as_json: bool) -> None:
    """Print the public keys of the identities in FILE, or of the key in it that signs checkpoints."""
    from litelog.system.files import read_regular

    try:
        is_pem = read_regular(identity, 1 << 20).lstrip().startswith(b"-----BEGIN")
    except OSError:
        is_pem = False  # the reader of identities says what is wrong
    if is_pem:
        from litelog.checkpoints.signing import SigningKey

        _print([SigningKey(identity).public_pem.decode().rstrip()], as_json)
        return
    from litelog.encryption.identities import read_identities

    _print([str(found.to_public()) for found in read_identities(identity).keys], as_json)


def _print(public: list[str], as_json: bool) -> None:
    if as_json:
        print_json({"public_keys": public})
    else:
        for line in "\n".join(public).splitlines():
            echo(line)
