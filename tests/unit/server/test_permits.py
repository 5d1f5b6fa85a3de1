"""Tokens that permit only some requests: their rights, the logs that they may read, and a token that is revoked."""

from __future__ import annotations

import http.client
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from litelog.config.access import TokenConfig
from litelog.server import permits
from litelog.server.permits import Tokens
from tests.builders.log_builder import make_log
from tests.builders.served_stream import ServedStream
from tests.builders.server_builder import TOKEN, Watched
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

READER, OBSERVER = "token-of-a-reader-of-one-log-0123456789", "token-of-an-observer-0123456789-0123456789"
POSITION = "0000000000000001/0000000000000000/0000000000000000"
LOG_PATHS = ("", "/records", f"/wal?from={POSITION}", "/replica", "/replica/epochs/00000001.json")


def write_token(path: Path, token: str) -> str:
    path.write_text(f"{token}\n")
    path.chmod(0o600)
    return str(path)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@contextmanager
def serving(tmp_path: Path) -> Iterator[Watched]:
    """A daemon with two logs, a token for everything, a token that reads ``mine``, and a token that sees the status."""
    tokens = (
        TokenConfig(file=write_token(tmp_path / "reader", READER), rights=("read",), logs=("mine",)),
        TokenConfig(file=write_token(tmp_path / "observer", OBSERVER), rights=("status",)),
    )
    pairs = []
    for name in ("mine", "secret"):
        log = make_log(tmp_path / name)
        log.roll(3)
        pairs.append((log, [f"file://{tmp_path}/replica-of-{name}"]))
    settings = {"serve": "all", "token_file": write_token(tmp_path / "token", TOKEN), "tokens": tokens}
    with Watched(tmp_path, pairs, settings) as watched:
        watched.wait_until_ready()
        yield watched


def test_each_token_has_its_rights_and_no_other(tmp_path: Path) -> None:
    with serving(tmp_path) as watched:
        for token, path, method, status in [
            (READER, "/logs/mine/records", "GET", 200),
            (READER, "/status", "GET", 403),
            (READER, "/metrics", "GET", 403),
            (READER, "/", "GET", 403),
            (READER, "/sync", "POST", 403),
            (OBSERVER, "/status", "GET", 200),
            (OBSERVER, "/metrics", "GET", 200),
            (OBSERVER, "/logs", "GET", 403),
            (OBSERVER, "/logs/mine/records", "GET", 403),
            (OBSERVER, "/sync", "POST", 403),
            (TOKEN, "/status", "GET", 200),
            (READER, "/logs/mine/mirrors", "GET", 200),
            (READER, "/logs/secret/mirrors", "GET", 404),
            (OBSERVER, "/logs/mine/mirrors", "GET", 403),
            (TOKEN, "/logs/secret/records", "GET", 200),
            (TOKEN, "/sync", "POST", 200),
            ("x" * 40, "/logs", "GET", 401),
        ]:
            answer = watched.ask(path, method, bearer(token))
            assert (path, token, answer.status) == (path, token, status)
            if status in (401, 403):
                assert answer.json["error"]["http_status"] == status
        assert "reasons" not in watched.ask("/healthz", headers=bearer(READER)).json
        assert "reasons" in watched.ask("/healthz", headers=bearer(OBSERVER)).json


def test_nothing_of_another_log_is_shown_to_a_token_without_the_right(tmp_path: Path) -> None:
    """The answer is the one for a log that is not there."""
    with serving(tmp_path) as watched:
        listed = watched.ask("/logs", headers=bearer(READER))
        assert [each["name"] for each in listed.json["logs"]] == ["mine"]
        for below in LOG_PATHS:
            hidden, absent = (
                watched.ask(f"/logs/{name}{below}", headers=bearer(READER)) for name in ("secret", "absent")
            )
            assert (below, hidden.status) == (below, 404)
            assert hidden.body == absent.body.replace(b"absent", b"secret")
            assert b"secret" not in listed.body


@pytest.mark.parametrize("path", ["records?follow=true", "wal?follow=true&from={position}"])
def test_a_token_that_is_revoked_ends_its_streams_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(permits, "CHECK_SECONDS", 0.01)
    with serving(tmp_path) as watched:
        position = watched.ask("/logs/mine", headers=bearer(TOKEN)).json["acknowledged_position"]
        asked = f"/logs/mine/{path.format(position=position)}"
        revoked, kept = (ServedStream(watched, asked, bearer(token)) for token in (READER, TOKEN))
        write_token(tmp_path / "reader", "another-token-of-a-reader-0123456789")
        assert b"the token was revoked" in revoked.rest()
        assert watched.ask("/logs/mine", headers=bearer(READER)).status == 401
        readers = watched.ask("/logs/mine", headers=bearer(TOKEN)).json["readers"]
        assert len(readers) == 1
        kept.close()
        revoked.close()


def test_an_arrow_stream_of_a_revoked_token_breaks_off_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Arrow's stream has no place for the reason."""
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(permits, "CHECK_SECONDS", 0.01)
    with serving(tmp_path) as watched:
        headers = {**bearer(READER), "accept": "application/vnd.apache.arrow.stream"}
        revoked = ServedStream(watched, "/logs/mine/records?follow=true", headers)
        write_token(tmp_path / "reader", "another-token-of-a-reader-0123456789")
        with pytest.raises(http.client.IncompleteRead):
            revoked.rest()
        wait_until(lambda: not watched.ask("/logs/mine", headers=bearer(TOKEN)).json["readers"])
        revoked.close()
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert ["the token was revoked" in line for line in said] == [True], said
    assert not any(record.exc_info for record in caplog.records)


def test_of_two_files_with_one_token_the_first_counts(tmp_path: Path) -> None:
    everything = write_token(tmp_path / "token", TOKEN)
    tokens = Tokens(everything, [TokenConfig(file=everything, rights=("read",))])
    found = tokens.find(TOKEN)
    assert found is not None
    assert found.rights == {"status", "read", "consume", "sync"}
    assert tokens.find("") is None
