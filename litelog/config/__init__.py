"""The daemon's configuration: what is replicated where, from YAML or made in Python."""

from litelog.config.loading import load_config, make_config
from litelog.config.models import Config, LogConfig, ReplicaConfig

__all__ = ["Config", "LogConfig", "ReplicaConfig", "load_config", "make_config"]
