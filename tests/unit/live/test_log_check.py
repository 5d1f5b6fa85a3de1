"""A check of a served log over HTTP: what it names, its limits, and its end if the client leaves."""

from __future__ import annotations

import json
import shutil
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from litelog.config.access import TokenConfig
from litelog.formats.litelog import LitelogFormat
from litelog.live import log_check
from litelog.live.reader_limits import ReaderLimits
from litelog.server import permits
from litelog.verify import local_log
from litelog.verify.local_log import check_log
from tests.builders.served_stream import ServedStream
from tests.builders.server_builder import TOKEN, Watched
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.builders.log_builder import LogBuilder

pytestmark = pytest.mark.slow

PATH = "/logs/log/check"
FORMAT = LitelogFormat()
READER = "token-of-a-reader-of-one-log-0123456789"


@contextmanager
def serving(tmp_path: Path, log: LogBuilder, **settings: Any) -> Iterator[Watched]:
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/replica"])], {"serve": "all", **settings}) as watched:
        watched.wait_until_ready()
        yield watched


def flip(log: LogBuilder, sequence: int) -> None:
    """Change the content of a record of the log segment that is written."""
    with open(log.path(), "r+b") as file:
        file.seek(file.read().index(b"r%d." % sequence))
        file.write(b"R")


def test_a_check_is_the_report_of_verify(tmp_path: Path, log: LogBuilder) -> None:
    log.roll(4)
    log.append(9)
    with serving(tmp_path, log) as watched:
        answer = watched.ask(PATH)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.json["version"] == 1
        assert (answer.json["records"], answer.json["anomalies"], answer.json["harmful_count"]) == (log.next, [], 0)
        flip(log, 9)
        flip(log, 12)
        answer = watched.ask(PATH)
        expected = {"version": 1, **check_log(log.folder, FORMAT).as_json()}
        found = answer.json
        found["seconds"] = expected["seconds"] = 0
        assert found == json.loads(json.dumps(expected))
        kinds = [(each["kind"], each["file"], each["sequence"]) for each in found["anomalies"]]
        assert kinds == [("checksum", log.name, 9), ("checksum", log.name, 12)]
        assert found["harmful_count"] == 2
        assert watched.ask("/logs/log").json["readers"] == []


def test_requests_that_have_no_meaning_are_refused(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as watched:
        refused = watched.ask(f"{PATH}?from=1")
        assert (refused.status, refused.json["error"]["message"]) == (400, "from: no such parameter; known: none")
        assert watched.ask("/logs/none/check").status == 404
        shutil.rmtree(log.folder)
        gone = watched.ask(PATH)
        assert (gone.status, gone.json["error"]["kind"]) == (503, "service-unavailable")
        assert log.folder in gone.json["error"]["message"]


def test_one_log_is_checked_at_a_time_and_a_check_ends_with_its_request(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_check, "FIRST_SECONDS", 0.02)
    with serving(tmp_path, log, reader_limits=ReaderLimits(rate=1)) as watched:
        for _ in range(2):
            stream = ServedStream(watched, PATH)
            assert stream.some().strip() == b""  # a sign of life
            assert [each["kind"] for each in watched.ask("/logs/log").json["readers"]] == ["check"]
            assert any(each.name == f"check {log.folder}" for each in threading.enumerate())
            busy = watched.ask(PATH)
            assert (busy.status, busy.headers["retry-after"]) == (429, "1")
            assert "one at a time" in busy.json["error"]["message"]
            stream.close()
            wait_until(lambda: watched.ask("/logs/log").json["readers"] == [])
            wait_until(lambda: not any(each.name == f"check {log.folder}" for each in threading.enumerate()))


def test_a_check_ends_when_its_token_is_revoked(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_check, "KEEP_ALIVE_SECONDS", 0.02)
    monkeypatch.setattr(permits, "CHECK_SECONDS", 0.01)
    for name, token in (("token", TOKEN), ("reader", READER)):
        (tmp_path / name).write_text(token)
        (tmp_path / name).chmod(0o600)
    tokens = (TokenConfig(file=str(tmp_path / "reader"), rights=("read",), logs=("log",)),)
    options = {"token_file": str(tmp_path / "token"), "tokens": tokens, "reader_limits": ReaderLimits(rate=1)}
    with serving(tmp_path, log, **options) as watched:
        assert watched.ask(PATH).status == 401
        stream = ServedStream(watched, PATH, {"Authorization": f"Bearer {READER}"})
        (tmp_path / "reader").write_text("another-token-of-a-reader-0123456789")
        error = json.loads(stream.rest())["error"]
        assert (error["http_status"], "was revoked" in error["message"]) == (401, True)
        stream.close()


def test_a_check_that_was_left_counts_until_its_thread_ends(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that ask and leave, while a disk does not answer, do not add threads."""
    monkeypatch.setattr(log_check, "FIRST_SECONDS", 0.02)
    answers = threading.Event()
    monkeypatch.setattr(
        local_log, "check_log", lambda *_, **__: answers.wait(WAIT_SECONDS) and check_log(log.folder, FORMAT)
    )
    with serving(tmp_path, log) as watched:
        stream = ServedStream(watched, PATH)
        assert stream.some().strip() == b""
        stream.close()
        wait_until(lambda: watched.ask("/logs/log").json["readers"] == [])
        assert watched.ask(PATH).status == 429
        answers.set()
        wait_until(lambda: watched.ask(PATH).status == 200)
