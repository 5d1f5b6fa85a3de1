"""A daemon reports its start and its end, and ``--once`` reports what it shipped."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from litelog.config import make_config
from litelog.errors import ExitCode
from litelog.replicator.status import ReplicaStatus
from litelog.server.listener import Address
from litelog.version import VERSION
from litelog_cli.daemon_reports import log_end, log_start
from tests.builders.recorded_logs import unpack

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.litelog_cli.conftest import InProcess


@pytest.mark.parametrize(
    ("address", "status"),
    [
        (Address(host="127.0.0.1", port=9977), "status at http://127.0.0.1:9977"),
        (Address(path="/run/litelog"), "status at unix:/run/litelog"),
        (None, "no status over HTTP"),
    ],
)
def test_the_start_logs_what_is_replicated_and_the_places_of_files(
    caplog: pytest.LogCaptureFixture, address: Address | None, status: str
) -> None:
    caplog.set_level(logging.INFO)
    config = make_config("x", {"logs": [{"path": "/log", "replicas": [{"url": "/one"}, {"url": "/two"}]}]})
    log_start(config, "d.yml", "/var/lib/litelog", address)
    begun = f"litelog {VERSION}: replicating 1 log to 2 replicas (configured by d.yml; state in /var/lib/litelog)"
    assert caplog.messages == [f"{begun}; {status}"]


def test_the_start_names_the_status_of_a_daemon_with_tls_as_https(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tls = {"certificate": "/tls.crt", "key": "/tls.key"}
    config = make_config("x", {"tls": tls, "logs": [{"path": "/log", "replicas": [{"url": "/one"}]}]})
    log_start(config, "d.yml", "/var/lib/litelog", Address(host="127.0.0.1", port=9977))
    assert caplog.messages[0].endswith("; status at https://127.0.0.1:9977")


def test_the_end_counts_complete_replicas(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    one, two = (ReplicaStatus("/log", "/one", "required", phase, None, None, None, 0) for phase in ("done", "failed"))
    log_end([one], 0.1)
    log_end([one, two], 12.0)
    assert caplog.messages == [
        "final sync done in 100ms: 1 replica complete",
        "final sync done in 12.0s: 1 of 2 replicas complete",
    ]


def test_replicate_once_reports_what_it_shipped(command: InProcess) -> None:
    command.append(1)
    done = command("replicate", "--once", "log", "replica")
    (said,) = [line for line in done.err.splitlines() if line.startswith("shipped ")]
    assert said.endswith(f"stored) to file://{command.folder}/replica; it ends with sequence 99")
    again = command("replicate", "--once", "log", "replica")
    assert again.err == f"nothing new to ship to file://{command.folder}/replica; it ends with sequence 99\n"
    assert command("replicate", "--once", "--quiet", "log", "replica").err == ""


def test_replicate_once_says_that_records_after_the_watermark_are_left_out(command: InProcess) -> None:
    partition = unpack("kafka", "plain_none", command.folder)
    named = command.folder / "events-0"
    partition.rename(named)
    arguments = ("replicate", "--once", "--format", "kafka", str(named), "replica")
    left_out = command(*arguments).err
    watermark = command.folder / "replication-offset-checkpoint"
    assert f"{watermark}: not there: nothing is shipped before the log's writer states its watermark in it" in left_out
    assert left_out.rstrip().endswith(f"may take them back ({watermark}; to ship them: --watermark none)")
    shipped = command(*arguments, "--watermark", "none").err
    assert shipped.startswith("shipped ")
    assert "left out" not in shipped


@pytest.mark.parametrize(
    ("addr", "said"),
    [
        (":9977", "names no host: write 127.0.0.1:9977, or 0.0.0.0:9977 with a token-file"),
        ("here", "must be HOST:PORT"),
        ("0.0.0.0:0", "it needs a token-file"),
    ],
)
def test_an_address_is_checked(command: InProcess, addr: str, said: str) -> None:
    command.append(1)
    done = command("replicate", "log", "replica", "--addr", addr)
    assert (done.code, said in done.err) == (ExitCode.USAGE, True), done.err
    assert not (command.folder / "replica").exists()


@pytest.mark.slow
def test_a_store_error_names_the_replica(command: InProcess, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    done = command("generations", "file")
    assert done.code != ExitCode.DONE
    assert f"{tmp_path}/file: " in done.err
