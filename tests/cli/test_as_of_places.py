"""``--as-of`` in places without earlier versions: it is refused, and never ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode

if TYPE_CHECKING:
    from conftest import Command


@pytest.mark.parametrize(
    ("verb", "message"),
    [
        (("cat", "log"), "it is not for the log in log"),
        (("cat", "log", "s3://bucket/replica"), "it is not for the log in log"),
        (("cat", "log", "--consumer", "mine"), "it is not for a consumer"),
        (("cat", "log", "--format", "gazette"), "it is not for the fragments of a journal"),
        (("segments", "log"), "it is not for the log in log"),
        (("verify", "log"), "it is not for a log's own files"),
        (("verify", "log", "--local"), "it is not for a log's own files"),
        (("verify", "log", "--format", "gazette"), "it is not for the fragments of a journal"),
        (("cat", "file:///nowhere"), "is elsewhere"),
    ],
    ids=str,
)
def test_what_has_only_its_present_state_is_not_read_as_of_a_time(litelog: Command, verb, message: str) -> None:
    assert litelog("append", "log", text="one\n").code == 0
    done = litelog(*verb, "--as-of", "1h")
    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert message in done.err
