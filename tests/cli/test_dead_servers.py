"""If a server is down, a command ends after the same few attempts for every store, with one line of error."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode
from tests.builders.short_waits import SHORT_WAITS

if TYPE_CHECKING:
    from conftest import Command

KEY = "c2VjcmV0LWtleS1vZi10aGUtdGVzdHM="

STORES = {
    "boto3": (
        "s3://the-bucket/p",
        "{{endpoint: 'http://{address}', region: eu-west-1, access-key-id: AK, secret-access-key: secret-key}}",
    ),
    "adlfs": (
        "az://the-bucket/p",
        "{{connection-string: 'AccountName=me;AccountKey=" + KEY + ";BlobEndpoint=http://{address}/me'}}",
    ),
    "gcsfs": ("gs://the-bucket/p", "{{token: anon, endpoint-url: 'http://{address}'}}"),
}
"""A replica's URL and options, by the package of its client."""


@pytest.mark.slow
@pytest.mark.parametrize("package", STORES)
def test_a_server_that_is_down_ends_a_command_with_one_line(litelog: Command, package: str) -> None:
    """The SDKs' own retries, which would take more than a minute, are off."""
    pytest.importorskip(package)
    url, options = STORES[package]
    litelog.lines(3)
    litelog.before = SHORT_WAITS
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    (litelog.folder / "litelog.yml").write_text(
        f"logs:\n  - path: log\n    replicas:\n      - {{url: '{url}', options: {options.format(address=address)}}}\n"
    )
    done = litelog("replicate", "--once", "--config", "litelog.yml", "--quiet")
    assert (done.code, done.out) == (ExitCode.FAILURE, "")
    (said,) = done.err.splitlines()
    assert "list epochs/" in said
    assert address in said
    assert "the-bucket" in said
    assert "Traceback" not in said
    assert "secret-key" not in said
    assert KEY not in said
