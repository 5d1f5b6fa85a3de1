"""Fixtures of the fault tests over S3: the credentials in the environment, and a bench."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.builders.servers import S3Server
    from tests.faults.s3_replicas import Bench


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the tests' credentials into the environment, where daemons look for them."""
    from tests.builders.servers import ACCESS_KEY_ID, SECRET_ACCESS_KEY

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_ACCESS_KEY)


@pytest.fixture
def short_listing(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let the long listing before a first claim have twenty objects; a thousand take the server ten seconds."""
    from litelog.stores import trial

    monkeypatch.setattr(trial, "LISTED", 20)
    return trial.LISTED


@pytest.fixture
def bench(server: S3Server, tmp_path: Path, credentials: None, short_listing: int) -> Iterator[Bench]:
    from tests.faults.s3_replicas import s3_bench

    with s3_bench(server, tmp_path) as made:
        yield made
