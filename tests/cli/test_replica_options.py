"""The verbs that read one replica take the replica's options from the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode

if TYPE_CHECKING:
    from conftest import Command


@pytest.mark.parametrize("verb", ["cat", "segments", "verify"])
def test_a_replica_is_read_with_the_options_that_the_configuration_has_for_it(litelog: Command, verb: str) -> None:
    config = litelog.folder / "litelog.yml"
    litelog.lines(3)
    assert litelog("replicate", "--once", "log", "one").code == ExitCode.DONE
    config.write_text("logs: [{path: log, replicas: [{url: one}, {url: two}]}]")
    assert litelog(verb, "--config", "litelog.yml", "one").code == ExitCode.DONE
    config.write_text("logs: [{path: log, replicas: [{url: one, options: {colour: red}}, {url: two}]}]")
    done = litelog(verb, "--config", "litelog.yml", "one")
    assert (done.code, "colour" in done.err) == (ExitCode.USAGE, True), "its options were not passed on"
    done = litelog(verb, "--config", "litelog.yml", "log")
    assert done.code == (ExitCode.USAGE if verb == "verify" else ExitCode.DONE), "the others read logs as well"
