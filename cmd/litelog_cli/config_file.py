"""Which configuration file a verb reads, and where the daemon keeps its state: as named, or at the usual place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from litelog_cli.environment import variables

if TYPE_CHECKING:
    from litelog.config import Config

DEFAULT_CONFIG = "/etc/litelog.yml"


def config_path(given: str | None) -> str:
    """The file that ``--config`` names, else LITELOG_CONFIG, else the one at the usual place."""
    return given or os.environ.get("LITELOG_CONFIG") or DEFAULT_CONFIG


def read_config(given: str | None) -> Config | None:
    """What is configured; None where nobody named a file and there is none at the usual place. ConfigError."""
    path, named = config_path(given), given or os.environ.get("LITELOG_CONFIG")
    return load(path) if named or os.path.exists(path) else None


def load(path: str) -> Config:
    """The configuration in a file. ConfigError."""
    from litelog.config import load_config

    return load_config(Path(path), variables())


def choose_state_dir(given: str | None, config: Config | None) -> str:
    """Where the daemon keeps its state: as ``--state-dir`` says, else as configured."""
    from litelog.log.replicated import default_state_dir

    return given or (config.state_dir if config is not None else None) or default_state_dir()
