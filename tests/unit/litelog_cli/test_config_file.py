"""A verb finds its configuration file and state folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ConfigError
from litelog.log.replica_registry import default_state_dir
from litelog_cli.config_file import DEFAULT_CONFIG, choose_state_dir, config_path, read_config

if TYPE_CHECKING:
    from pathlib import Path

TEXT = "state-dir: /there\nlogs: [{path: /log, replicas: [{url: /replica}]}]\n"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "c.yml"
    path.write_text(TEXT)
    return str(path)


def test_the_file_that_is_named_is_read(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LITELOG_CONFIG", raising=False)
    found = read_config(file)
    assert found is not None
    assert found.state_dir == "/there"
    monkeypatch.setenv("LITELOG_CONFIG", file)
    assert read_config(None) == found


def test_a_file_that_is_named_and_not_there_is_an_error(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LITELOG_CONFIG", raising=False)
    with pytest.raises(ConfigError, match="none"):
        read_config(file + ".none")
    monkeypatch.setenv("LITELOG_CONFIG", file + ".none")
    with pytest.raises(ConfigError, match="none"):
        read_config(None)
    assert read_config(file) is not None


@pytest.mark.skipif(os.path.exists(DEFAULT_CONFIG), reason="there is one at the usual place")
def test_no_file_at_the_usual_place_is_none_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LITELOG_CONFIG", raising=False)
    assert config_path(None) == DEFAULT_CONFIG
    assert read_config(None) is None
    with pytest.raises(ConfigError):
        read_config(DEFAULT_CONFIG)


@pytest.mark.slow
def test_the_state_folder_is_the_one_given_or_configured_or_the_usual_one(file: str) -> None:
    config = read_config(file)
    assert choose_state_dir("/here", config) == "/here"
    assert choose_state_dir(None, config) == "/there"
    assert choose_state_dir(None, None) == default_state_dir()
