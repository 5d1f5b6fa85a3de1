"""Resolves arguments that stand for the replicas of a configured log: the log's folder instead of replica URLs."""

from __future__ import annotations

import os
from dataclasses import field, replace
from typing import TYPE_CHECKING

import click

from litelog.dataclass import dataclass
from litelog.encryption.identities import OPTION as IDENTITY_OPTION
from litelog.objects.layout import Fencing
from litelog_cli.arguments import is_replica
from litelog_cli.config_file import read_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from litelog.config import Config, LogConfig, ReplicaConfig


@dataclass(frozen=True, slots=True)
class ConfiguredReplica:
    """A replica: its URL, its backend's own options, and its configured fencing."""

    url: str
    options: Mapping[str, object] = field(default_factory=dict, repr=False)
    fencing: Fencing = Fencing.REQUIRED
    no_delete: bool = False


@dataclass(frozen=True, slots=True)
class Sources:
    """The replicas that a command's arguments name."""

    replicas: tuple[ConfiguredReplica, ...]
    pattern: str | None = None
    """Pattern of the configured log, if there is one."""
    log: str | None = None
    """The folder of the configured log, if the arguments name exactly one and nothing else."""


def find_sources(places: Sequence[str], config_file: str | None) -> Sources:
    """The replicas that ``places`` name: URLs, folders of replicas, and folders of configured logs.

    A place that is a replica stands for itself, with its options from the configuration if ``config_file`` is given. If
    ``places`` is empty, returns the replicas of the only log in the configuration.

    Raises:
        UsageError: the places do not name replicas.
        ConfigError: the configuration is invalid.
    """
    config = _load(places, config_file)
    if not places:
        return _only_log(config)
    replicas: list[ConfiguredReplica] = []
    pattern: str | None = None
    logs: list[str] = []
    for place in places:
        log = None if config is None or is_replica(place) else config.find_log(place)
        if log is not None:
            replicas += [configured(replica) for replica in log.replicas]
            pattern = pattern or log.pattern
            logs.append(log.path)
        elif (known := _replica_at(config, place)) is not None:
            replicas.append(known)
        elif config_file is not None and not is_replica(place):
            raise click.UsageError(f"{place}: neither a replica nor a log of {config_file} ({_known(config)})")
        else:
            replicas.append(_at_time(ConfiguredReplica(place)))
    return Sources(tuple(replicas), pattern, logs[0] if len(logs) == len(places) == 1 else None)


def find_replica(place: str, config_file: str | None) -> ConfiguredReplica:
    """The one replica that ``place`` names, with its options if ``config_file`` is given.

    Raises UsageError if it names several.
    """
    replicas = find_sources((place,), config_file).replicas
    if len(replicas) > 1:
        raise click.UsageError(f"{place} has several: choose a URL of {', '.join(each.url for each in replicas)}")
    return replicas[0]


def find_log(folder: str, config_file: str | None) -> tuple[LogConfig | None, str | None]:
    """The configured log in ``folder``, and the configured state folder.

    Raises UsageError if ``config_file`` is given and does not contain the log, and ConfigError if it is invalid.
    """
    config = _load((folder,), config_file)
    if config is None:
        return None, None
    log = config.find_log(folder)
    if log is None and config_file is not None:
        raise click.UsageError(f"{folder}: not a log of {config_file} ({_known(config)})")
    return log, config.state_dir


def _load(places: Sequence[str], config_file: str | None) -> Config | None:
    """The configuration, if one is given and may be needed."""
    needed = not places or any(not is_replica(place) for place in places)
    return read_config(config_file) if needed or config_file is not None else None


def _only_log(config: Config | None) -> Sources:
    if config is None:
        raise click.UsageError("which replica? give a REPLICA_URL, or the LOG_DIR of a configured log")
    if len(config.logs) > 1 or config.folders:
        raise click.UsageError(f"which log? give its folder ({_known(config)})")
    (log,) = config.own_logs
    return Sources(tuple(configured(replica) for replica in log.replicas), log.pattern, log.path)


def configured(replica: ReplicaConfig) -> ConfiguredReplica:
    """A replica of the configuration, as it was at the time of ``--as-of``. Raises UsageError."""
    return _at_time(ConfiguredReplica(replica.url, options_of(replica), replica.fencing, replica.no_delete))


IDENTITY = "litelog_cli.identity"
"""The key in click's context of the file that ``--identity`` names."""


def options_of(replica: ReplicaConfig) -> Mapping[str, object]:
    """The options of a replica of the configuration, with the identity that ``--identity`` names, if it is given."""
    context = click.get_current_context(silent=True)
    path = None if context is None else context.meta.get(IDENTITY)
    return replica.options if path is None else {**replica.options, IDENTITY_OPTION: path}


AS_OF = "litelog_cli.as_of"
"""The key in click's context of the time that ``as_of_option`` states, in ISO 8601."""


def is_as_of() -> bool:
    """Whether ``--as-of`` is given."""
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get(AS_OF) is not None


def require_present(what: str) -> None:
    """Raise UsageError if ``--as-of`` is given: ``what`` is not a replica in S3, and has only its present state."""
    if is_as_of():
        raise click.UsageError(f"--as-of reads earlier versions of objects in S3: it is not for {what}")


def _at_time(replica: ConfiguredReplica) -> ConfiguredReplica:
    """The replica as it was at the time of ``--as-of``, if the verb has that. Raises UsageError."""
    context = click.get_current_context(silent=True)
    time = None if context is None else context.meta.get(AS_OF)
    if time is None:
        return replica
    if not replica.url.lower().startswith("s3://"):
        raise click.UsageError(f"--as-of reads earlier versions of objects in S3, and {replica.url} is elsewhere")
    return replace(replica, options={**replica.options, "as-of": time})


def _replica_at(config: Config | None, place: str) -> ConfiguredReplica | None:
    replica = config.find_replica(place) if config is not None else None
    return None if replica is None else configured(replica)


def _known(config: Config | None) -> str:
    if config is None:
        return "no configuration"
    folders = (f"{os.path.join(folder.dir, folder.pattern)}" for folder in config.folders)
    return "known: " + ", ".join([*(log.path for log in config.own_logs), *folders])
