"""The daemon's configuration: what is replicated where, from YAML or from Python values."""

from litelog.config.entries import FolderConfig, LogConfig, ReplicaConfig
from litelog.config.loading import load_config, make_config
from litelog.config.models import Config

__all__ = ["Config", "FolderConfig", "LogConfig", "ReplicaConfig", "load_config", "make_config"]
